"""The package: eight floors, no circle of files, and each name, word and counter in one place."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from nodrop.sensor.suricata_counters import loss_counters

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^ *from (nodrop[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
MOST_FLOORS = 8
WORDS_OF_A_VALUE = re.compile(r'\b([A-Z]\w+)\.([A-Z][A-Z_]+): f?"[^"\n]* [^"\n]*')
"""Enum and member of an entry in a table of words: a code has no space."""
PARSED = re.compile(
    r"\bin (?:\w+\.)*(?:error|problem|refused)\.message\b"
    r"|\b(?:error|problem|refused)\.message\.(?:startswith|endswith|r?partition|split|remove\w+|r?find)"
    r"|\bre\.\w+\([^()]*\b(?:error|problem|refused)\.message\b"
)
"""Code that looks into the words of one of our errors."""
SAME_PART = {"api", "command", "page", "section", "sut"}
"""Names of the same part of each room that has it."""
SAME_SUBJECT = {"comparison", "replay", "ssh"}


def modules(folder: Path) -> dict[str, str]:
    """Module → its text."""
    found = {}
    for path in folder.rglob("*.py"):
        words = path.relative_to(folder.parent).with_suffix("").parts
        found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text()
    return found


def imports(texts: dict[str, str]) -> dict[str, set[str]]:
    """Module → modules that it imports, at its top, in a function or for types alone."""
    found: dict[str, set[str]] = {}
    for module, text in texts.items():
        found[module] = set()
        for source, names in IMPORT.findall(text):
            named = {f"{source}.{name}" for name in re.findall(r"\w+", names)} & texts.keys()
            found[module] |= named or {source}
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    texts = modules(ROOT / "src/nodrop")
    assert len(tuple(TopologicalSorter(imports(texts)).static_order())) == len(texts)


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a": "from nodrop.b import B", "b": "def f():\n    from nodrop.a import A"}, 2),
        (
            {
                "a": "from nodrop import b",
                "b": "from nodrop.c import (\n    C,\n)",
                "c": "from nodrop import a",
            },
            3,
        ),
        ({"a": "from nodrop.b import B", "b": "# from nodrop.a import A"}, 0),
    ],
)
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str], circle: int) -> None:
    folder = tmp_path / "nodrop"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    order = TopologicalSorter(imports(modules(folder)))
    if not circle:
        assert len(tuple(order.static_order())) == len(files)
        return
    with pytest.raises(CycleError) as found:
        order.prepare()
    assert len(set(found.value.args[1])) == circle


def test_every_room_stands_on_one_of_eight_floors() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [floors] = [one["layers"] for one in contracts["contracts"] if one["name"] == "floors"]
    named = {name.split(".")[1] for floor in floors for name in re.findall(r"nodrop\.\w+", floor)}
    rooms = {module.split(".")[1] for module in modules(ROOT / "src/nodrop") if "." in module}
    assert (rooms, len(floors)) == (named, MOST_FLOORS)


def test_a_modules_name_stands_in_one_room() -> None:
    names = Counter(path.stem for path in (ROOT / "src/nodrop").rglob("*.py"))
    assert {name for name, n in names.items() if n > 1} == {"__init__"} | SAME_PART | SAME_SUBJECT


def test_a_class_name_stands_once() -> None:
    """Generated types of events (protocol.py) are named as their structs are, in Rust."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    names = Counter(
        node.name
        for file in files
        if file.name != "protocol.py"
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert not {name for name, times in names.items() if times > 1}


def test_an_enum_has_one_table_of_words() -> None:
    """Words of a value stand once: in code, or in answer/words.toml (unit/answer has its tests)."""
    texts = modules(ROOT / "src/nodrop").values()
    found = Counter(each for text in texts for each in WORDS_OF_A_VALUE.findall(text))
    assert len(found) > 20
    assert [value for value, times in found.items() if times > 1] == []


def test_a_second_table_of_words_is_found() -> None:
    one = '    Went.STOPPED: "it was stopped",\n    Went.SOFTIRQ: f"{n} interrupts",\n'
    other = '{Went.STOPPED: "a signal stopped it"}\n{Rule.STOLEN: "hypervisor"}\n'
    found = Counter(WORDS_OF_A_VALUE.findall(one + other))
    assert found == {("Went", "STOPPED"): 2, ("Went", "SOFTIRQ"): 1}


def test_a_counter_of_suricata_is_named_in_its_table_alone() -> None:
    """A setting may have the name of a counter (flow.memcap)."""
    lost = loss_counters()
    names = {row.counter for row in lost if "*" not in row.counter} - {row.setting for row in lost}
    assert len(names) > 20
    texts = modules(ROOT / "src/nodrop")
    assert [(at, name) for at, text in texts.items() for name in names if name in text] == []


def test_no_code_parses_the_words_of_an_error() -> None:
    """An error has its data beside its words: BadInput the keys that it is about."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    assert [str(file) for file in files if PARSED.search(file.read_text())] == []


@pytest.mark.parametrize(
    ("code", "parses"),
    [
        ('if "no such key" in error.message:', True),
        ('error.message.removeprefix("sut.config: ")', True),
        ('re.split(r"[ :]", error.message)', True),
        ('raise LabProblem(f"{name}: {problem.message}")', False),
        ("if _STARTED in line.message", False),
    ],
)
def test_code_that_parses_the_words_of_an_error_is_found(code: str, parses: bool) -> None:
    assert bool(PARSED.search(code)) == parses
