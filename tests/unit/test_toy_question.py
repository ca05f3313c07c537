"""A question of another package has a command, a controller, a section and a figure by entry points
alone, in one folder of less than 120 lines."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli import main
from tests.made.rundirs import Fake, make_run

FOLDER = Path(__file__).parents[1] / "fixtures" / "toy_question"
EXPERIMENT = """
name = "toy"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
[measure]
mode = "halves"
"""


@pytest.fixture(autouse=True)
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    plugins.plugins.cache_clear()
    yield
    sys.modules.pop("toy_question", None)
    plugins.plugins.cache_clear()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("toy"), Fake(repetitions=2, samples=False))


def test_it_is_small() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(len(file.read_text().splitlines()) for file in files) < 120


def test_its_command_is_listed_and_answers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["--help"]) == 0
    said = capsys.readouterr().out
    assert "Of other packages" in said and "halves" in said
    assert main.exit_code(["halves", str(run)]) == 0
    assert capsys.readouterr().out.startswith("The worst cell keeps ")


def test_its_controller_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.toml").write_text(EXPERIMENT)
    assert main.exit_code(["plan", str(tmp_path / "toy.toml"), "--json"]) in (
        0,
        3,
    )  # 3: this host lacks something
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [trial["repetition"] for trial in trials] == [1, 2]


def test_its_section_and_figure_are_in_every_output(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert main.exit_code(["report", str(run), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = [cell["kept_pct_median"] for cell in found["cells"]]
    lost = [cell["loss_pct_median"] for cell in found["cells"]]
    assert [100 - ratio for ratio in lost] == pytest.approx(kept) and min(kept) < 100
    rows = found["halves"]["tables"]["halves"]
    assert [row["kept_pct"] for row in rows] == kept
    for name, column in (("cells", "kept_pct_median"), ("halves", "kept_pct")):
        with (out / f"{name}.csv").open(newline="") as file:
            assert [float(row[column]) for row in csv.DictReader(file)] == pytest.approx(kept)
    page = (out / "index.html").read_text()
    words = f"The worst cell keeps {min(kept):.2f} % of its packets."
    assert '<section id="halves"' in page and '<a href="#halves">Halves</a>' in page
    assert words in page and "Kept, %" in page
    assert "## What each cell keeps" in (out / "report.md").read_text()


def test_its_figure_is_a_metric_of_comparisons(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path, Fake(name="other", repetitions=2, samples=False, seed=8))
    main.exit_code(["compare", str(run), str(other), "--metric", "kept_pct", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {row["metric"] for row in found["rows"]} >= {"kept_pct"}


def test_a_section_that_is_none_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "wrong-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[nodrop.sections]\nseven = wrong:SEVEN\n")
    (tmp_path / "wrong.py").write_text("SEVEN = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main.exit_code(["report", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "plugin section.seven of wrong 1.0: 7 is no Section" in capsys.readouterr().err
