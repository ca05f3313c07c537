"""The page of a folder of runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodrop.cli.inspect import report
from nodrop.report.story import read_story
from nodrop.report.write import write_folder_page, write_report
from nodrop.results.rundir import run_directories, runs_in
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "results"
    outcome_search(made / "a", [tried(7, [0.0] * 3), tried(8, [0.1] * 3)]).rename(made / "search")
    cells = [Load(cell={"load.pps": 70_000}, pps=70_000, trials=[0.0] * 3)]
    outcome_run(made / "b", cells).rename(made / "given")
    for empty in ("a", "b"):
        (made / empty).rmdir()
    return made


@pytest.mark.parametrize("reported", ["search", "given"])
def test_each_run_has_a_line_and_a_link_if_it_has_a_report(folder: Path, reported: str) -> None:
    write_report(read_story([folder / reported]))
    page = write_folder_page(folder, runs_in(folder), None)
    html = page.read_text(encoding="utf-8")
    assert page == folder / "index.html" and html.count("<tr>") == 3
    assert re.findall(r'<td class="wide"><a href="([^"]*)"', html) == [
        f"{reported}/report/index.html"
    ]
    assert "The socket ring overflows." in html and "7,000" in html and "70,000" in html
    assert "10.00 % lost in 3 of 3 trials" in html
    assert page.read_bytes() == write_folder_page(folder, runs_in(folder), None).read_bytes()


@pytest.mark.parametrize("elsewhere", ["pages", "a b/pages"])
def test_links_lead_from_another_folder(folder: Path, tmp_path: Path, elsewhere: str) -> None:
    write_report(read_story([folder / "search"]))
    out = tmp_path / elsewhere
    html = write_folder_page(folder, runs_in(folder), out).read_text(encoding="utf-8")
    (link,) = re.findall(r'<td class="wide"><a href="([^"]*)"', html)
    assert (out / link).resolve() == (folder / "search/report/index.html").resolve()


def test_a_folder_is_known_from_a_run(folder: Path, tmp_path: Path) -> None:
    assert [run.name for run in runs_in(folder)] == ["given", "search"]
    assert runs_in(folder / "search") == [] and runs_in(tmp_path / "none") == []
    (folder / "link").symlink_to(folder / "search")
    assert len(runs_in(folder)) == 2


def test_the_command_writes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report([folder])
    assert capsys.readouterr().out.strip() == str(folder / "index.html")


@pytest.mark.parametrize("given", [["*"], [""], ["search", "given"], ["index.html", "search", ""]])
def test_a_folder_and_its_page_may_stand_among_run_directories(
    folder: Path, given: list[str]
) -> None:
    """`nodrop history results/*` ended at the page of the folder, with exit code 2."""
    write_folder_page(folder, runs_in(folder), None)
    named = sorted(folder.glob("*")) if given == ["*"] else [folder / name for name in given]
    found = [run.name for run in run_directories(named)]
    assert {*found} == {"search", "given"} and "index.html" not in found
    assert run_directories([folder / "index.html"]) == [folder / "index.html"]  # an error names it


@pytest.mark.parametrize("lossy", [True, False])
def test_a_search_that_was_cut_short_says_the_load_it_knows_first(
    tmp_path: Path, lossy: bool
) -> None:
    """Seen: "The budget ran out." as the answer."""
    loads = [tried(9, [0.1] * 3)] if lossy else [tried(7, [0.0] * 3)]
    run = outcome_search(tmp_path, loads, search={"budget_s": 20.0})
    html = write_folder_page(tmp_path, [run], None).read_text(encoding="utf-8")
    assert "The budget ran out." in html
    begins = html.split("The budget ran out.")[0].rpartition("<bdi>")[2]
    assert ("Less than 9,000" if lossy else "7,000 packets/s") in begins
