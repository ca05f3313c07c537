"""A node that does not begin is asked about traces once a minute; one that answers, each time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.protocol import PROTOCOL
from nodrop.testbed.hosts import node as binary
from nodrop.testbed.load import trace as traces
from nodrop.testbed.load.replay import Replay

SCRIPTS = [
    "yes nonsense; true",
    """echo '{"type": "hello", "protocol": 99}'""",
    """echo '{"type": "ready"}'""",
    "exit 1",
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("questions", [2, 5])
def test_the_first_refusal_ends_all_questions(
    tmp_path: Path, script: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = speechless(tmp_path, script, monkeypatch)
    said = set()
    for number in range(questions):
        with pytest.raises(LabProblem) as caught:
            facts(tmp_path, number)
        said.add(caught.value.message)
    assert len(said) == 1
    assert asked.read_text().count("once") == 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_minute_later_it_is_asked_again(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = speechless(tmp_path, script, monkeypatch)
    now = [1000.0]
    monkeypatch.setattr(traces, "monotonic", lambda: now[0])
    for number, later_s in enumerate([0.0, 59.0, 2.0, 61.0, 1.0]):
        now[0] += later_s
        with pytest.raises(LabProblem):
            facts(tmp_path, number)
    assert asked.read_text().count("once") == 3


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_one_that_refuses_a_trace_is_asked_about_the_next(
    tmp_path: Path, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = {"type": "hello", "protocol": PROTOCOL, "version": "1", "job": "trace", "pid": 7}
    error = {"type": "error", "kind": "trace", "message": "is no capture", "hint": None}
    script = (
        'if [ "$2" = prepare ]; then echo "is no capture" >&2; exit 2; fi; '
        f"echo '{json.dumps(hello)}'; read spec; echo '{json.dumps(error)}'; exit 1"
    )
    asked = speechless(tmp_path, script, monkeypatch)
    for number in range(questions):
        with pytest.raises(BadInput, match=r"^load\.trace: is no capture"):
            facts(tmp_path, number)
    assert asked.read_text().count("once") == questions + 1, "and once whether it is a node"


def speechless(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    asked, node = tmp_path / "asked", tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho once >> {asked}\n{script}\n")
    node.chmod(0o755)
    monkeypatch.setenv(binary.ENVIRONMENT, str(node))
    return asked


def facts(tmp_path: Path, number: int) -> None:
    trace = tmp_path / f"{number}.pcap"
    trace.write_bytes(b"whatever")
    Replay({"trace": str(trace)}, base=Path()).trace_facts()
