"""The importer from the command line, on made-up data, broken data and the published data."""

from __future__ import annotations

import json
import os
import resource
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.main import exit_code
from nodrop.imports.archive import UnsafeArchiveError, check_archive
from nodrop.report.write import write_report
from nodrop.results.rundir import open_run
from tests.unit.import_fixtures import (
    BARE,
    EPOCH,
    EVE,
    SYSSTAT,
    VM,
    eve,
    make_dataset,
    make_raw_run,
    published_data,
    sysstat,
    write_workbook,
)

DATA = Path("original/experiments/suricata/data")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("published"))


def run_json(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    assert exit_code(["import", "cs590", *map(str, words), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def skipped(found: dict[str, Any]) -> dict[str, int]:
    return {entry["reason"]: entry["count"] for entry in found["skipped"]}


def test_an_import_is_an_ordinary_run_directory(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, made, "--out", tmp_path / "run")
    assert (found["cells"], found["runs"], found["skipped"]) == (4, 32, [])
    run = open_run(tmp_path / "run")
    assert (run.damage, run.trials.damage) == ((), ())
    records = run.trials.records
    assert [r.index for r in records] == list(range(32))
    assert [r.started_utc for r in records] == sorted(r.started_utc or "" for r in records)
    docker = [r for r in records if r.cell["setup.kind"] == "docker"]
    assert {r.cell["load.multiplier"] for r in docker} == {1, 2}
    first = next(r for r in docker if r.cell["load.multiplier"] == 2)
    assert first.valid
    assert first.offered.sent == first.packets.decoded_packets == 3200
    assert (
        first.packets.lost_packets,
        first.packets.residual_packets,
        first.packets.loss_ratio,
    ) == (0, 0, 0)
    assert first.host_cpu_ratio == pytest.approx(0.44 / 4)
    # 100 bytes of frame each: the FCS is not part of a frame here
    assert first.offered.bps == pytest.approx(3200 * 100 * 8 / 12)
    index = write_report([tmp_path / "run"], tmp_path / "report")
    assert 'id="published"' in index.read_text()


def test_paper_and_sound_and_a_window_of_ones_own(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from nodrop.imports import tables

    spec = replace(tables.TABLES["III"], trace="made.pcap")
    monkeypatch.setattr(tables, "TABLES", {**tables.TABLES, "III": spec})
    found = run_json(capsys, made, "--table", "III", "--mode", "paper", "--window", "4:20")
    bare, docker = found["cells"]
    # 20, 20, 20, 20, 1 by hand; Docker 22 x 4 and 1
    assert (bare["setup"], bare["mean"], bare["n"]) == ("bare", pytest.approx(81 / 5), 5)
    assert bare["sigma"] == pytest.approx(8.49705831)
    assert bare["window_s"] == [4, 20]
    assert docker["mean"] == pytest.approx(89 / 5)
    assert docker["samples"] == 8
    sound = run_json(capsys, made, "--table", "III")["cells"][1]["sound"]
    assert sound["median"] == pytest.approx(22)


def test_raw_logs_alone_and_beside_their_workbooks(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_raw_run(tmp_path / "raw")
    alone = run_json(capsys, tmp_path / "raw", "--out", tmp_path / "alone")
    assert (alone["runs"], alone["skipped"]) == (1, [])
    (record,) = open_run(tmp_path / "alone").trials.records
    assert (record.offered.sent, record.packets.decoded_packets) == (1600, 1600)

    both = shutil.copytree(made, tmp_path / "both")
    make_raw_run(both / "raw_layout", epoch=EPOCH)  # also in a workbook
    make_raw_run(both / "raw_layout", epoch=EPOCH + 7)  # a run of its own
    found = run_json(capsys, both, "--out", tmp_path / "run")
    assert found["runs"] == 33
    assert skipped(found) == {"duplicate sample": 5}


def _truncate(data: Path) -> None:
    path = data / f"{BARE.format(load=1)},eve.xlsx"
    path.write_bytes(path.read_bytes()[:-1000])


def _missing_channel(data: Path) -> None:
    (data / f"{BARE.format(load=1)},netout,netstat.xlsx").unlink()


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
        (_missing_channel, {"missing channel": 1}),
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
    assert found["runs"] >= 32
    write_report([tmp_path / "run"], tmp_path / "report")


def test_a_run_without_its_sender_cannot_be_judged(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    _missing_channel(folder / DATA)
    found = run_json(capsys, folder, "--out", tmp_path / "run")
    judged = open_run(tmp_path / "run").trials.records
    bad = [r for r in judged if not r.valid]
    assert {r.cell["load.multiplier"] for r in bad} == {1}
    assert {tuple(r.invalid_reasons) for r in bad} == {("not_read",)}
    assert len(bad) == 8
    assert found["cells"] == 4


def test_a_formula_is_not_evaluated(tmp_path: Path) -> None:
    """No cached value: there is no number, whatever the formula would give."""
    from nodrop.imports.workbooks import read_workbook

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
    from nodrop.imports.workbooks import read_workbook

    whole = (made / DATA / f"{BARE.format(load=1)},eve.xlsx").read_bytes()
    path = tmp_path / "cut.xlsx"
    path.write_bytes(whole[:keep])
    found = read_workbook(path)
    assert found.samples == ()
    assert [skip.reason for skip in found.skips] == ["unreadable workbook"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{made}/nowhere", "--table", "II"], "not a folder"),
        (["{empty}", "--out", "{empty}/x"], "nothing to import"),
        (["{made}"], "exactly one of"),
        (["{made}", "--table", "II", "--out", "x"], "exactly one of"),
        (["{made}", "--table", "IX"], "IX"),
        (["{made}", "--table", "V"], "no workbook of table V"),
        (["{made}", "--table", "II", "--window", "9"], "--window 9"),
        (["{made}", "--table", "II", "--window", "9:3"], "--window 9:3"),
        (["{made}", "--out", "{made}"], "not an empty folder"),
        (["{made}", "--check", "{empty}/none.json"], "none.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    filled = [word.format(made=made, empty=tmp_path / "empty") for word in words]
    assert exit_code(["import", "cs590", *filled]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_check_exits_1_on_a_miss(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {"op": "peak", "column": "%CPU", "divide": 1}
    recipe["file"] = str(DATA / f"{BARE.format(load=1)},receiver,sysstat.xlsx").removeprefix(
        "original/"
    )
    entries = [
        {"id": "hit", "recipe": recipe, "expected": 20, "published": 21, "status": "match"},
        {"id": "miss", "recipe": recipe, "expected": 21},
    ]
    path = tmp_path / "expected.json"
    path.write_text(json.dumps({"entries": entries[:1]}))
    assert exit_code(["import", "cs590", str(made), "--check", str(path)]) == 0
    assert "flag: hit: published 21, the files give 20" in capsys.readouterr().out
    path.write_text(json.dumps({"entries": entries}))
    found = run_json(capsys, made, "--check", path, code=1)
    assert (found["hits"], found["misses"]) == (1, 1)


def test_the_published_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, published_data(), "--out", tmp_path / "run")
    assert found["cells"] == 8
    assert found["runs"] == 322
    codes = {finding["code"] for finding in found["findings"]}
    assert codes == {
        "start-up-race",
        "loss-per-replica",
        "guest-time-twice",
        "alert-explosion",
        "spread-over-time",
        "captured-below-decoded",
        "survivor-tail",
        "unpaired-channels",
        "fixed-run-order",
        "missing-samples",
    }
    imported = json.loads((tmp_path / "run" / "imported.json").read_text())
    for name in ("II", "III", "IV"):
        for cell in imported["tables"][name]["cells"]:
            flag = cell["published_disagrees"]
            assert (flag is not None) == ((name, cell["published_setup"]) == ("IV", "DockerV"))
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text()
    for words in ("Table II:", "Table III:", "Table IV:", "start-up-race", "packets decoded at 2X"):
        assert words in page


def test_the_published_curves_are_the_authors_own() -> None:
    """The figure workbooks' columns, digit by digit, from the samples."""
    import csv

    from nodrop.imports.paper import rowwise_median
    from nodrop.imports.workbooks import read_workbook

    folder = published_data()
    with (folder / "published_series" / "fig_cpu_1x_2x.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for load in (1, 2):
        name = f"bm,bigFlows.pcap,{load},em2,enp34s0,4,5,1,receiver,sysstat.xlsx"
        ours = rowwise_median(read_workbook(folder / DATA / name).samples, "%CPU")
        printed = [float(row[f"{load}xBM"]) for row in rows if row[f"{load}xBM"]]
        assert ours[: len(printed)] == pytest.approx(printed)


def test_memory_stays_with_one_workbook(capsys: pytest.CaptureFixture[str]) -> None:
    """All workbooks of the bundle hold 2.2 million numbers, 70 MB as objects."""
    from nodrop.imports.cells import Wanted, reduce_cell
    from nodrop.imports.dataset import discover

    cells = discover(published_data()).cells
    reduce_cell(cells[0], Wanted())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for cell in cells[:4]:
        reduce_cell(cell, Wanted())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


def test_all_row_wise_medians_of_the_bundle() -> None:
    """48 files of medians, made by another program; the last column counts samples."""
    import csv

    from nodrop.imports.names import WorkbookName, parse_workbook_name
    from nodrop.imports.paper import rowwise_median
    from nodrop.imports.workbooks import read_workbook

    folder = published_data()
    compared = 0
    for path in sorted((folder / "median_csv").rglob("*.csv")):
        name = parse_workbook_name(path.with_suffix(".xlsx").name)
        assert isinstance(name, WorkbookName)
        samples = read_workbook(folder / DATA / path.with_suffix(".xlsx").name).samples
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        counts = [sum(sample.rows > row for sample in samples) for row in range(len(rows))]
        assert counts == [int(row["n_samples"]) for row in rows], path.name
        for column in samples[0].columns:
            ours = rowwise_median(samples, column, floor=name.channel.cumulative_counts)
            theirs = [float(row[column]) for row in rows]
            assert ours == pytest.approx(theirs, abs=1e-6), (path.name, column)
            compared += len(rows)
    assert compared > 50_000


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
    assert found["runs"] == 33
    assert open_run(tmp_path / "run").damage == ()
    assert exit_code(["import", "cs590", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert "\x1b" not in capsys.readouterr().err
    write_report([tmp_path / "run"], tmp_path / "report")
