"""Cells of one run that other hosts of a fleet measured: said at each comparison, and once for
all; of cells of one pair nothing is said."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.report.answer import answer
from nodrop.report.setups import conditions
from nodrop.report.setups_section import activations
from nodrop.report.story import read_story
from nodrop.report.write import report_json, write_report
from nodrop.results.summary import summarize_cells
from nodrop.terminal.console import hosts_words
from nodrop.terminal.progress import print_cells
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried
from tests.pages import page_of

LONG = [0.0] * 10
KINDS = ("bare", "docker", "oci")


def setups(out: Path, pairs: Sequence[str], trials: Sequence[float | str] = LONG) -> Path:
    """A setup for each, all under one load; the pairs that measured its trials, in turn."""
    loads = [
        Load(
            cell={"setup.kind": kind, "load.pps": 1000},
            trials=trials,
            each={
                r: {"pair": of[r % len(of)], "sut_cpu_s": number + 0.001 * r}
                for r in range(1, len(trials) + 1)
            },
        )
        for number, (kind, of) in enumerate(zip(KINDS, pairs, strict=False), 1)
    ]
    return outcome_run(out, loads)


def ladder(out: Path, pairs: str) -> Path:
    loads = [
        Load(cell={"load.pps": 1000 * n}, trials=[lost] * 6, fields={"pair": pair}, pps=1000.0 * n)
        for n, (pair, lost) in enumerate(zip(pairs, (0.0, 0.2, 0.3), strict=False), 1)
    ]
    return outcome_run(out, loads)


def text_of(path: Path) -> str:
    """All text of a report: the page, report.md, the tables and the JSON."""
    write_report(read_story([path]))
    files = [*(path / "report").glob("*.csv"), path / "report" / "report.md"]
    page = (path / "report" / "index.html").read_text()
    return "\n".join(
        [page, json.dumps(report_json(read_story([path]))), *(f.read_text() for f in files)]
    )


@pytest.mark.parametrize("pairs", [["a", "a", "a"], ["ab", "ab", "ba"]])
def test_of_cells_of_the_same_pairs_nothing_is_said(tmp_path: Path, pairs: list[str]) -> None:
    path = setups(tmp_path / "r", pairs)
    said = text_of(path)
    assert "ther hosts measured" not in said and "measured by" not in said
    assert hosts_words(summarize_cells(t.record for t in read_story([path]).trials)) == ""


def test_each_comparison_of_setups_names_the_hosts(tmp_path: Path) -> None:
    path = setups(tmp_path / "r", ["a", "a", "b"])
    found = report_json(read_story([path]))
    docker, oci = (
        one for one in found["answer"]["sentences"] if one["rule"] == "setup-against-base"
    )
    assert "other hosts" not in docker["text"] and "different in SUT CPU" in docker["text"]
    assert "other hosts measured them (b against a), so this includes how hosts" in oci["text"]
    assert oci["evidence"]["sut_cpu_s"]["other_hosts"] == "b against a"
    assert "other_hosts" not in docker["evidence"]["sut_cpu_s"]
    others = ("setup-against-base", "direct")
    carried = [s["text"] for s in found["answer"]["sentences"] if s["rule"] not in others]
    direct = next(s["text"] for s in found["answer"]["sentences"] if s["rule"] == "direct")
    assert "includes how their hosts differ (oci: b against a)" in direct
    assert [words[-16:] for words in carried] == [f"(measured by {p})." for p in "aab"]
    verdicts = {(row["setup"], row["figure"]): row["verdict"] for row in found["setups"]}
    assert verdicts["oci", "sut_cpu_s"] == "different; other hosts: b against a"
    assert verdicts["docker", "sut_cpu_s"] == "different"
    page = page_of(path)
    assert ">different; other hosts: b against a<" in page
    (said,) = [s for s in found["answer"]["cannot_say"] if s["rule"] == "other-hosts"]
    assert "(a: bare, docker; b: oci)" in said["text"]
    assert said["evidence"]["cells"][1] == {"pairs": ["b"], "cells": ["oci"]}
    assert [cell["pairs"] for cell in found["cells"]] == ["a", "a", "b"]


@pytest.mark.parametrize("answered", ["different", "same", "cannot tell"])
def test_whatever_the_verdict_is(tmp_path: Path, answered: str) -> None:
    trials: Any = {"different": LONG, "same": LONG * 8, "cannot tell": LONG[:3]}[answered]
    path = setups(tmp_path / "r", ["a", "b"], trials)
    figure = "loss_pct" if answered == "same" else "sut_cpu_s"
    rows = [r for r in report_json(read_story([path]))["setups"] if r["figure"] == figure]
    assert rows[1]["verdict"].startswith(answered)
    assert rows[1]["verdict"].endswith("; other hosts: b against a")


@pytest.mark.parametrize(("pairs", "moved"), [("aaa", False), ("aab", True), ("abc", True)])
def test_each_load_names_its_host(tmp_path: Path, pairs: str, moved: bool) -> None:
    path = ladder(tmp_path / "r", pairs)
    found = answer(read_story([path])).sentences
    assert len(found) == 2
    for sentence, pair in zip(found, pairs, strict=False):
        assert sentence.text.endswith(f" (measured by {pair}).") is moved, sentence.text
    page = page_of(path)
    assert ("some of them of other hosts" in page) is moved
    assert (page.count("includes that of their hosts (<a") > 0) is moved


def test_a_cell_that_moved_in_the_run_is_on_other_hosts_as_well(tmp_path: Path) -> None:
    """Its first pair was drained."""
    path = setups(tmp_path / "r", ["a", "ab"])
    (said,) = [s for s in answer(read_story([path])).cannot_say if s.rule == "other-hosts"]
    assert "(a: bare; a, b: docker)" in said.text


def test_void_and_failed_trials_have_no_host(tmp_path: Path) -> None:
    loads = [
        Load(cell={"load.pps": 1}, trials=["late", 0.0], each={1: {"pair": "b"}, 2: {"pair": "a"}}),
        Load(cell={"load.pps": 2}, trials=[0.0], fields={"pair": "a"}),
    ]
    assert "ther hosts measured" not in text_of(outcome_run(tmp_path / "r", loads))


def test_searches_of_other_hosts(tmp_path: Path) -> None:
    loads = [
        Load(
            cell={**one.cell, "setup.kind": kind},
            trials=one.trials,
            pps=one.pps,
            duration_s=one.duration_s,
            fields={**one.fields, "pair": pair},
            each=one.each,
        )
        for kind, pair in (("bare", "a"), ("docker", "b"))
        for one in (tried(4.9, [0.0, 0.0]), tried(5, [0.3, 0.3]))
    ]
    path = outcome_search(tmp_path / "r", loads, search={"goals": [0]})
    (said,) = [s for s in answer(read_story([path])).cannot_say if s.rule == "other-hosts"]
    assert "(a: bare; b: docker)" in said.text
    direct, *others = answer(read_story([path])).sentences
    assert "includes how their hosts differ (docker: b against a)" in direct.text
    for sentence in others:
        if sentence.trials:
            pair = "a" if sentence.subject == "bare" else "b"
            assert sentence.text.endswith(f" (measured by {pair})."), sentence.text
    page = page_of(path)
    section = page[page.index('id="h-capacity"') :]
    assert "includes that of their hosts" in section[: section.index("</section>")]


def test_the_table_that_a_run_ends_with_says_so_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [trial.record for trial in read_story([ladder(tmp_path / "r", "ab")]).trials]
    print_cells(records, None)
    said = capsys.readouterr().out
    assert "other hosts measured other cells: a difference between them includes that" in said
    assert re.search(r"where and why +pair", said), said
    print_cells(records[:1], None)
    assert "other hosts" not in capsys.readouterr().out


@pytest.mark.parametrize(("pairs", "hosts"), [("aa", 0), ("ab", 2)])
def test_activations_of_several_loads_count_their_hosts(
    tmp_path: Path, pairs: str, hosts: int
) -> None:
    """All loads of a setup together, each of which stayed on a pair of its own."""
    loads = [
        Load(
            cell={"setup.kind": kind, "load.pps": pps},
            trials=[0.0] * 6,
            fields={"pair": pair, "activation_s": 1.0},
        )
        for kind in ("bare", "docker")
        for pps, pair in zip((1000, 2000), pairs, strict=True)
    ]
    story = read_story([outcome_run(tmp_path / "r", loads)])
    for _, _, whole in activations(conditions(story)):
        assert whole.n == 12 and whole.hosts == hosts
        assert (whole.interval is None) is bool(hosts)
