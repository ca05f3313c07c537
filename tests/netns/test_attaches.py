"""Attaches against the reference MME in the one-machine lab: both ends' books, faults, the CPU."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.results.rundir import open_run
from nodrop.testbed.hosts.node import find_node_binary, start_job

EXPERIMENT = """
name = "attaches"
[sut]
kind = "reference-mme"
work_us = 2000
[matrix.cells.two]
"setup.instances" = 2
[matrix.cells.stubs]
"sut.core" = "stubs"
"sut.subscribers" = 190
[matrix.cells.faults]
"sut.reject" = 0.3
"sut.bad_mac" = 0.1
"sut.seed" = 7
[load]
kind = "attach"
rate = 400
count = 200
hold_s = 0
timeout_s = 5
enodebs = 2
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
late_p99_us = 1_000_000
"""
WORK_S = 0.002


def test_what_became_of_each_ue_is_in_the_record(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)

    def run(*, resume: bool) -> tuple[Path, dict[object, Any]]:
        outcome = run_experiment(
            load_experiment(file),
            load_lab(None),
            out=tmp_path / "results",
            resume=resume,
            progress=Progress(),
        )
        return outcome.directory, {one.cell["cell"]: one for one in outcome.records}

    path, records = run(resume=False)
    two, faults = records["two"], records["faults"]
    for record in (two, faults):
        books = record.transactions
        assert record.valid, record.verdict
        assert (books.started, books.residual) == (200, 0)
        assert books.transport == "tcp-framed (not SCTP)"
        assert (record.offered.unit, record.offered.sent) == ("transactions", 200)
    books = two.transactions
    assert (books.completed, books.failed, two.loss_ratio) == (200, 0, 0.0)
    assert books.unmatched == {}, "each message that one end sent, the other received"
    assert books.latency.count == 200
    assert books.sut_cpu_per_completed_s > WORK_S
    assert [sum(e.values()) > 0 for e in counters(path, two.run)] == [True, True], "in turn"
    assert sum(e["attached"] for e in counters(path, two.run)) == 200
    assert two.setup_cpu_s is None or two.setup_cpu_s == two.sut_cpu_s, "nothing works for it"
    stubs = records["stubs"]
    books = stubs.transactions
    assert (books.completed, books.rejected) == (190, {"2": 10}), "the HSS knows so many"
    assert books.steps["HSS, round trip"].count == 200 + 190
    assert books.steps["SGW, round trip"].count == 3 * 190
    (counted,) = counters(path, stubs.run)
    assert counted["hss.authentication_information"] == 200 and counted["hss.refused"] == 10
    assert counted["sgw.create_session"] == counted["sgw.delete_session"] == 190
    kept: Any = open_run(path).detail(stubs.run, "trial")
    servants = kept["details"]["servants"]
    assert [one["name"] for one in servants] == ["stub-hss", "stub-sgw"]
    assert stubs.setup_cpu_s >= stubs.sut_cpu_s
    beside = {one["name"] for row in rows(path, stubs.run) for one in row["beside"]}
    assert {"stub-hss", "stub-sgw"} <= beside, "rows of their own, in no sum of the SUT"
    books = faults.transactions
    assert books.rejected["22"] > 0 and books.anomalies["mac_failures"] > 0
    assert books.failed == books.timed_out + sum((books.rejected | books.aborted).values())
    assert run(resume=True)[1] == records, "nothing is measured again"


OUTSIDE = """
name = "outside"
[sut]
kind = "external"
address = "{address}"
process = "{pid}"
[load]
kind = "attach"
rate = 400
count = 100
hold_s = 0
cpu = "any" # other tests run beside it
[measure]
sut = "standing"
repetitions = 2
late_p99_us = 1_000_000
"""


def test_an_mme_that_the_user_runs_is_offered_the_load_sampled_and_left_alone(
    real_root: None,
    tmp_path: Path,
) -> None:
    argv = [str(find_node_binary()), "reference-mme", "--controlled"]
    spec = {"job": "reference-mme", "listen": "127.0.0.1:0", "work_us": 2000}
    with closing(start_job(argv, spec, env=os.environ, where="here", timeout_s=30)) as mme:
        mme.start()
        file = tmp_path / "experiment.toml"
        file.write_text(OUTSIDE.format(address=mme.ready["listen"], pid=mme.pid))
        outcome = run_experiment(
            load_experiment(file),
            load_lab(None),
            out=tmp_path / "results",
            resume=False,
            progress=Progress(),
        )
        assert not mme.ended()
        mme.stop()
        assert mme.result(timeout_s=30)["attached"] == 200
    for record in outcome.records:
        assert record.valid, record.verdict
        books = record.transactions
        assert (books.started, books.completed, books.unmatched) == (100, 100, None)
        assert books.sut_cpu_per_completed_s > WORK_S


LISTED = """
name = "listed"
[sut]
kind = "reference-mme"
subscribers_file = "home.csv"
[matrix.cells.right]
"load.subscribers_file" = "home.csv"
[matrix.cells.stubs]
"load.subscribers_file" = "home.csv"
"sut.core" = "stubs"
[matrix.cells.wrong]
"load.subscribers_file" = "wrong.csv"
[load]
kind = "attach"
rate = 400
count = 40
hold_s = 0
eea = [0, 3]
eia = [1]
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
late_p99_us = 1_000_000
"""


def test_each_subscriber_is_authenticated_by_its_own_key(tmp_path: Path) -> None:
    def listed(name: str, wrong: int = -1) -> None:
        rows = (f"00101{5 * n:010},{n:032x},{n + (n == wrong):032x}\n" for n in range(40, 0, -1))
        (tmp_path / name).write_text("imsi,k,opc\n" + "".join(rows))

    listed("home.csv")
    listed("wrong.csv", wrong=7)
    file = tmp_path / "experiment.toml"
    file.write_text(LISTED)
    outcome = run_experiment(
        load_experiment(file),
        load_lab(None),
        out=tmp_path / "results",
        resume=False,
        progress=Progress(),
    )
    records = {one.cell["cell"]: one for one in outcome.records}
    for name in ("right", "stubs"):
        books = records[name].transactions
        assert records[name].valid, records[name].verdict
        assert (books.started, books.completed, books.anomalies) == (40, 40, {})
    books = records["wrong"].transactions
    assert records["wrong"].valid, records["wrong"].verdict
    # It refuses the challenge, and the MME refuses it: an Authentication Reject.
    assert (books.completed, books.rejected, books.residual) == (39, {"0": 1}, 0)
    assert books.anomalies == {"wrong_autns": 1}


STANDING = """
name = "standing"
[sut]
kind = "reference-mme"
subscribers = 50
[load]
kind = "attach"
rate = 400
count = 50
hold_s = 0
cpu = "any" # other tests run beside it
[measure]
sut = "standing"
repetitions = 6 # two trials of each of three starts
late_p99_us = 1_000_000
"""


def test_an_mme_that_stands_is_offered_new_imsis_in_each_trial(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(STANDING)
    outcome = run_experiment(
        load_experiment(file),
        load_lab(None),
        out=tmp_path / "results",
        resume=False,
        progress=Progress(),
    )
    seen = [(one.transactions.completed, one.transactions.rejected) for one in outcome.records]
    # It has 50 subscribers: the next fifty are unknown to it.
    assert seen == [(50, {}), (0, {"2": 50})] * 3
    assert [one.activation_s is None for one in outcome.records] == [False, True] * 3


def counters(path: Path, run: str) -> list[dict[str, int]]:
    found = open_run(path).detail(run, "counters")
    assert isinstance(found, dict)
    each: list[dict[str, int]] = found["each"]
    return each


def rows(path: Path, run: str) -> list[dict[str, Any]]:
    """Rows of the receiving host's sampler."""
    (file,) = (path / "runs" / run).glob("samples-*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]
