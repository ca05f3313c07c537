"""Run directories that were edited, copied or cut: no sentence rests on what contradicts it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop.compare.sides import read_side
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput
from nodrop.measure.plan import make_plan
from nodrop.measure.preflight import Parts
from nodrop.report.story import read_story
from nodrop.report.write import report_json, write_report
from nodrop.results.export import write_parquet
from nodrop.results.packet_books import FLAT
from nodrop.results.rundir import open_run
from nodrop.results.writer import RunWriter
from nodrop.watch.follow import RunFollower
from tests.made.outcome_runs import Load, outcome_run
from tests.made.rundirs import Fake, make_run

LOSSY = Fake(repetitions=3, samples=False)


def edit(run: Path, lines: int, **fields: Any) -> None:
    """Edits the first lines that lost something."""
    records = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for record in [r for r in records if r["body"]["lost_packets"]][:lines]:
        for name, value in fields.items():
            part, now = FLAT[name]
            record[part][now] = value
    (run / "trials.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.mark.parametrize(
    "fields",
    [
        {"lost_packets": 0, "loss_ratio": 0.0},
        {"loss_ratio": 0.0},
        {"lost_packets": 1},
        {"decoded_packets": 7},
        {"offered_packets": 10**9},
        {"books_closed": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("lines", [1, 2])
def test_a_record_that_contradicts_its_books_is_void(
    tmp_path: Path, fields: dict[str, Any], lines: int
) -> None:
    run = make_run(tmp_path / "run", LOSSY)
    before = sum(t.record.valid for t in read_story([run]).trials)
    edit(run, lines, **fields)
    story = read_story([run])
    spoilt = [t for t in story.trials if t.record.invalid_reasons == ["books_differ"]]
    assert len(spoilt) == lines
    assert sum(t.record.valid for t in story.trials) == before - lines
    told = report_json(read_story([run]))
    (differ,) = [f for f in told["findings"] if f["rule"] == "books-differ"]
    assert len(differ["trials"]) == lines


def _gone(run: Path) -> None:
    shutil.rmtree(run / "runs")


def _each_gone(run: Path) -> None:
    for ledger in run.glob("runs/*/ledger.json"):
        ledger.unlink()


def _each_cut(run: Path) -> None:
    for ledger in run.glob("runs/*/ledger.json"):
        ledger.write_text(ledger.read_text()[:40])


def _each_empty(run: Path) -> None:
    for ledger in run.glob("runs/*/ledger.json"):
        ledger.write_text("{}")


@pytest.mark.parametrize("spoil", [_gone, _each_gone, _each_cut, _each_empty])
@pytest.mark.parametrize("repetitions", [2, 6])
def test_records_without_books_prove_nothing(
    tmp_path: Path, spoil: Callable[[Path], None], repetitions: int
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=repetitions, samples=False))
    edit(run, 10**6, lost_packets=0, loss_ratio=0.0)
    spoil(run)
    told = report_json(read_story([run]))
    rules = {s["rule"] for s in told["answer"]["sentences"]}
    assert not rules & {"carries", "no-loss", "absorbed", "loses", "loses-sometimes"}
    (closed,) = [s for s in told["answer"]["rests_on"] if s["rule"] == "books-closed"]
    n = closed["evidence"]["trials"]
    assert closed["evidence"] == {"trials": n, "closed": 0, "there": 0}
    assert closed["text"].endswith(f"; of {n} there are no books")
    (missing,) = [f for f in told["findings"] if f["rule"] == "books-missing"]
    assert len(missing["trials"]) == n


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_only_trials_whose_books_are_there_count(tmp_path: Path, gone: int) -> None:
    run = make_run(tmp_path / "run", LOSSY)
    before = sum(t.record.valid for t in read_story([run]).trials)
    for ledger in sorted(run.glob("runs/*/ledger.json"))[:gone]:
        ledger.unlink()
    assert sum(t.record.valid for t in read_story([run]).trials) == before - gone
    (closed,) = [
        s
        for s in report_json(read_story([run]))["answer"]["rests_on"]
        if s["rule"] == "books-closed"
    ]
    assert closed["evidence"]["there"] == closed["evidence"]["trials"] - gone
    assert f"; of {gone} there are no books" in closed["text"]


def test_untouched_records_agree_with_their_books(tmp_path: Path) -> None:
    story = read_story([make_run(tmp_path / "run", LOSSY)])
    assert not [t for t in story.trials if "books_differ" in t.record.invalid_reasons]


@pytest.mark.parametrize(
    ("line", "kept"), [("void", "measured"), ("measured", "void"), ("failed", "measured")]
)
def test_an_outcome_that_trial_json_contradicts_is_none(
    tmp_path: Path, line: str, kept: str
) -> None:
    """Seen: a void trial was made a measured one in its line, and entered the figures."""
    run = make_run(tmp_path / "run", LOSSY)
    file = next((run / "runs").iterdir()) / "trial.json"
    told = json.loads(file.read_text())
    lines = [json.loads(one) for one in (run / "trials.jsonl").read_text().splitlines()]
    (own,) = (one for one in lines if one["run"] == told["run"])
    own |= {"outcome": line, "valid": line == "measured"}
    own["invalid_reasons"] = {"void": ["sender_late"], "failed": ["sut_died"]}.get(line, [])
    (run / "trials.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    file.write_text(json.dumps(told | {"outcome": kept}))
    (trial,) = (t for t in read_story([run]).trials if t.name == told["run"])
    assert (trial.outcome, trial.record.invalid_reasons) == ("void", ["books_differ"])
    assert "outcome: the record says otherwise" in trial.record.verdict


def test_a_run_counts_once_under_whatever_name(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "a", LOSSY), make_run(tmp_path / "b", Fake(repetitions=1))
    link = tmp_path / "link"
    link.symlink_to(run)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for again in (run, link, copy):
        with pytest.raises(BadInput, match="are one run"):
            read_story([run, other, again])
    assert len(read_story([run, other]).sources) == 2


def test_two_runs_that_began_in_the_same_second_are_two(tmp_path: Path) -> None:
    """Seen: one command line twice at the same time; report, export and history called them one
    run, and compare compared them."""
    runs = [make_run(tmp_path / name, LOSSY) for name in "ab"]
    manifests = [json.loads((run / "manifest.json").read_text()) for run in runs]
    for key in ("name", "started_utc", "plan_sha256"):
        assert manifests[0][key] == manifests[1][key]
    assert len(read_story(runs).sources) == 2
    a, b = map(read_side, map(str, runs))
    assert a.identity != b.identity
    # Those of older runs are all that is known of them.
    for run, manifest in zip(runs, manifests, strict=True):
        del manifest["run_id"]
        (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match="are one run"):
        read_story(runs)


@pytest.mark.parametrize(
    ("kept", "words"), [(99, "99 is of a newer nodrop"), (2, "2 is of"), ("1", "is no number")]
)
def test_a_manifest_of_another_format_is_not_read(tmp_path: Path, kept: Any, words: str) -> None:
    run = make_run(tmp_path / "run", LOSSY)
    manifest = json.loads((run / "manifest.json").read_text()) | {"format": kept}
    (run / "manifest.json").write_text(json.dumps(manifest))
    page = write_report(read_story([run]), tmp_path / "out").read_text()
    assert f"manifest.json: format {words}" in page
    with pytest.raises(BadInput, match=words):
        read_side(str(run))
    with pytest.raises(BadInput, match=words):
        RunWriter.resume(run, plan_sha256=manifest["plan_sha256"])


@pytest.mark.parametrize("gone", [1, 3])
def test_a_trial_whose_line_is_gone_is_said(tmp_path: Path, gone: int) -> None:
    run = make_run(tmp_path / "run", LOSSY)
    lines = (run / "trials.jsonl").read_text().splitlines(keepends=True)
    (run / "trials.jsonl").write_text("".join(lines[gone:]))
    said = json.dumps(report_json(read_story([run])))
    for line in lines[:gone]:
        name = json.loads(line)["run"]
        assert f"runs/{name}" in said and "trials.jsonl has no line for this trial" in said


SINK = """
name = "inputs"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "own.pcap"
"""


def capture(packets: int, frame_bytes: int) -> bytes:
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    size = frame_bytes.to_bytes(4, "little") * 2
    frame = bytes(12) + b"\x88\xb5" + bytes(frame_bytes - 14)
    times = (n.to_bytes(4, "little") + bytes(4) for n in range(packets))
    return header + b"".join(time + size + frame for time in times)


@pytest.mark.parametrize("other", [(3, 60), (2, 900), (300, 128)])
def test_another_trace_under_the_same_name_is_another_input(
    tmp_path: Path, other: tuple[int, int]
) -> None:
    file, trace = tmp_path / "e.toml", tmp_path / "own.pcap"
    file.write_text(SINK)
    trace.write_bytes(capture(2, 60))
    experiment = load_experiment(file)
    plan = make_plan(experiment)
    first = Parts(experiment, load_lab(None), plan)
    before = first.inputs(plan.cells[0])
    assert first.other_trace(plan.cells[0].load) is None
    trace.write_bytes(capture(*other))
    assert Parts(experiment, load_lab(None), plan).inputs(plan.cells[0]) != before
    changed = first.other_trace(plan.cells[0].load)
    assert changed is not None and changed.code == "other_files", "also within one run"
    trace.unlink()
    with pytest.raises(BadInput, match="does not exist"):
        first.other_trace(plan.cells[0].load)


MME = """
name = "inputs"
[sut]
kind = "reference-mme"
subscribers_file = "of-mme.csv"
[load]
kind = "attach"
rate = 1
count = 1
subscribers_file = "of-load.csv"
"""


@pytest.mark.parametrize("other", ["of-mme.csv", "of-load.csv"])
def test_other_keys_under_the_same_name_are_another_input(tmp_path: Path, other: str) -> None:
    file = tmp_path / "e.toml"
    file.write_text(MME)
    for name in ("of-mme.csv", "of-load.csv"):
        (tmp_path / name).write_text(f"imsi,k,opc\n001010000000001,{'1' * 32},{'2' * 32}\n")
    experiment = load_experiment(file)
    plan = make_plan(experiment)

    def inputs() -> object:
        return Parts(experiment, load_lab(None), plan).inputs(plan.cells[0])

    before = inputs()
    assert inputs() == before
    (tmp_path / other).write_text(f"imsi,k,opc\n001010000000001,{'1' * 32},{'3' * 32}\n")
    assert inputs() != before


SEEN = {"sut_cpus": "0-1", "generator_cpus": "2", "started_utc": "2026-11-21T20:53:00+00:00"}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("sut_cpus", "", "'' is no CPU list"),
        ("sut_cpus", "0-", "'0-' is no CPU list"),
        ("generator_cpus", "3-1", "'3-1' is no CPU list"),
        ("generator_cpus", "\x1b[2J", r"'\x1b[2J' is no CPU list"),
        ("started_utc", "yesterday", "'yesterday' is no time of ISO 8601"),
        ("world", 2**63, "Input should be less than or equal to 9223372036854775807"),
    ],
)
@pytest.mark.parametrize("lines", [1, 3])
def test_a_field_that_no_later_reader_can_parse_costs_its_line_alone(
    tmp_path: Path, name: str, value: Any, why: str, lines: int
) -> None:
    """It passed as a text, and the whole report ended with "a defect of nodrop"."""
    threads = [{"name": f"W#0{n}", "role": "worker", "captured_packets": 10_000} for n in (1, 2)]
    loads = [
        Load(
            cell={"sut.threads": n},
            trials=[0.0, 0.1, 0.0],
            fields=SEEN
            | {"threads": threads[:n], "effective": {"threads": n, "runmode": "workers"}},
        )
        for n in (1, 2)
    ]
    run = outcome_run(tmp_path / "run", loads)
    records = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for record in records[2 : 2 + lines]:
        record[name] = value
    (run / "trials.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    story = read_story([run])
    assert len(story.trials) == 6 - lines
    write_report(read_story([run]), tmp_path / "report")
    read_side(str(run))
    write_parquet([run], tmp_path / "trials.parquet")
    assert RunFollower.of(run).look().unread_lines == lines
    damaged = open_run(run).trials.damage
    assert [d.where for d in damaged] == [f"trials.jsonl:{n}" for n in range(3, 3 + lines)]
    assert all(d.words.startswith(f"{name}: {why}") for d in damaged)
