"""A node that refuses to begin is asked about traces once by a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.hosts import binary
from nodrop.load.replay import Replay

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
    asked, node = tmp_path / "asked", tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho once >> {asked}\n{script}\n")
    node.chmod(0o755)
    monkeypatch.setenv(binary.ENVIRONMENT, str(node))
    said = set()
    for number in range(questions):
        trace = tmp_path / f"{number}.pcap"
        trace.write_bytes(b"whatever")
        with pytest.raises(LabProblem) as caught:
            Replay({"trace": str(trace)}, base=Path()).trace_facts()
        said.add(caught.value.message)
    assert len(said) == 1
    assert asked.read_text().count("once") == 1
