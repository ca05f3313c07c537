"""Whole pages: each section, the same bytes each time, and every packet of every trial."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.made.rundirs import damage
from tests.pages import page_of


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_every_packet_of_every_trial_is_in_the_ledger_table(demo: Path, tmp_path: Path) -> None:
    write_report(read_story([demo]), tmp_path)
    trials = {t["run"]: t for t in rows(tmp_path / "trials.csv")}
    assert len(trials) == 18
    moved = dict.fromkeys(trials, 0)
    for row in rows(tmp_path / "ledger.csv"):
        if row["class"] not in ("hop", "residual"):
            moved[row["run"]] += int(row["packets"])
    for run, trial in trials.items():
        assert int(trial["intended_packets"]) + moved[run] == int(trial["decoded_packets"])
        assert int(trial["residual_packets"]) == 0


def test_the_page_is_one_file_with_every_section(demo: Path, tmp_path: Path) -> None:
    page = page_of(demo, out=tmp_path)
    for section in ("answer", "cells", "ledger", "time", "trials", "trust", "manifest"):
        assert f'<section id="{section}"' in page
    for outside in ('src="', 'href="http', "@import", "url("):
        assert outside not in page
    assert "1,423 packets = 1,372 absorbed" in page
    assert "residual 0" in page


def test_the_same_run_gives_the_same_bytes(demo: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / demo.name
    shutil.copytree(demo, copy)
    write_report(read_story([demo]), tmp_path / "a")
    write_report(read_story([copy]), tmp_path / "b")
    files = sorted(p for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) > 12
    for file in files:
        other = tmp_path / "b" / file.relative_to(tmp_path / "a")
        assert file.read_bytes() == other.read_bytes(), file.name


def test_what_cannot_be_read_is_named_and_the_rest_is_reported(mixed: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / mixed.name
    shutil.copytree(mixed, spoilt)
    damage(spoilt)
    page = write_report(read_story([spoilt]), tmp_path / "out").read_text(encoding="utf-8")
    assert "trials.jsonl:2 cannot be read" in page
    assert "half-written last line" in page
    assert "ledger.json is missing" in page
    assert "ledger.json cannot be read" in page
    assert len(rows(tmp_path / "out" / "trials.csv")) == 16


def test_two_runs_on_one_page(demo: Path, mixed: Path, tmp_path: Path) -> None:
    page = write_report(read_story([demo, mixed]), tmp_path).read_text(encoding="utf-8")
    assert "demo and mixed" in page
    assert len(rows(tmp_path / "cells.csv")) == 6
