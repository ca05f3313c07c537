"""The section of thread models: by what ran, with the roles' CPU and wait."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.profile.threads import thread_models
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.made.outcome_runs import Load, outcome_run

RECEIVE, WORKER = "receive", "worker"


def threads(*each: tuple[str, int | None, float]) -> list[dict[str, Any]]:
    """(role, packets or flows, CPU)."""
    found = []
    for n, (role, amount, cpu) in enumerate(each):
        socket = role == RECEIVE or not any(r == RECEIVE for r, _, _ in each)
        kind = "captured_packets" if socket else "flows"
        found.append(
            {"name": f"{role}-{n}", "role": role, kind: amount, "cpu_ratio": cpu,
             "wait_ratio": cpu / 2}
        )  # fmt: skip
    return found


def ran(name: str, runmode: str, each: list[dict[str, Any]], **more: Any) -> Load:
    fields = {
        "effective": {"runmode": runmode},
        "threads": each,
        "threads_unexplained_packets": 0,
        "sut_cpus": "1-3",
        "generator_cpus": "0",
        "sut_cpu_s": 2.0,
    }
    return Load(cell={"cell": name}, trials=[0.0, 0.0], fields=fields | more)


WORKERS = ran("w", "workers", threads((WORKER, 600, 0.5), (WORKER, 400, 0.4)))
AUTOFP = ran(
    "a",
    "autofp",
    threads((RECEIVE, 1000, 0.3), (WORKER, 10, 0.8), (WORKER, 10, 0.7), (WORKER, 40, 0.9)),
)
SINGLE = ran("s", "single", threads((WORKER, 1000, 0.6)))


def rows(tmp_path: Path, loads: Sequence[Load], name: str = "thread-models") -> list[Any]:
    path = outcome_run(tmp_path, loads)
    write_report(read_story([path]), tmp_path / "report")
    with (tmp_path / "report" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_models_stand_side_by_side(tmp_path: Path) -> None:
    autofp, single, workers = rows(tmp_path, [WORKERS, AUTOFP, SINGLE])
    shape = ("runmode", "capture_threads", "detect_threads", "own_cpus")
    assert [[row[k] for k in shape] for row in (autofp, single, workers)] == [
        ["autofp", "1", "3", "3"],
        ["single", "1", "0", "3"],
        ["workers", "2", "0", "3"],
    ]
    assert float(workers["over_mean_pct"]) == pytest.approx(20)
    assert float(autofp["over_mean_pct"]) == pytest.approx(100), "of flows, behind a receive thread"
    assert single["over_mean_pct"] == workers["receive_cpu_pct"] == ""
    assert (float(autofp["receive_cpu_pct"]), float(autofp["worker_cpu_pct"])) == (30.0, 90.0)
    assert float(autofp["worker_wait_pct"]) == pytest.approx(45)


def test_each_thread_has_a_bar_and_a_row(tmp_path: Path) -> None:
    found = rows(tmp_path, [WORKERS, AUTOFP, SINGLE], "thread-loads")
    by_thread = {(row["cell"], row["thread"]): row for row in found}
    assert len(by_thread) == 2 + 4 + 1
    assert float(by_thread["w", "worker-0"]["share_pct"]) == 60
    busiest = by_thread["a", "worker-3"]
    assert (float(busiest["cpu_pct"]), float(busiest["wait_pct"])) == (90, 45)
    assert (float(busiest["share_pct"]), busiest["of"]) == (pytest.approx(200 / 3), "flows begun")
    assert float(by_thread["a", "receive-0"]["share_pct"]) == 100, "of those of its role"
    page = (tmp_path / "report" / "index.html").read_text()
    assert "a: worker worker-3 waited for a CPU 45.00 % of the time" in page


@pytest.mark.parametrize(
    ("parts", "gini", "over"),
    [((600, 400), 10, 20), ((900, 50, 50), 170 / 3, 170), ((10, 10, 10, 70), 45, 180)],
)
def test_packets_and_cpu_are_uneven_by_figures_of_their_own(
    tmp_path: Path, parts: Sequence[int], gini: float, over: float
) -> None:
    by_packets = threads(*((WORKER, n, 0.5) for n in parts))
    by_cpu = threads(*((WORKER, 100, n / 1000) for n in parts))
    for n, (each, figures) in enumerate(
        [(by_packets, ("gini_pct", "over_mean_pct")),
         (by_cpu, ("cpu_gini_pct", "cpu_over_mean_pct"))]
    ):  # fmt: skip
        found = rows(tmp_path / str(n), [ran("w", "workers", each), SINGLE])
        (row,) = [row for row in found if row["runmode"] == "workers"]
        assert [float(row[f]) for f in figures] == [pytest.approx(gini), pytest.approx(over)]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (None, "–"),
        ({"flows": 900, "effective_flows": 3.0, "largest_ratio": 0.57}, "one flow has 57 %"),
        ({"flows": 900, "effective_flows": 12.0, "largest_ratio": 0.1}, "chance can do this"),
        ({"flows": 9000, "effective_flows": 8000.0, "largest_ratio": 0.001}, "not the sizes"),
        (
            {"flows": 90, "effective_flows": 15.0, "largest_ratio": 0.1, "same_copies": 800},
            "800 copies are the same flows",
        ),
    ],
)
@pytest.mark.parametrize("receive", [False, True])
def test_what_makes_workers_uneven_is_judged_by_the_flows(
    tmp_path: Path, sizes: dict[str, float] | None, words: str, receive: bool
) -> None:
    workers = [(WORKER, n, n / 1000) for n in (700, 300)]
    each = threads(*([(RECEIVE, 1000, 0.9)] if receive else []), *workers)
    runmode = "autofp" if receive else "workers"
    found = rows(tmp_path, [ran("w", runmode, each, flow_sizes=sizes), SINGLE])
    (row,) = [row for row in found if row["runmode"] == runmode]
    assert row["uneven_by"].startswith(words)


def test_the_page_has_the_section_only_if_there_are_several_models(tmp_path: Path) -> None:
    page = write_report(
        read_story([outcome_run(tmp_path / "a", [WORKERS, SINGLE])]), tmp_path / "ra"
    )
    assert 'id="threads"' in page.read_text()
    one = outcome_run(tmp_path / "b", [WORKERS, ran("w2", "workers", WORKERS.fields["threads"])])
    assert thread_models(read_story([one])) is None
    old = outcome_run(tmp_path / "c", [Load(cell={"sut.threads": n}, trials=[0.0]) for n in (1, 2)])
    assert thread_models(read_story([old])) is None


def on_two_ports(
    tmp_path: Path, loads: Sequence[Load], traces: Sequence[str | None], second: int = 100
) -> list[Any]:
    path = outcome_run(tmp_path, loads)
    lines = [json.loads(line) for line in (path / "trials.jsonl").read_text().splitlines()]
    for line in lines:
        line["body"]["ports"] = [
            {"port": f"ndrxp{n}", "trace": trace, "received_packets": second if n else 900}
            for n, trace in enumerate(traces)
        ]
    (path / "trials.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_report(read_story([path]), tmp_path / "report")
    with (tmp_path / "report/ports.csv").open() as file:
        return list(csv.DictReader(file))


def test_one_model_on_two_ports_says_what_came_in_at_each(tmp_path: Path) -> None:
    named = ("/tmp/north.pcap", "/tmp/south.pcap")
    found = on_two_ports(tmp_path / "a", [WORKERS], named)
    assert [(r["port"], r["trace"], float(r["share_pct"])) for r in found] == [
        ("ndrxp0", named[0], 90), ("ndrxp1", named[1], 10),
    ]  # fmt: skip
    page = (tmp_path / "a/report/index.html").read_text()
    assert "north.pcap" in page and 'id="thread-claims-table"' not in page
    assert "trace" not in on_two_ports(tmp_path / "b", [WORKERS, SINGLE], (None, None))[0]
    assert 'id="thread-claims-table"' in (tmp_path / "b/report/index.html").read_text()


@pytest.mark.parametrize("second", [0, 1, 900])
def test_a_port_without_a_packet_is_named_in_the_answer(tmp_path: Path, second: int) -> None:
    on_two_ports(tmp_path, [WORKERS, SINGLE], (None, None), second)
    idle = "ndrxp1 received nothing, and the threads there had no work, in 2 of 2 cells"
    for name in ("index.html", "report.md"):
        assert (idle in (tmp_path / "report" / name).read_text(encoding="utf-8")) == (second == 0)


@pytest.mark.parametrize(
    ("sut", "generator", "common", "own"),
    [
        ("1-3", "0", True, 3),
        ("0-1", None, None, 1),
        ("0-3", "0,3", True, 2),
        ("1", None, None, 0),
        ("0-3", None, False, 4),
        ("0-3", "0", False, 4),
    ],
)
def test_cpus_that_the_generator_may_take_are_not_its_own(
    tmp_path: Path, sut: str, generator: str | None, common: bool | None, own: int
) -> None:
    cpus = {"sut_cpus": sut, "generator_cpus": generator, "cpus_in_common": common}
    changed = ran("x", "workers", WORKERS.fields["threads"], **cpus)
    found = rows(tmp_path, [changed, SINGLE])
    (row,) = [row for row in found if row["runmode"] == "workers"]
    assert row["own_cpus"] == str(own)


def test_threads_that_take_turns_are_no_scaling(tmp_path: Path) -> None:
    cpus = {"sut_cpus": "1", "generator_cpus": "0"}
    loads = [
        ran("w", "workers", WORKERS.fields["threads"], **cpus),
        ran("s", "single", SINGLE.fields["threads"], **cpus),
    ]
    run_dir = outcome_run(tmp_path, loads)
    found = thread_models(read_story([run_dir]))
    assert found is not None
    assert found.time_sharing.startswith("1 of 2 thread models ran more")
    assert "time-sharing and not scaling" in found.time_sharing
    write_report(read_story([run_dir]), run_dir / "report")
    for name in ("index.html", "report.md"):
        told = (run_dir / "report" / name).read_text(encoding="utf-8")
        assert "time-sharing and not scaling" in told.replace("\\", "")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"sut.ring_size": 4000}, "sut.ring_size"),
        ({"sut.rules": "et.rules"}, "sut.rules"),
        ({"load.trace": "b.pcap"}, "load.trace"),
        ({"sut.threads": 2, "cell": "x"}, ""),
        ({"limits.cpus": "0-3"}, ""),
    ],
)
def test_cells_that_differ_in_more_than_threads_are_named(
    tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    given = {"limits.cpus": "0-1"} if "limits.cpus" in other else {}
    one = replace(SINGLE, cell={"cell": "w1", "sut.threads": 1, **given})
    one = replace(one, fields={**one.fields, "effective": {"runmode": "workers"}})
    two = replace(WORKERS, cell={"cell": "w2", "sut.threads": 2, **other})
    run_dir = outcome_run(tmp_path, [one, two])
    found = thread_models(read_story([run_dir]))
    assert found is not None
    assert [words.rpartition(" ")[2] for words in found.not_compared] == ([named] if named else [])
    write_report(read_story([run_dir]), run_dir / "report")
    page = (run_dir / "report" / "index.html").read_text(encoding="utf-8")
    assert ("no other cell differs in threads alone" in page) is bool(named)
