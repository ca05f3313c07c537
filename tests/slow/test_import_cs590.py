"""The importer from the command line, on made-up data, broken data and the published data."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.rundir import open_run
from tests.pages import page_of
from tests.slow.import_fixtures import (
    BARE,
    DATA,
    EPOCH,
    make_dataset,
    make_raw_run,
    missing_channel,
    published_data,
    run_json,
    skipped,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("published"))


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
    index = write_report(read_story([tmp_path / "run"]), tmp_path / "report")
    assert 'id="published"' in index.read_text()


def test_paper_and_sound_and_a_window_of_ones_own(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from nodrop_studies import paper_tables

    spec = replace(paper_tables.TABLES["III"], trace="made.pcap")
    monkeypatch.setattr(paper_tables, "TABLES", {**paper_tables.TABLES, "III": spec})
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


def test_a_run_without_its_sender_cannot_be_judged(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    missing_channel(folder / DATA)
    found = run_json(capsys, folder, "--out", tmp_path / "run")
    judged = open_run(tmp_path / "run").trials.records
    bad = [r for r in judged if not r.valid]
    assert {r.cell["load.multiplier"] for r in bad} == {1}
    assert {tuple(r.invalid_reasons) for r in bad} == {("not_read",)}
    assert len(bad) == 8
    assert found["cells"] == 4


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
    page = page_of(tmp_path / "run", out=tmp_path / "report")
    for words in ("Table II:", "Table III:", "Table IV:", "start-up-race", "packets decoded at 2X"):
        assert words in page


def test_the_published_curves_are_the_authors_own() -> None:
    """The figure workbooks' columns, digit by digit, from the samples."""
    import csv

    from nodrop_studies.workbooks import read_workbook, rowwise_median

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
    from nodrop_studies.dataset import discover
    from nodrop_studies.paper_tables import Wanted, reduce_cell

    cells = discover(published_data()).cells
    reduce_cell(cells[0], Wanted())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for cell in cells[:4]:
        reduce_cell(cell, Wanted())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


def test_all_row_wise_medians_of_the_bundle() -> None:
    """48 files of medians, made by another program; the last column counts samples."""
    import csv

    from nodrop_studies.samples import WorkbookName, parse_workbook_name
    from nodrop_studies.workbooks import read_workbook, rowwise_median

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


@pytest.mark.parametrize("content", ["run", "file"])
def test_a_place_that_is_taken_is_refused_before_the_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    out = tmp_path / "out"
    if content == "run":
        out.mkdir()
        (out / "mine").write_text("x")
    else:
        out.write_text("x")
    assert exit_code(["import", "cs590", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert (
        capsys.readouterr().err
        == f"nodrop: {out}: exists and is not an empty folder; give a new path\n"
    )
