"""A suricata.yaml: the one measured if the user brings none, and a user's own, as it is read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from nodrop.config.options import INPUTS, input_path, shown
from nodrop.errors import BadKey
from nodrop.protocol import YamlText
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.json_text import one_line

Yaml = dict[str, Any]

MAX_PENDING_PACKETS = 1024
"""Value in the template."""


@cache
def template() -> Yaml:
    """The suricata.yaml that is measured if the user brings none: to be copied, not changed."""
    text = files("nodrop.testbed.suts.suricata").joinpath("template.yaml").read_text("utf-8")
    found: Yaml = yaml.safe_load(text)
    return found


LONGEST_YAML_BYTES = 4 << 20
MOST_FILES = 64
MOST_STEPS = 64
MOST_NODES = 200_000
"""Suricata's own suricata.yaml has 900."""
FILE_KEYS = {
    "classification-file": "/etc/suricata/classification.config",
    "reference-config-file": "/etc/suricata/reference.config",
    "threshold-file": "/etc/suricata/threshold.config",
}
"""Key → Suricata's own place for it."""
RULE_PATH = "/etc/suricata/rules"
"""Folder that Suricata takes rules from without default-rule-path."""
HEADER_LACKS = (
    "Suricata says: The configuration file must begin with the following two lines: %YAML 1.1 and "
    "---"
)
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Beginnings of a text that an editor of Windows may have written."""
WHOLE = ("logging", "unix-command")
"""Tables that nodrop brings whole."""


def read_own(path: Path) -> Yaml:
    return _read_yaml(_Source(path))


def of_option(error: BadKey) -> BadKey:
    """The error as one of a file that the option --config names."""
    return BadKey("--config", error.words, hint=error.hint)


def read_texts(yaml_text: YamlText) -> Yaml:
    """Reads a yaml of any host, with the files that it includes, and no file of this machine.
    BadInput as `read_own`."""

    def read(path: Path) -> bytes:
        text = yaml_text["texts"].get(str(path))
        if text is None:
            why = yaml_text["errors"].get(str(path), "No such file or directory")
            raise OSError(0, why)
        # The node hands on what is no UTF-8 as U+FFFD, a mark of the byte order too.
        utf_16 = text.startswith("\ufffd\ufffd") and "\0" in text
        return UTF_16[0] if utf_16 else text.encode()

    return _read_yaml(_Source(Path(yaml_text["path"]), read=read))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """Files that a yaml names, on this host."""

    rules: tuple[Path, ...] = ()
    lacking: tuple[str, ...] = ()
    """Entries of rule-files that match no file."""
    others: Mapping[str, Path] = field(default_factory=dict)
    """Key → file: classes, references, thresholds; without those that are not there."""


def own_files(document: Yaml, folder: Path) -> OwnFiles:
    """A relative default-rule-path starts in `folder`, the yaml's."""
    said, rules, lacking = document.get("default-rule-path"), [], []
    rule_path = folder / (said if isinstance(said, str) and said else RULE_PATH)
    entries = document.get("rule-files")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, str) or not entry or "\0" in entry:
            continue
        found = [path for path in INPUTS.get().matching(rule_path / entry) if path.is_file()]
        rules += found
        if not found:
            lacking.append(str(rule_path / entry))
    named = ((key, document.get(key)) for key in FILE_KEYS)
    others = {
        key: path
        for key, name in named
        if isinstance(name, str) and name and "\0" not in name
        if (path := input_path(Path(name), folder)).is_file()
    }
    return OwnFiles(rules=tuple(dict.fromkeys(rules)), lacking=tuple(lacking), others=others)


def replaced(own: Yaml, document: Yaml, given: Iterable[str]) -> list[dict[str, Any]]:
    """Keys of a user's yaml that Suricata is run without: what they were and what they are now, in
    short; null = not there. Keys that the experiment overrides (`given`) are not among them."""
    asked = tuple(given)
    return [
        {
            "key": key,
            "was": None if was is _NOTHING else shown(was),
            "now": None if now is _NOTHING else shown(now),
        }
        for key, was, now in _differences("", own, document)
        if not any(f"{key}.".startswith(f"{one}.") for one in asked)
        and not (was is _NOTHING and any(one.startswith(f"{key}.") for one in asked))
    ]


_NOTHING = object()


def _differences(prefix: str, own: Any, document: Any) -> Iterator[tuple[str, Any, Any]]:
    if prefix.rstrip(".") not in WHOLE:
        if isinstance(own, dict) and isinstance(document, dict):
            for key in dict.fromkeys([*own, *document]):
                one, other = own.get(key, _NOTHING), document.get(key, _NOTHING)
                yield from _differences(f"{prefix}{key}.", one, other)
            return
        if isinstance(own, list) and isinstance(document, list):
            pairs = zip_longest(own, document, fillvalue=_NOTHING)
            for number, (one, other) in enumerate(pairs):
                yield from _differences(f"{prefix}{number}.", one, other)
            return
    if own is _NOTHING or document is _NOTHING or _text(own) != _text(document):
        yield prefix.rstrip("."), own, document


