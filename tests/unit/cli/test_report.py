"""`nodrop report` and `nodrop baseline`: what they write, where, and what they leave alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.cli import main
from nodrop.results.writer import RunWriter
from tests.made.outcome_runs import trial
from tests.made.rundirs import Fake, make_run
from tests.unit.cli.program import EXPERIMENT


def test_report_writes_a_page_and_prints_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = RunWriter.create(
        tmp_path, "x", experiment=EXPERIMENT, lab="", plan_sha256="0", manifest={}
    )
    record = {"cell": {}, "repetition": 1, "index": 1, "run": "0001-r01"}
    lossless = {"valid": True, "verdict": "no loss", "loss_ratio": 0.0, "offered_packets": 9}
    with writer:
        writer.trial("0001-r01")
        writer.finish(trial(**record | lossless))
    assert main.exit_code(["report", str(writer.path)]) == 0
    page = capsys.readouterr().out.splitlines()[-1]
    assert page == str(writer.path / "report" / "index.html")
    assert "<html" in Path(page).read_text(encoding="utf-8")
    argv = ["report", str(writer.path), "--json", "--out", str(tmp_path / "other")]
    assert main.exit_code(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(tmp_path / "other" / "index.html")
    assert found["answer"]["sentences"]
    assert [cell["run_directory"] for cell in found["cells"]] == [writer.path.name]


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "\u202eb", "\x9b2J"])
def test_no_folder_of_a_report_commands_the_terminal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    assert main.exit_code(["report", str(run), "--only", "csv", "--out", str(tmp_path / name)]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out[:-1].isprintable()


def test_a_report_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, Fake(repetitions=1, samples=False))
    out = tmp_path / "parts"
    argv = ["report", str(run), "--out", str(out), "--only", "csv", "--only", "markdown"]
    assert main.exit_code(argv) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert sorted(p.name for p in out.iterdir()) == [
        "cells.csv",
        "ledger.csv",
        "report.md",
        "trials.csv",
    ]
    assert main.exit_code(["report", str(run), "--only", "pdf"]) == 2
    assert "--only" in capsys.readouterr().err


@pytest.mark.parametrize("runs", ["a", "ab"])
def test_the_page_alone_of_a_folder_is_the_page_of_its_runs(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: it was the report of all runs as one, in the first of them."""
    made = [make_run(tmp_path / run, Fake(repetitions=1, samples=False)) for run in runs]
    folder = tmp_path / "results"
    folder.mkdir()
    for run, name in zip(made, runs, strict=True):
        run.rename(folder / name)
    assert main.exit_code(["report", str(folder)]) == 0
    page = (folder / "index.html").read_bytes()
    assert main.exit_code(["report", str(folder), "--only", "html"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder / "index.html")] * 2
    assert (folder / "index.html").read_bytes() == page
    assert not (folder / "a" / "report").exists()


def test_a_place_that_is_taken_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    file, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    file.write_text("mine")
    assert main.exit_code(["report", str(run), "--out", str(file)]) == 2
    assert capsys.readouterr().err == f"nodrop: {file}: File exists; give another --out\n"
    elsewhere.mkdir()
    (run / "report").symlink_to(elsewhere)
    assert main.exit_code(["report", str(run)]) == 2
    words = f"nodrop: {run / 'report'}: is a link, which is not followed; give --out\n"
    assert capsys.readouterr().err == words
    assert (file.read_text(), [*elsewhere.iterdir()]) == ("mine", [])


def test_a_baseline_takes_the_place_of_a_baseline_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    file = tmp_path / "file"
    for mine in ("mine", "{}", "[measure]\nseed = 1\n"):
        file.write_text(mine)
        assert main.exit_code(["baseline", str(run), str(file)]) == 2
        assert f"{file}: is there, and no baseline" in capsys.readouterr().err
        assert file.read_text() == mine
    file.write_text("")
    for _ in ("anew", "again"):
        assert main.exit_code(["baseline", str(run), str(file)]) == 0
        assert json.loads(file.read_text())["name"]


def test_a_report_of_no_run_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"nodrop: {tmp_path}: not a run directory")
    assert list(tmp_path.iterdir()) == []
