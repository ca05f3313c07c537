"""Broken, hostile and absurd data: skipped, named and counted, or refused in one line."""

from __future__ import annotations

import os
import resource
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.rundir import open_run
from nodrop_studies.workbooks import UnsafeArchiveError, check_archive
from tests.slow.import_fixtures import (
    BARE,
    DATA,
    EPOCH,
    EVE,
    SYSSTAT,
    VM,
    eve,
    make_dataset,
    make_raw_run,
    missing_channel,
    run_json,
    skipped,
    sysstat,
    write_workbook,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("published"), runs=4)


def _truncate(data: Path) -> None:
    path = data / f"{BARE.format(load=1)},eve.xlsx"
    path.write_bytes(path.read_bytes()[:-1000])


def _text_in_number(data: Path) -> None:
    rows = sysstat(EPOCH, [0, 20, 20, 20, 20, 20])
    rows[1][3] = "n/a"
    rows[2][4] = None
    write_workbook(data / f"{VM.format(load=1)},receiver,sysstat.xlsx", SYSSTAT, {EPOCH: rows})


def _duplicate(data: Path) -> None:
    name = BARE.format(load=1).replace(",4,5,1", ",4.0,5,1")
    write_workbook(data / f"{name},eve.xlsx", EVE, {EPOCH: eve([1, 2])})


def _foreign(data: Path) -> None:
    (data / "notes.txt").write_text("x")
    (data / "budget.xlsx").write_text("x")
    (data / "bigFlows.pcap,1-4,eve.xlsx").write_text("x")
    (data / "logs,bm,now").mkdir()


def _formula_and_empty(data: Path) -> None:
    path = data / f"{VM.format(load=1)},eve.xlsx"
    rows = eve([1, 2])
    rows[0][1] = "=1+1"
    write_workbook(path, EVE, {EPOCH: rows, EPOCH + 1: [], "Chart": eve([1])})


def _missing_column(data: Path) -> None:
    path = data / f"{VM.format(load=1)},eve.xlsx"
    write_workbook(path, EVE[:3], {EPOCH: [row[:3] for row in eve([1, 2])]})


def _formulas_only(data: Path) -> None:
    path = data / f"{VM.format(load=1)},eve.xlsx"
    write_workbook(path, EVE, {})


@pytest.mark.parametrize(
    ("spoil", "reasons"),
    [
        (_truncate, {"unreadable workbook": 1}),
        (missing_channel, {"missing channel": 1}),
        (
            _text_in_number,
            {"text in a number cell": 1, "empty cell": 1, "missing channel": 4},
        ),
        (_duplicate, {"duplicate sample": 1}),
        (
            _foreign,
            {
                "foreign file": 1,
                "foreign workbook": 1,
                "the authors' figure workbook": 1,
                "foreign folder": 1,
            },
        ),
        (
            _formula_and_empty,
            {
                "empty cell": 1,
                "empty sample": 1,
                "sheet is not a sample": 1,
                "missing channel": 4,
            },
        ),
        (
            _missing_column,
            {"missing column": 2, "figure cannot be made": 2, "missing channel": 4},
        ),
        (_formulas_only, {"workbook without samples": 1, "missing channel": 4}),
    ],
)
def test_bad_data_is_skipped_named_and_counted(
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    reasons: dict[str, int],
) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    spoil(folder / DATA)
    found = run_json(capsys, folder, "--out", tmp_path / "run")
    assert skipped(found) == reasons
    assert found["runs"] >= 16
    write_report(read_story([tmp_path / "run"]), tmp_path / "report")


def test_a_formula_is_not_evaluated(tmp_path: Path) -> None:
    """No cached value: there is no number, whatever the formula would give."""
    from nodrop_studies.workbooks import read_workbook

    rows: list[list[object]] = [["=SUM(1,2)", 1, 0, 1, 1, 1]]
    path = write_workbook(tmp_path / "x.xlsx", EVE, {EPOCH: rows})
    (sample,) = read_workbook(path).samples
    assert list(sample.column("uptime")) == [None]


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_zip_bomb_is_not_expanded(tmp_path: Path) -> None:
    bomb = _zip(tmp_path / "bomb.xlsx", {"xl/worksheets/sheet1.xml": b"0" * (300 << 20)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnsafeArchiveError, match="allowed are"):
        check_archive(bomb.read_bytes())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    path = _zip(tmp_path / "liar.xlsx", {"xl/worksheets/sheet1.xml": b"0" * (20 << 20)})
    honest, lie = (20 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(honest, lie))
    with pytest.raises(UnsafeArchiveError, match="declares 1000 bytes and unpacks to more"):
        check_archive(path.read_bytes())


@pytest.mark.parametrize("cell", ["XFD1", "A1048576", "AAA2"])
def test_a_sparse_sheet_is_not_laid_out(tmp_path: Path, cell: str) -> None:
    sheet = f'<sheetData><row r="1"><c r="{cell}"><v>1</v></c></row></sheetData>'.encode()
    path = _zip(tmp_path / "sparse.xlsx", {"xl/worksheets/sheet1.xml": sheet})
    with pytest.raises(UnsafeArchiveError, match="beyond ZZ9999"):
        check_archive(path.read_bytes())


@pytest.mark.parametrize("keep", [0, 1, 30, 2000])
def test_no_length_of_a_broken_workbook_is_a_traceback(
    made: Path, tmp_path: Path, keep: int
) -> None:
    from nodrop_studies.workbooks import read_workbook

    whole = (made / DATA / f"{BARE.format(load=1)},eve.xlsx").read_bytes()
    path = tmp_path / "cut.xlsx"
    path.write_bytes(whole[:keep])
    found = read_workbook(path)
    assert found.samples == ()
    assert [skip.reason for skip in found.skips] == ["unreadable workbook"]


def test_absurd_numbers_and_names_are_skipped_not_fatal(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    logs = make_raw_run(folder / "raw", epoch=EPOCH + 7)
    path = logs / "netstat.tcpreplay.em2.csv"
    path.write_text(path.read_text().replace(" 400,", " -400,").replace(" 0, 0\n", " nan, 1e99\n"))
    eve_log = logs / "eve.json"
    eve_log.write_text(
        eve_log.read_text().replace('"bytes": ', '"bytes": 1' + "0" * 400)
        + '{"stats": '
        + "[" * 100_000
        + "\n"
    )
    for name in (
        b"\xff\x1b[31m.txt",
        b"logs,bm,99999999999,t.pcap,1,a,b,4,5,1",
        b"bm,t.pcap,1,a,b,0,5,1,eve.xlsx",
        b"bm,t.pcap,1,a,b\xff,4,5,1,eve.xlsx",
        b"bm,t.pcap,1234567890123,a,b,4,5,1,eve.xlsx",
    ):
        target = os.fsencode(folder) + b"/" + name
        if name.startswith(b"logs"):
            os.mkdir(target)  # noqa: PTH102  names that are no text
        else:
            with open(target, "wb"):  # noqa: PTH123
                pass
    found = run_json(capsys, folder, "--out", tmp_path / "run")
    assert skipped(found)["foreign workbook"] == 3
    assert skipped(found)["number out of range"] >= 1
    assert found["runs"] == 17
    assert open_run(tmp_path / "run").damage == ()
    assert exit_code(["import", "cs590", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert "\x1b" not in capsys.readouterr().err
    write_report(read_story([tmp_path / "run"]), tmp_path / "report")
