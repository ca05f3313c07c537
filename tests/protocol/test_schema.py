"""The types of the seam: node, committed schema and Python say the same; none changes unseen."""

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodrop import protocol as events
from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.node import find_node_binary, fit, start_job
from nodrop.untrusted.json_text import NotJson
from tests import fake_node
from tools import node_schema

COMMITTED = json.loads(node_schema.SCHEMA.read_text(encoding="utf-8"))
PICKLED = pickle.dumps(COMMITTED)
Schema = dict[str, Any]


def test_the_node_prints_the_committed_schema() -> None:
    said = subprocess.run([find_node_binary(), "schema"], capture_output=True, check=True).stdout
    assert json.loads(said) == COMMITTED
    jsonschema.Draft202012Validator.check_schema(COMMITTED)


def test_the_python_types_are_those_of_the_committed_schema() -> None:
    assert node_schema.TYPES.read_text(encoding="utf-8") == node_schema.python_of(COMMITTED)
    assert COMMITTED["protocol"] == events.PROTOCOL


def fields() -> Iterator[tuple[str, str]]:
    for name, of in COMMITTED["$defs"].items():
        yield from ((name, field) for field in of.get("properties", {}))


def changed(change: Callable[[Schema], None], *, protocol: int | None = None) -> list[str]:
    new = pickle.loads(PICKLED)
    new["protocol"] = protocol or new["protocol"]
    change(new)
    return list(node_schema.breaking(COMMITTED, new))


def test_no_field_goes_or_changes_without_a_new_number() -> None:
    """All at once, and each of them is named."""

    def go(new: Schema) -> None:
        for name, field in fields():
            del new["$defs"][name]["properties"][field]

    def change(new: Schema) -> None:
        for name, field in fields():
            new["$defs"][name]["properties"][field] = {"type": "array", "items": {}}

    assert sorted(changed(go)) == sorted(f"{name}.{field} is gone" for name, field in fields())
    assert sorted(changed(change)) == sorted(
        f"{name}.{field} is another type" for name, field in fields()
    )
    assert not changed(go, protocol=99)
    assert not changed(change, protocol=99)


def _must(name: str, field: str, *, add: bool) -> Callable[[Schema], None]:
    def change(new: Schema) -> None:
        required = new["$defs"][name].setdefault("required", [])
        required.append(field) if add else required.remove(field)

    return change


def _new_field(name: str, *, required: bool) -> Callable[[Schema], None]:
    def change(new: Schema) -> None:
        new["$defs"][name]["properties"]["colour"] = {"type": "string"}
        if required:
            new["$defs"][name].setdefault("required", []).append("colour")

    return change


def _drop(*path: str) -> Callable[[Schema], None]:
    def change(new: Schema) -> None:
        *way, last = path
        for part in way:
            new = new[part]
        del new[last]

    return change


def _word(name: str, words: list[str]) -> Callable[[Schema], None]:
    return lambda new: new["$defs"][name].update(enum=words)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_must("ReplaySpec", "seed", add=True), "ReplaySpec.seed must be there now"),
        (_new_field("SinkSpec", required=True), "SinkSpec.colour must be there now"),
        (_new_field("SinkSpec", required=False), None),
        (_must("SinkResult", "cpu_s", add=False), "SinkResult.cpu_s may be missing now"),
        (_must("LinkStats", "rx_packets", add=False), "LinkStats.rx_packets may be missing now"),
        (_must("SampleRow", "tree", add=True), None),
        (_new_field("ReplayReady", required=True), None),
        (_new_field("ThreadReading", required=False), None),
        (_word("Flows", ["distinct"]), "Flows is another type"),
        (_word("SpreadOver", ["flows", "copy", "chance"]), None),
        (_word("SpreadOver", ["copy", "chance"]), "SpreadOver is another type"),
        (_word("VmxSetting", ["no", "yes", "forced", "perhaps"]), "VmxSetting is another type"),
        (_drop("jobs", "sink", "sample"), "jobs.sink.sample is gone"),
        (_drop("jobs", "trace"), "jobs.trace is gone"),
        (_drop("every_job", "clock"), "every_job.clock is gone"),
        (_drop("$defs", "Xdp"), "Xdp is gone"),
    ],
)
def test_what_breaks_the_other_side_needs_a_new_number(
    change: Callable[[Schema], None], said: str | None
) -> None:
    assert changed(change) == ([] if said is None else [said])
    assert not changed(change, protocol=COMMITTED["protocol"] + 1)


READY = {"interval_ms": 100, "processes": 1, "threads": 3, "metrics": None}


def test_the_door_lets_through_what_fits_as_it_is() -> None:
    said = {"type": "ready", **READY, "of_a_newer_node": [1]}
    assert fit(events.SampleReady, said) is said


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"threads": "3"}, "threads: '3': Input should be a valid integer"),
        ({"threads": 3.5}, "threads: 3.5: Input should be a valid integer"),
        ({"threads": True}, "threads: True: Input should be a valid integer"),
        ({"processes": -1}, "processes: -1: Input should be greater than or equal to 0"),
        ({"processes": None}, "processes: None: Input should be a valid integer"),
        ({"metrics": {"a": 1}}, "metrics: {'a': 1}: Input should be a valid string"),
    ],
)
def test_the_door_names_the_field_that_does_not_fit(wrong: Schema, words: str) -> None:
    with pytest.raises(NotJson) as caught:
        fit(events.SampleReady, {**READY, **wrong})
    assert str(caught.value) == words


def test_the_door_names_the_field_that_is_missing_however_deep() -> None:
    row = {"mono_ns": 1, "real_ns": 1, "lateness_us": None, "cost_us": 0.5, "age_us": {}}
    fit(events.SampleRow, row)
    swap = {"in_bytes": 1, "out_bytes": 2}
    with pytest.raises(NotJson, match=r"^has no mono_ns$"):
        fit(events.SampleRow, {key: row[key] for key in row.keys() - {"mono_ns"}})
    with pytest.raises(NotJson, match=r"^has no swap\.major_faults$"):
        fit(events.SampleRow, {**row, "swap": swap})


@pytest.mark.parametrize(
    ("events_said", "words"),
    [
        (
            [{"type": "ready", **READY, "threads": "many"}],
            "its ready makes no sense: threads: 'man",
        ),
        ([{"type": "ready", **READY}, {"type": "result"}], "its result makes no sense: has no "),
        (
            [{"type": "ready", **READY}, {"type": "sample", "mono_ns": -1}],
            "its sample makes no sense: ",
        ),
    ],
    ids=["ready", "result", "sample"],
)
def test_a_node_that_says_something_else_is_one_error_with_its_source(
    tmp_path: Path, events_said: list[Schema], words: str
) -> None:
    hello = {"type": "hello", "protocol": 2, "version": "0", "job": "sample", "pid": 7}
    spec = {"type": "spec", "job": "sample"}
    lines = [{"node": hello}, {"controller": spec}, *({"node": said} for said in events_said)]
    transcript = tmp_path / "said.jsonl"
    transcript.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"exit": 0}]))
    with pytest.raises(NodeRefused) as caught:
        job = start_job(
            fake_node.player(transcript),
            {"job": "sample"},
            env=os.environ,
            where="rx",
            timeout_s=20,
        )
        with closing(job):
            job.result(timeout_s=20)
    assert f"node job 'sample' on rx: {words}" in str(caught.value)
    assert caught.value.kind == "protocol"
