"""Runs of fleets against each other: each cell is held against the hosts that measured it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.main import exit_code
from nodrop.compare.history import ReadRun, history, read_run
from nodrop.compare.records import Side
from nodrop.compare.sides import must_be_facts, read_side
from nodrop.compare.versus import versus
from nodrop.errors import BadInput
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried

HOSTS = {"a": "s1", "b": "s2", "c": "s3"}


def pairs(hosts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "host": {"hostname": hosts[min(hosts)], "kernel": "6.1", "boot_id": "x"},
        "lab": {"kind": "netns", "name": min(hosts)},
        "fleet": {
            "pairs": {
                pair: {
                    "host": {"hostname": host, "kernel": "6.1", "boot_id": f"{host}'s"},
                    "lab": {"kind": "netns", "name": pair},
                }
                for pair, host in hosts.items()
            }
        },
    }


def fleet(
    out: Path, cells: Sequence[str | None], hosts: Mapping[str, str] = HOSTS, **more: Any
) -> Path:
    """A cell for each: the pairs that measured its trials, one letter each."""
    loads = [
        Load(
            cell={"load.pps": 1000 * number},
            trials=[0.0] * len(of or "------"),
            each={} if of is None else {r: {"pair": pair} for r, pair in enumerate(of, 1)},
        )
        for number, of in enumerate(cells, 1)
    ]
    return outcome_run(out, loads, manifest=pairs(hosts) | more)


def plain(out: Path, hostname: str) -> Path:
    loads = [Load(cell={"load.pps": 1000}, trials=[0.0] * 6)]
    host = {"hostname": hostname, "kernel": "6.1"}
    return outcome_run(out, loads, manifest={"host": host, "lab": {"kind": "netns"}})


def sides(*paths: Path) -> list[Side]:
    return [read_side(str(path)) for path in paths]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (["a"], ["b"], "host.hostname: s1 and s2"),
        (["a", "b"], ["b", "a"], "host.hostname: s1 and s2 (1,000 pps), s2 and s1 (2,000 pps)"),
        (["a", "b"], ["a", "c"], "host.hostname: s2 and s3 (2,000 pps)"),
        (["ab"], ["ac"], "host.hostname: s1, s2 and s1, s3"),
        (["ab"], ["a"], "host.hostname: s1, s2 and s1"),
    ],
)
def test_a_cell_that_other_hosts_measured_is_refused(
    tmp_path: Path, a: list[str], b: list[str], words: str
) -> None:
    found = sides(fleet(tmp_path / "a", a), fleet(tmp_path / "b", b))
    with pytest.raises(BadInput) as refused:
        versus(*found)
    said = str(refused.value).replace("\u202f", " ").replace("\u2009", " ")
    assert f" differ in {words}; if that is the point: --differs host.hostname" in said
    must_be_facts(["host"], found)
    assert any("s1" in words or "s2" in words for words in versus(*found, differs=["host"]).differs)


@pytest.mark.parametrize(
    ("a", "b"), [(["a", "b"], ["a", "b"]), (["ab"], ["ba"]), (["aab"], ["abb"])]
)
def test_the_same_hosts_are_compared(tmp_path: Path, a: list[str], b: list[str]) -> None:
    found = sides(fleet(tmp_path / "a", a), fleet(tmp_path / "b", b))
    assert versus(*found).differs == []


def test_pairs_of_one_name_on_other_machines_are_other_hosts(tmp_path: Path) -> None:
    """Their first pair, which the manifest's own `host` is of, is the same machine."""
    other = HOSTS | {"b": "t2"}
    found = sides(fleet(tmp_path / "a", ["a", "b"]), fleet(tmp_path / "b", ["a", "b"], other))
    with pytest.raises(BadInput, match=r"host.hostname: s2 and t2 \(2"):
        versus(*found)


def test_pairs_of_other_names_on_one_machine_are_one_host(tmp_path: Path) -> None:
    one = dict.fromkeys(HOSTS, "s1")
    found = sides(fleet(tmp_path / "a", ["a"], one), fleet(tmp_path / "b", ["c"], one))
    assert versus(*found).differs == []


