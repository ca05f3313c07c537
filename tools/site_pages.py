"""Pages of the documentation site that do not lie in docs/: a hook of mkdocs (`make site`).

README.md is the first page. Generated are the options of each command, the fields of each JSON
Schema, the list of how-tos and of decisions. A link to any other file of the repository becomes
a link to a copy in the site.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

import typer
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

from nodrop.cli import main
from tools.manual import commands

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE_DOCS = {
    "README.md": "index.md",
    **{
        name: name
        for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "SPECIFICATION.md")
    },
    "docs/adr": "adr/index.md",
    "docs/how-to": "how-to/index.md",
}
"""Path in the repository → in the site."""
SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in ROOT.glob("schema/*.json"))
OF_THE_NODE = "node"
"""The schema whose types docs/node-protocol.md describes."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    decisions = sorted(path.name for path in ROOT.glob("docs/adr/*.md"))
    section(config.nav, "Decisions").extend(f"adr/{name}" for name in decisions)
    reference = section(config.nav, "Reference")
    place = reference.index("reference/schemas.md")
    pages = ["reference/schemas.md", *(schema_page(n) for n in SCHEMAS if n != OF_THE_NODE)]
    reference[place] = {"JSON Schemas": pages}
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")  # anchors as on GitHub
    return config


def on_files(files: Files, config: Any) -> Files:
    made = {
        "how-to/index.md": how_tos(section(config.nav, "How to")),
        "adr/index.md": decisions(),
        "reference/options.md": options(),
        "reference/schemas.md": schemas(),
    }
    made |= {schema_page(name): "\n".join(fields(name)) for name in SCHEMAS if name != OF_THE_NODE}
    made |= {at: (ROOT / p).read_text() for p, at in OUTSIDE_DOCS.items() if p.endswith(".md")}
    for at, content in made.items():
        files.append(File.generated(config, at, content=content))
    linked = {f"schema/{name}.schema.json" for name in SCHEMAS}
    for file in files.documentation_pages():
        linked |= {to for to in targets(file) if in_site(to) == to and (ROOT / to).is_file()}
    for path in sorted(linked):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the repository has them, turned into those of the site."""
    here = PurePosixPath(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        target = in_site(normpath(str(repository_path(here).parent / found[1])))
        return relpath(target, str(here.parent))

    parts = CODE.split(markdown)
    return "".join(part if n % 2 else LINK.sub(link, part) for n, part in enumerate(parts))


def targets(file: File) -> Iterator[str]:
    folder = repository_path(PurePosixPath(file.src_uri)).parent
    for found in LINK.finditer(CODE.sub("", file.content_string)):
        yield normpath(str(folder / found[1]))


def repository_path(site: PurePosixPath) -> PurePosixPath:
    for path, at in OUTSIDE_DOCS.items():
        if PurePosixPath(at) == site and path.endswith(".md"):
            return PurePosixPath(path)
    return "docs" / site


def in_site(path: str) -> str:
    return OUTSIDE_DOCS.get(path) or path.removeprefix("docs/")


def section(nav: list[Any], name: str) -> list[Any]:
    found: list[Any] = next(entry[name] for entry in nav if name in entry)
    return found


def title(page: Path) -> str:
    return page.read_text().splitlines()[0].removeprefix("# ")


def how_tos(nav: list[Any]) -> str:
    said = ["# How to"]
    for task in nav:
        for name, pages in task.items() if isinstance(task, Mapping) else ():
            said += [f"## {name}", ""]
            said += [f"- [{title(ROOT / 'docs' / p)}]({Path(p).name})" for p in pages] + [""]
    return "\n".join(said)


def decisions() -> str:
    said = ["# Decisions", "Why nodrop is as it is, in the order in which it was decided.", ""]
    for path in sorted(ROOT.glob("docs/adr/*.md")):
        words = re.sub(r"^\d+[.:] *", "", title(path))
        said.append(f"- {path.name[:4]}: [{words[:1].upper()}{words[1:]}]({path.name})")
    return "\n".join(said)


def options() -> str:
    """The help of each command, as `--help` prints it."""
    os.environ["COLUMNS"] = "80"
    program: Any = typer.main.get_command(main.app)
    top = program.context_class(program, info_name="nodrop", terminal_width=80, color=False)
    said = ["# Options of each command", "As `--help` prints them, and `man nodrop`.", ""]
    for context in commands(program, top):
        said += [f"## {context.command_path}", "```", context.command.get_help(context), "```", ""]
    return "\n".join(said)


def schema_page(name: str) -> str:
    return f"reference/schemas/{name}.md"


def schema(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((ROOT / f"schema/{name}.schema.json").read_text())
    return found


def schemas() -> str:
    said = ["# JSON Schemas", "Made from the models that nodrop reads and writes with.", ""]
    said += ["| of | file |", "|---|---|"]
    for name in SCHEMAS:
        page = "../node-protocol.md" if name == OF_THE_NODE else f"schemas/{name}.md"
        words = schema(name)["title"].removeprefix("nodrop ").partition(" (")[0]
        said.append(
            f"| [{words}]({page}) | [{name}.schema.json](../../schema/{name}.schema.json) |"
        )
    return "\n".join(said)


def fields(name: str) -> Iterator[str]:
    """A table of the fields of each model of a schema."""
    whole = schema(name)
    words = whole["title"].removeprefix("nodrop ")
    yield f"# {words[:1].upper()}{words[1:]}"
    yield f"[The schema](../../../schema/{name}.schema.json). `?`: the field may be absent."
    models = {"": whole, **whole["$defs"]}
    for model, shape in models.items():
        if model:
            yield f"\n## {model}"
        if described := shape.get("description"):
            yield f"\n{cell(described)}"
        if choices := shape.get("oneOf", ()):
            yield f"\nOne of {', '.join(kind(one) for one in choices)}."
        elif "properties" in shape:
            yield "\n| field | type | means |\n|---|---|---|"
            for field, one in shape["properties"].items():
                optional = "" if field in shape.get("required", ()) else "?"
                means = cell(one.get("description", ""))
                yield f"| `{field}`{optional} | {kind(one)} | {means} |"
        else:
            yield f"\n{kind(shape)}"


def kind(shape: Mapping[str, Any]) -> str:
    """A type in words, models as links."""
    if "$ref" in shape:
        model = shape["$ref"].rpartition("/")[2]
        return f"[{model}](#{model.lower()})"
    if "const" in shape:
        return f"`{json.dumps(shape['const'])}`"
    if "enum" in shape:
        return ", ".join(f"`{json.dumps(one)}`" for one in shape["enum"])
    if several := shape.get("anyOf") or shape.get("oneOf"):
        return " or ".join(kind(one) for one in several)
    if shape.get("type") == "array":
        items = shape.get("items") or {}
        return f"list of {kind(items)}" if items else "list"
    if shape.get("type") == "object" and isinstance(
        below := shape.get("additionalProperties"), dict
    ):
        return f"object of {kind(below)}" if below else "object"
    return str(shape.get("type", "any"))


def cell(words: str) -> str:
    return re.sub(r"\s+", " ", words).replace("|", "\\|").replace("<", "&lt;")
