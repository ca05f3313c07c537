"""The crates: which may depend on which, which may hold `unsafe`, and that no two files of one
crate need each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CRATES = Path(__file__).parents[2] / "crates"
NAMES = sorted(path.name for path in CRATES.iterdir())
WITH_UNSAFE = {"sys", "io", "counters"}
"""Everywhere else the workspace's lints forbid it."""
ALLOWED: dict[str, set[str]] = {
    "proto": set(),
    "wire": set(),
    "counters": set(),
    "sys": set(),
    "io": {"wire", "sys"},
    "replay": {"io", "wire", "sys"},
    "trace": {"io", "wire", "sys"},
    "profile": {"counters", "sys"},
    "attach": {"sys"},
}
"""DESIGN: the other crates of ours that each may depend on; `node` may depend on all."""


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "Cargo.toml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_crate_depends_only_on_those_below_it(name: str) -> None:
    ours = {key for key in manifest(CRATES / name)["dependencies"] if key.startswith("nodrop-")}
    allowed = ALLOWED.get(name, set(NAMES) - {"node"})
    assert ours <= {f"nodrop-{other}" for other in allowed}


@pytest.mark.parametrize("name", NAMES)
def test_unsafe_is_forbidden_but_in_three_crates(name: str) -> None:
    rules = manifest(CRATES.parent)["workspace"]["lints"]
    lints = manifest(CRATES / name)["lints"]
    assert rules["rust"].pop("unsafe_code") == "forbid"
    assert rules["clippy"]["undocumented_unsafe_blocks"] == "deny"
    assert lints == (rules if name in WITH_UNSAFE else {"workspace": True})


Module = tuple[str, ...]


class Crate:
    """The files of a crate as modules, and which of them each one names in its code."""

    def __init__(self, source: Path) -> None:
        self.texts = {module_of(source, path): code(path) for path in source.rglob("*.rs")}
        self.moved: dict[Module, dict[str, Module]] = {}
        for module in self.texts:
            self.moved[module] = dict(self.handed_on(module))
        self.needs = {module: self.named_by(module) for module in self.texts}

    def handed_on(self, module: Module) -> Iterator[tuple[str, Module]]:
        """Names that a `pub use` offers here and another file defines."""
        for path in re.findall(r"\bpub(?:\(\w+\))? use ([^;]+);", self.texts[module]):
            for words in flat(path):
                yield words[-1], self.resolved(module, words)

    def named_by(self, module: Module) -> set[Module]:
        """To declare a child or to hand its names on is not to need it."""
        text = re.sub(r"\bpub(?:\(\w+\))? use [^;]+;", "", self.texts[module])
        children = [child[-1] for child in self.texts if child and child[:-1] == module]
        begins = "|".join(["crate", "super", "self", *children])
        paths = re.findall(rf"(?<![\w:])(?:{begins})::[\w:{{}},\s*]+", text)
        found = {self.resolved(module, words) for path in paths for words in flat(path)}
        return found - {module}

    def resolved(self, module: Module, words: list[str]) -> Module:
        """The file a path leads to: the longest beginning of it that is a module."""
        at = module
        while words and words[0] in ("crate", "super", "self"):
            at = {"crate": (), "super": at[:-1], "self": at}[words[0]]
            words = words[1:]
        while words and (*at, words[0]) in self.texts:
            at, words = (*at, words[0]), words[1:]
        moved = self.moved.get(at, {})
        return moved.get(words[0], at) if words else at


def module_of(source: Path, path: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def code(path: Path) -> str:
    """Source without comments, strings and tests, which may need anything."""
    if path.stem in ("tests", "testing"):
        return ""
    text = re.split(r"#\[cfg\(test\)\]\s*(?:pub\(crate\) )?mod ", path.read_text())[0]
    return re.sub(r"//.*|\"(?:\\.|[^\"\\])*\"", "", text)


def flat(path: str) -> Iterator[list[str]]:
    """`a::{b, c::d}` as `a::b` and `a::c::d`, one level of braces at a time."""
    path = re.sub(r"\s+", "", path)
    opened = path.find("{")
    if opened < 0:
        yield [word for word in path.split("::") if word]
        return
    head, depth, part = path[:opened], 0, ""
    for letter in path[opened + 1 :]:
        if letter == "}" and depth == 0:
            break
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield from flat(head + part)
            part = ""
        else:
            part += letter
    if part:
        yield from flat(head + part)


def circles(names: dict[Module, set[Module]]) -> list[set[Module]]:
    """Sets of modules that reach each other."""
    reached = {module: set(others) for module, others in names.items()}
    for middle in names:
        for module in names:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    found: list[set[Module]] = []
    for module in names:
        circle = {other for other in reached[module] if module in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_two_files_of_a_crate_need_each_other(name: str) -> None:
    assert circles(Crate(CRATES / name / "src").needs) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"lib": "mod a;\nmod b;", "a": "use crate::b::B;", "b": "fn f() { super::a::g() }"}, "ab"),
        ({"lib": "mod a;", "a": "mod b;\nuse b::B;", "a/b": "use super::A;"}, ["a", "a/b"]),
        (
            {
                "lib": "mod a;\nmod b;\nmod c;\npub use c::C;",
                "a": "use crate::{b::B};",
                "b": "use crate::C;",
                "c": "use crate::{a::{A, self}};",
            },
            "abc",
        ),
        ({"lib": "mod a;\nmod b;\npub use a::A;", "a": "// crate::b\n", "b": "use crate::A;"}, ""),
        (
            {
                "lib": "mod a;\nmod b;",
                "a": "#[cfg(test)]\nmod t { use crate::b; }",
                "b": "use crate::a;",
            },
            "",
        ),
    ],
)
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str], circle: list[str]) -> None:
    for name, text in files.items():
        path = tmp_path / f"{name}.rs"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = circles(Crate(tmp_path).needs)
    assert found == ([{tuple(name.split("/")) for name in circle}] if circle else [])