@pytest.mark.parametrize(("hostname", "same"), [("s2", True), ("s1", False)])
def test_a_fleet_against_a_lab(tmp_path: Path, hostname: str, same: bool) -> None:
    """A fleet's manifest calls its first pair `host`, which measured nothing of this."""
    found = sides(fleet(tmp_path / "a", ["bbbbbb"]), plain(tmp_path / "b", hostname))
    if same:
        assert versus(*found).differs == []
        return
    with pytest.raises(BadInput, match=r"differ in host.hostname: s2 and s1; if"):
        versus(*found)


def test_a_pair_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    found = sides(fleet(tmp_path / "a", ["a"]), fleet(tmp_path / "b", ["z"]))
    with pytest.raises(BadInput, match="pair z, of which nothing is recorded"):
        versus(*found)


def test_void_trials_of_a_pair_are_of_no_host(tmp_path: Path) -> None:
    loads = [
        Load(
            cell={"load.pps": 1000}, trials=["late", 0.0], each={1: {"pair": "b"}, 2: {"pair": "a"}}
        )
    ]
    path = outcome_run(tmp_path / "a", loads, manifest=pairs(HOSTS))
    (cell,) = read_side(str(path)).cells
    assert cell.facts["host.hostname"] == ["s1"]


def test_cells_of_one_run_on_other_hosts(tmp_path: Path) -> None:
    path = fleet(tmp_path / "a", ["a", "b"])
    found = [read_side(f"{path}::load.pps={pps}") for pps in (1000, 2000)]
    with pytest.raises(BadInput, match=r"host\.hostname: s1 and s2"):
        versus(*found, differs=["load.pps"])


def test_a_baseline_keeps_the_hosts_of_each_cell(tmp_path: Path) -> None:
    out = tmp_path / "base.json"
    assert exit_code(["baseline", str(fleet(tmp_path / "a", ["a", "b"])), str(out)]) == 0
    other = fleet(tmp_path / "b", ["b", "a"])
    assert exit_code(["compare", str(out), str(other)]) == 2
    assert exit_code(["compare", str(out), str(other), "--differs", "host"]) == 6


def test_searches_on_other_hosts(tmp_path: Path) -> None:
    def searched(out: Path, pair: str) -> Path:
        loads = [tried(4.9, [0.0, 0.0]), tried(5, [0.3, 0.3])]
        on = [replace(one, fields={**one.fields, "pair": pair}) for one in loads]
        return outcome_search(out, on, search={"goals": [0]}, manifest=pairs(HOSTS))

    with pytest.raises(BadInput, match=r"host\.hostname: s1 and s2"):
        versus(*sides(searched(tmp_path / "a", "a"), searched(tmp_path / "b", "b")))


def in_a_row(out: Path, *cells: Sequence[str]) -> list[ReadRun]:
    """Runs of a history, a day each."""
    paths = [fleet(out / str(n), of) for n, of in enumerate(cells)]
    for n, path in enumerate(paths):
        manifest = json.loads((path / "manifest.json").read_text())
        told = manifest | {"started_utc": f"2026-11-2{n}"}
        (path / "manifest.json").write_text(json.dumps(told))
    return [read_run(path) for path in paths]


def test_a_history_is_of_the_same_hosts(tmp_path: Path) -> None:
    runs = in_a_row(tmp_path, ["a", "a"], ["a", "b"])
    with pytest.raises(BadInput, match=r"cannot stand in one line.*host.hostname: s1 and s2 \(2"):
        history(runs)
    found = history(runs, differs=["host"])
    assert "s1 → s2" in found.runs[1].changed[0]


def test_a_cell_that_the_first_run_has_not_stays_on_its_host_too(tmp_path: Path) -> None:
    history(in_a_row(tmp_path / "same", ["a"], ["a", "b"], ["a", "b"]))
    with pytest.raises(BadInput, match=r"host.hostname: s2 and s3 \(2"):
        history(in_a_row(tmp_path / "other", ["a"], ["a", "b"], ["a", "c"]))


SEEN: dict[str, Any] = {
    "kernel": "6.1", "mac": "02:00:00:00:00:01", "boot_id": "x", "network_namespace": "net:[1]",
    "node_copied": True, "mono_offset_ns": 3, "real_offset_ns": 4, "clock_bound_ns": 5,
    "clock_by": "round trip",
}  # fmt: skip