def _text(value: Any) -> str:
    """Text of a value as both readers of yaml understand it."""
    text = str(value).lower()
    return {"true": "yes", "on": "yes", "false": "no", "off": "no"}.get(text, text)


# --- YAML as Suricata reads it ------------------------------------------------------------------


class _TextLoader(yaml.BaseLoader):
    """Every scalar stays text, as in Suricata: `yes`, `0777`, `12:30` come out as they went in."""

    source: _Source


def _read_here(path: Path) -> bytes:
    return read_file(path, most_bytes=LONGEST_YAML_BYTES)


class _Source:
    """A file, the files that include it, and how many there may still be."""

    def __init__(
        self,
        path: Path,
        outer: _Source | None = None,
        read: Callable[[Path], bytes] = _read_here,
    ) -> None:
        self.path = path
        self.read: Callable[[Path], bytes] = outer.read if outer else read
        self.by = f" (included by {outer.path})" if outer else ""
        try:
            itself = path.resolve()
        except RuntimeError:
            raise BadKey("sut.config", f"{path}: is a link that leads to itself") from None
        self._chain: tuple[Path, ...] = (*(outer._chain if outer else ()), itself)
        self._left: list[None] = outer._left if outer else [None] * MOST_FILES
        if self._chain.count(itself) > 1:
            raise BadKey("sut.config", f"{path}: includes itself")
        if not self._left:
            raise BadKey("sut.config", f"{path}: more than {MOST_FILES} files are included")
        self._left.pop()

    def included(self, name: object) -> Yaml:
        if not isinstance(name, str):
            raise BadKey("sut.config", f"{self.path}: include needs a file name")
        return _read_yaml(_Source(input_path(Path(name), self.path.parent), self))


def _include(loader: _TextLoader, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.constructor.ConstructorError(None, None, "!include needs a file name")
    return loader.source.included(node.value)


_TextLoader.add_constructor("!include", _include)


def _read_yaml(source: _Source) -> Yaml:
    path = source.path
    try:
        _must_not_be_rules(path)
        text = source.read(path)
        if text.startswith(UTF_16):
            raise BadKey(
                "sut.config",
                f"{path}: is UTF-16, which Suricata does not read{source.by}",
                hint=f"iconv -f UTF-16 -t UTF-8 {shlex.quote(str(path))} > suricata-utf8.yaml",
            )
        _must_begin_as_yaml_1_1(text)
        loader = _TextLoader(text)
        loader.source = source
        document = loader.get_single_data()
    except OSError as error:
        raise BadKey("sut.config", f"{path}: {error.strerror}{source.by}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadKey("sut.config", f"{path}: {_one_line(error)}{source.by}") from None
    except RecursionError:
        raise BadKey("sut.config", f"{path}: is nested too deep") from None
    if not isinstance(document, dict):
        raise BadKey("sut.config", f"{path}: must be a table of settings, as suricata.yaml is")
    _check_size(document, path)
    return _with_includes(document, source)


def _must_not_be_rules(path: Path) -> None:
    """A file of rules may be larger than any yaml: said before it is read."""
    if path.suffix == ".rules":
        raise BadKey(
            "sut.config",
            f"{path}: is a file of rules by its name, and no suricata.yaml",
            hint=f"a Suricata that is measured takes it as --rules {shlex.quote(str(path))}",
        )


def _must_begin_as_yaml_1_1(text: bytes) -> None:
    """PyYAML takes other versions as well."""
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            if event.version != (1, 1):
                raise yaml.YAMLError(HEADER_LACKS)
            return


def _check_size(document: Yaml, path: Path) -> None:
    """BadInput if the document is too large as it will be written for Suricata's reader, without
    aliases."""
    left = MOST_NODES
    open_values: list[tuple[int, Any]] = [(0, document)]
    while open_values:
        depth, value = open_values.pop()
        if not isinstance(value, dict | list):
            continue
        left -= len(value)
        if left < 0:
            raise BadKey("sut.config", f"{path}: has more than {MOST_NODES:,} settings")
        if depth > MOST_STEPS:
            raise BadKey("sut.config", f"{path}: is nested deeper than {MOST_STEPS}")
        inner = value.values() if isinstance(value, dict) else value
        open_values += [(depth + 1, one) for one in inner]


def _with_includes(document: Yaml, source: _Source) -> Yaml:
    """Top-level `include:` of one file or a list; a later setting replaces an earlier one."""
    merged: Yaml = {}
    for key, value in document.items():
        if key == "include":
            for name in value if isinstance(value, list) else [value]:
                merged |= source.included(name)
        else:
            merged[key] = value
    return merged


def _one_line(error: Exception) -> str:
    return one_line(error, longest=400)
