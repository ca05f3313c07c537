"""Whatever a third party's plugin does, the error names it, and nodrop does not end with 0."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli import main
from tests.depth import depth

OTHER_KEYS = ("setup.kind", "load.kind", "measure.mode", "lab")
CODE = {
    "raises": "def make(*_, **__): raise RuntimeError('boom \\x1b[31m')",
    "exits": "import sys\ndef make(*_, **__): sys.exit(0)",
    "exits_at_import": "import sys\nsys.exit(0)",
    "leaves": "raise SystemExit('bye')",
    "nothing": "def make(*_, **__): return None",
    "seven": "def make(*_, **__): return 7",
    "endless": "def make(*_, **__): return make()",
    "speechless": "def make(*_, **__): raise MemoryError",
    "wrong": "def make(",
    "other": "import no_such_module_at_all",
    "empty": "",
}
EXPERIMENT = """
name = "foreign"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with a plugin of each kind per piece of code."""
    for name, code in CODE.items():
        (tmp_path / f"foreign_{name}.py").write_text(code)
    said = "def make(*_, **__):\n    print('{')\n    raise ValueError('x')\nprint('GARBAGE {')"
    (tmp_path / "foreign_prints.py").write_text(said)
    folder = tmp_path / "foreign-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.2\n")
    lines = [f"{n.replace('_', '-')} = foreign_{n}:make" for n in [*CODE, "prints"]]
    groups = [f"[{group}]\n" + "\n".join(lines) for group in plugins.GROUPS.values()]
    (folder / "entry_points.txt").write_text("\n".join(groups))
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()
    for name in [*CODE, "prints"]:
        sys.modules.pop(f"foreign_{name}", None)


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("key", "name"),
    [
        *(("sut.kind", name) for name in CODE),
        *((key, next(iter(CODE))) for key in OTHER_KEYS),
        *(depth(key, name) for key in OTHER_KEYS for name in [*CODE][1:]),
    ],
)
def test_a_broken_plugin_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, name: str
) -> None:
    kind = name.replace("_", "-")
    (tmp_path / "lab.toml").write_text(f'name = "x"\nkind = "{kind}"\n')
    asked = ["--lab", "lab.toml"] if key == "lab" else ["--set", f"{key}={kind}"]
    command = "run" if key == "lab" else "plan"
    code = main.exit_code([command, "x.toml", *asked])
    said = capsys.readouterr()
    table = {"measure.mode": "controller"}.get(key, key.removesuffix(".kind"))
    assert code == 2, said.err
    assert f"plugin {table}.{kind} of foreign 1.2" in said.err
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err
    assert said.out == ""


@pytest.mark.usefixtures("install")
def test_what_a_plugin_prints_is_no_part_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["plan", "x.toml", "--json", "--set", "sut.kind=prints"]) == 2
    assert capsys.readouterr().out == ""
    assert main.exit_code(["plan", "x.toml", "--json"]) in (0, 3)  # 3: this host lacks something
    assert json.loads(capsys.readouterr().out)
