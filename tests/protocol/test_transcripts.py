"""The golden transcripts, with Python as the node and the real controller side against it."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeDied, NodeRefused
from nodrop.testbed.hosts.node import NodeProcess, start_job
from tests import fake_node

DEADLINE_S = 20.0
TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.jsonl"))


def lines_of(transcript: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript.read_text().splitlines()]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_controller_understands_every_line(transcript: Path) -> None:
    about, *lines = lines_of(transcript)
    job = NodeProcess(
        fake_node.player(transcript), {"job": about["job"]}, env=os.environ, where="here"
    )
    samples: list[Any] = []
    with closing(job):
        for line in lines:
            match line:
                case {"noise": _}:
                    pass
                case {"controller": str(words)}:
                    _say_raw(job, words)
                case {"controller": message}:
                    job._send(message)
                case {"controller_closes": _}:
                    assert job._process.stdin is not None
                    job._process.stdin.close()
                case {"node": {"type": "sample"} as event}:
                    samples.append(event)
                    _wait_for_samples(job, len(samples))
                case {"node": {"type": "error"} as event}:
                    with pytest.raises(NodeRefused) as refused:
                        job._expect("result", DEADLINE_S)
                    assert refused.value.said == event["message"]
                    assert (refused.value.kind, refused.value.hint) == (
                        event["kind"],
                        event["hint"],
                    )
                case {"node": event}:
                    assert job._expect(event["type"], DEADLINE_S) == event
                case {"exit": status}:
                    with pytest.raises(NodeDied, match=f"exit status {status}"):
                        job._expect("result", DEADLINE_S)
        assert job.samples() == samples


def test_a_whole_run_by_the_public_words() -> None:
    """From start_job to result, the bytes are the transcript's."""
    transcript = Path(__file__).parent / "noise-before-hello.jsonl"
    lines = lines_of(transcript)
    spec = next(line["controller"] for line in lines if "controller" in line)
    started = start_job(
        fake_node.player(transcript),
        {key: value for key, value in spec.items() if key != "type"},
        env=os.environ,
        where="here",
        timeout_s=DEADLINE_S,
    )
    with closing(started) as job:
        assert job.ready["type"] == "ready"
        job._send({"type": "start"})
        _wait_for_samples(job, 1)
        job.stop()
        assert job.result(timeout_s=DEADLINE_S) == lines[-2]["node"]


def _say_raw(job: NodeProcess, words: str) -> None:
    assert job._process.stdin is not None
    job._process.stdin.write(words.encode() + b"\n")
    job._process.stdin.flush()


def _wait_for_samples(job: NodeProcess, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(job.samples()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)