def over_ssh(out: Path, seen: Mapping[str, Any], *, of_a_fleet: bool) -> Path:
    lab = {"kind": "ssh", "name": "rack", "seen": {"sender gen1": {**SEEN, **seen}}}
    host = {"hostname": "s1", "kernel": "6.1"}
    pair = {"pair": "rack"} if of_a_fleet else {}
    fleet = {"fleet": {"pairs": {"rack": {"host": host, "lab": lab}}}} if of_a_fleet else {}
    loads = [Load(cell={"load.pps": 1000}, trials=[0.0] * 6, fields=pair)]
    return outcome_run(out, loads, manifest={"host": host, "lab": lab} | fleet)


@pytest.mark.parametrize("of_a_fleet", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "same"),
    [
        *((key, value, True) for key, value in (
            ("boot_id", "y"), ("network_namespace", "net:[2]"), ("node_copied", False),
            ("mono_offset_ns", -7), ("real_offset_ns", 9), ("clock_bound_ns", 11),
            ("clock_by", "TAI"),
        )),
        ("kernel", "6.2", False),
        ("mac", "02:00:00:00:00:02", False),
    ],
)  # fmt: skip
def test_two_runs_of_one_lab_over_ssh_are_of_one_lab(
    tmp_path: Path, key: str, value: Any, same: bool, of_a_fleet: bool
) -> None:
    """Its clocks and boots are others in each run. A NIC that is another is another host, if it
    has the same name."""
    found = sides(
        over_ssh(tmp_path / "a", {}, of_a_fleet=of_a_fleet),
        over_ssh(tmp_path / "b", {key: value}, of_a_fleet=of_a_fleet),
    )
    if same:
        assert versus(*found).differs == []
        return
    with pytest.raises(BadInput, match=rf"differ in lab\.seen\.sender gen1\.{key}: "):
        versus(*found)


@pytest.mark.parametrize("of_a_fleet", [False, True])
def test_labs_of_two_kinds_differ_in_a_few_lines(tmp_path: Path, of_a_fleet: bool) -> None:
    """Fields that only one of them has do not make fifty lines."""
    far = over_ssh(tmp_path / "far", {}, of_a_fleet=of_a_fleet)
    lab = {"kind": "netns", "name": "netns", "mtu": 9000, "ends": {"sender": "a", "receiver": "b"}}
    loads = [Load(cell={"load.pps": 1000}, trials=[0.0] * 6)]
    host = {"hostname": "s1", "kernel": "6.1"}
    near = outcome_run(tmp_path / "near", loads, manifest={"host": host, "lab": lab})
    a, b = sides(far, near)
    lines = [
        "lab: none recorded and 3 facts",
        "lab.kind: ssh and netns",
        "lab: 2 facts and none recorded",
    ]
    assert versus(a, b, differs=["lab"]).differs == lines
    with pytest.raises(BadInput) as no:
        versus(a, b)
    assert all(line in str(no.value) for line in lines)
    assert "--differs lab.kind" in str(no.value)


@pytest.mark.parametrize("of_a_fleet", [False, True])
@pytest.mark.parametrize(("key", "may"), [("kernel", True), ("governor", True), ("mac", False)])
def test_a_history_sees_what_a_kernel_of_a_far_host_does(
    tmp_path: Path, key: str, may: bool, of_a_fleet: bool
) -> None:
    runs = [
        read_run(over_ssh(tmp_path / name, {key: name}, of_a_fleet=of_a_fleet)) for name in "ab"
    ]
    if may:
        assert any("a → b" in words for words in history(runs).runs[1].changed)
        return
    with pytest.raises(BadInput, match="cannot stand in one line"):
        history(runs)


def test_a_history_over_a_new_kernel(tmp_path: Path) -> None:
    """A lab of namespaces names its kernel as well, which is the host's."""
    runs = []
    for kernel in ("6.1", "6.2"):
        loads = [Load(cell={"load.pps": 1000}, trials=[0.0] * 6)]
        told = {"host": {"kernel": kernel}, "lab": {"kind": "netns", "kernel": kernel}}
        runs.append(read_run(outcome_run(tmp_path / kernel, loads, manifest=told)))
    assert history(runs).runs[1].changed == ["host.kernel: 6.1 → 6.2"]
