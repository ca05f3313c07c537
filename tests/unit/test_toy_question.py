"""A question of another package has a command, a controller, a section and a figure by entry points
alone, in one folder of less than 140 lines that `nodrop init --plugin` writes."""

from __future__ import annotations

import csv
import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import hatchling.build
import pytest

from nodrop import plugins
from nodrop.cli import main
from tests.made.rundirs import Fake, make_run

NAME, MODULE = "our-question", "our_question"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `nodrop init --plugin` writes."""
    base: Path = tmp_path_factory.mktemp("plugin")
    with chdir(base):
        assert main.exit_code(["init", "--plugin", NAME]) == 0
    return base / NAME


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of an environment where its wheel is installed."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    with chdir(folder):
        wheel = hatchling.build.build_wheel(str(wheels))
    with zipfile.ZipFile(wheels / wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(autouse=True)
def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    plugins.plugins.cache_clear()
    yield
    sys.modules.pop(MODULE, None)
    plugins.plugins.cache_clear()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("toy"), Fake(repetitions=2, samples=False))


def test_it_is_small_and_has_its_own_name(folder: Path) -> None:
    texts = [file.read_text() for file in folder.rglob("*") if file.suffix in (".py", ".toml")]
    assert len(texts) == 3
    assert sum(len(text.splitlines()) for text in texts) < 140
    assert not any("toy" in text for text in texts)


def test_its_own_test_runs_and_finds_a_fault(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(str(folder / "tests"))
    its: Any = importlib.import_module(f"test_{MODULE}")
    its.test_each_cell_is_measured_whole_and_by_half(tmp_path, capsys)
    controller: Any = importlib.import_module(MODULE).Halves
    monkeypatch.setattr(controller, "beforehand", lambda self: self._trials[:1])
    with pytest.raises(AssertionError):
        its.test_each_cell_is_measured_whole_and_by_half(tmp_path, capsys)


def test_a_name_that_cannot_be_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for name in ("../up", "Big", "class", "json", "there", ""):
        assert main.exit_code(["init", "--plugin", name]) == 2
        assert f"{name}: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_its_command_is_listed_and_answers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["--help"]) == 0
    said = capsys.readouterr().out
    assert "Of other packages" in said and NAME in said
    assert main.exit_code([NAME, str(run)]) == 0
    assert capsys.readouterr().out.startswith("The worst cell keeps ")


def test_its_section_and_figure_are_in_every_output(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert main.exit_code(["report", str(run), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = [cell["kept_pct_median"] for cell in found["cells"]]
    lost = [cell["loss_pct_median"] for cell in found["cells"]]
    assert [100 - ratio for ratio in lost] == pytest.approx(kept) and min(kept) < 100
    rows = found[NAME]["tables"][NAME]
    assert [row["kept_pct"] for row in rows] == kept
    for name, column in (("cells", "kept_pct_median"), (NAME, "kept_pct")):
        with (out / f"{name}.csv").open(newline="") as file:
            assert [float(row[column]) for row in csv.DictReader(file)] == pytest.approx(kept)
    page = (out / "index.html").read_text()
    words = f"The worst cell keeps {min(kept):.2f} % of its packets."
    assert f'<section id="{NAME}"' in page and f'<a href="#{NAME}">Halves</a>' in page
    assert words in page and "Kept, %" in page
    assert "## What each cell keeps" in (out / "report.md").read_text()


def test_its_figure_is_a_metric_of_comparisons(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path, Fake(name="other", repetitions=2, samples=False, seed=8))
    main.exit_code(["compare", str(run), str(other), "--metric", "kept_pct", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {row["metric"] for row in found["rows"]} >= {"kept_pct"}


@pytest.mark.parametrize(
    ("group", "module", "problem"),
    [
        ("sections", "ONE = 7", "plugin section.one of wrong 1.0: 7 is no Section"),
        ("sections", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("figures", "from nodrop.report import gone", "cannot import name 'gone'"),
    ],
)
def test_what_cannot_be_used_is_one_note_of_the_report(
    group: str, module: str, problem: str, run: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "wrong-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[nodrop.{group}]\none = wrong:ONE\n")
    (tmp_path / "wrong.py").write_text(f"{module}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wrong", raising=False)
    out = tmp_path / "out"
    assert main.exit_code(["report", str(run), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    notes = [one for one in found["answer"]["cannot_say"] if one["rule"] == "part-missing"]
    assert len(notes) == 1
    assert "wrong 1.0" in notes[0]["text"] and problem in notes[0]["text"]
    assert NAME in found, "the sections of other packages are there"
    assert "wrong 1.0" in (out / "index.html").read_text()
    assert "wrong 1.0" in (out / "report.md").read_text()
    other = make_run(tmp_path, Fake(name="other", repetitions=2, samples=False, seed=8))
    code = main.exit_code(["compare", str(run), str(other)])
    assert (code == 2) == (group == "figures"), "no metric is left out in silence"
