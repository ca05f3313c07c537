"""Renews schema/node.schema.json and the Python types of node events from the types in crates/.

A hundred lines of our own make plain TypedDicts; datamodel-code-generator brings a dozen packages
to make models that copy every row. `make schema` runs this.
"""

from __future__ import annotations

import json
import keyword
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schema/node.schema.json"
TYPES = ROOT / "src/nodrop/protocol.py"
Schema = Mapping[str, Any]

HEAD = '''"""Generated from schema/node.schema.json by tools/node_schema.py (`make schema`).

Not to edit. What nodrop-node says (docs/node-protocol.md); each event has a `type` beside these
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

PROTOCOL = {protocol}
Count: TypeAlias = Annotated[int, Field(ge=0)]
'''


def main() -> int:
    new = derived()
    old = json.loads(SCHEMA.read_text(encoding="utf-8")) if SCHEMA.exists() else {}
    broken = list(breaking(old, new))
    if broken:
        print(
            f"protocol {new['protocol']} is broken, raise PROTOCOL in crates/proto/src/message.rs:",
            *broken,
            sep="\n  ",
            file=sys.stderr,
        )
        return 1
    texts = {SCHEMA: json.dumps(new, indent=2, ensure_ascii=False) + "\n", TYPES: python_of(new)}
    for path, text in texts.items():
        # A newer schema asks for a new node.
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return 0


def derived() -> dict[str, Any]:
    """The schema of the types as they stand in crates/."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.schema.json"
        subprocess.run(
            ["cargo", "test", "--quiet", "--locked", "--package", "nodrop-node", "schema::"],
            cwd=ROOT,
            env={**os.environ, "NODROP_WRITE_SCHEMA_TO": str(path)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def breaking(old: Schema, new: Schema) -> Iterator[str]:
    """What a side that knows the old types would misunderstand; a new number permits everything.

    A field may come, and a word that a spec may have. None may go or change, in a spec no field may
    become a must, and in an event none may cease to be one.
    """
    if old.get("protocol") != new["protocol"]:
        return
    for part in ("every_job", "jobs"):
        yield from _gone(part, old[part], new[part])
    read = set(_reachable(old, [job["spec"] for job in old["jobs"].values()]))
    for name, was in old["$defs"].items():
        now = new["$defs"].get(name)
        if now is None:
            yield f"{name} is gone"
        else:
            yield from _changed(name, was, now, is_read=name in read)


def _gone(where: str, old: Schema, new: Schema) -> Iterator[str]:
    for name, was in old.items():
        now = new.get(name)
        if isinstance(was, dict) and isinstance(now, dict) and "$ref" not in was:
            yield from _gone(f"{where}.{name}", was, now)
        elif was != now:
            yield f"{where}.{name} is {'gone' if now is None else 'another type'}"


def _changed(name: str, old: Schema, new: Schema, *, is_read: bool) -> Iterator[str]:
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    old_shape = {k: v for k, v in old.items() if k not in ("properties", "required")}
    new_shape = {k: v for k, v in new.items() if k not in ("properties", "required")}
    if is_read and "enum" in new_shape and set(old.get("enum", ())) <= set(new["enum"]):
        new_shape["enum"] = old_shape["enum"]
    if old_shape != new_shape:
        yield f"{name} is another type"
    for field, was in old_fields.items():
        if field not in new_fields:
            yield f"{name}.{field} is gone"
        elif new_fields[field] != was:
            yield f"{name}.{field} is another type"
    before, now = set(old.get("required", ())), set(new.get("required", ()))
    if is_read:
        yield from (f"{name}.{field} must be there now" for field in sorted(now - before))
    else:
        kept = (before - now) & new_fields.keys()
        yield from (f"{name}.{field} may be missing now" for field in sorted(kept))


def _reachable(schema: Schema, roots: list[Any]) -> Iterator[str]:
    seen: set[str] = set()
    todo: list[Any] = list(roots)
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                yield name
                todo.append(schema["$defs"][name])
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def python_of(schema: Schema) -> str:
    """The module, formatted as everything else is. It has what the node says: what it is given, the
    node checks."""
    said = [of for events in schema["jobs"].values() for key, of in events.items() if key != "spec"]
    used = set(_reachable(schema, [schema["every_job"], *said]))
    words, tables = [], []
    for name, of in schema["$defs"].items():
        if name not in used:
            continue
        if "properties" in of:
            tables.append(_table(name, of))
        else:
            words.append(f"{name}: TypeAlias = {_type(of)}")
    events = {
        job: {event: _type(of) for event, of in events.items() if event != "spec"}
        for job, events in schema["jobs"].items()
    }
    every = {event: _type(of) for event, of in schema["every_job"].items()}
    text = "\n".join(
        [
            HEAD.format(protocol=schema["protocol"]),
            *words,
            *tables,
            f"EVERY_JOB: Mapping[str, type] = {_mapping(every)}",
            '"""Event → its fields."""',
            "EVENTS: Mapping[str, Mapping[str, type]] = {",
            *(f"{job!r}: {_mapping(of)}," for job, of in events.items()),
            "}",
            '"""Job → event → its fields; an event that is not here has none."""',
        ]
    )
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TYPES), "-"]
    done = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def _table(name: str, of: Schema) -> str:
    required = set(of.get("required", ()))
    lines = [f"class {name}(TypedDict):"]
    for field, kind in of["properties"].items():
        if not field.isidentifier() or keyword.iskeyword(field):
            raise ValueError(f"{name}.{field} is no name of Python's")
        said = _type(kind)
        lines.append(f"    {field}: {said if field in required else f'NotRequired[{said}]'}")
    return "\n".join([*lines, ""])


def _mapping(of: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key!r}: {value}" for key, value in of.items()) + "}"


def _type(of: Any) -> str:
    match of:
        case {"$ref": str(path)}:
            return path.rpartition("/")[2]
        case {"anyOf": list(variants)}:
            return " | ".join(map(_type, variants))
        case {"enum": list(words)}:
            return f"Literal[{', '.join(map(repr, words))}]"
        case {"type": list(kinds)}:
            return " | ".join(_type({**of, "type": kind}) for kind in kinds)
        case {"type": "object", "additionalProperties": {} as inner} | {
            "type": "object",
            "patternProperties": {"^\\d+$": inner},
        }:
            return f"dict[str, {_type(inner)}]"
        case {"type": "array", "items": inner}:
            return f"list[{_type(inner)}]"
        case {"type": "integer", "minimum": 0}:
            return "Count"
        case {"type": str(kind)} if kind in _PLAIN:
            return _PLAIN[kind]
    raise ValueError(f"no type for {of}")


_PLAIN = {"null": "None", "boolean": "bool", "string": "str", "integer": "int", "number": "float"}

if __name__ == "__main__":
    sys.exit(main())
