"""A node without the job that an experiment needs, because an older Rust built it."""

import os
from pathlib import Path

import pytest

from nodrop.testbed.hosts.node import ENVIRONMENT, job_lacking
from nodrop.testbed.load.attach import Attach

SAYS = "nodrop-node: this node has neither: it was built by Rust 1.85.0, and they take 1.88"


@pytest.mark.parametrize(
    ("does", "words"),
    [(f"echo '{SAYS}' >&2; exit 2", SAYS), ('read -r x; echo \'{"type":"hello"}\'', "")],
)
def test_a_load_says_what_its_node_lacks(
    does: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\n{does}\n")
    node.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT, str(node))
    assert job_lacking("attach").startswith(words)
    problems = Attach({"rate": 400, "count": 1}, base=Path()).problems()
    assert [problem.startswith(words) for problem in problems] == [True] * bool(words)


def test_no_node_at_all_is_said_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "/nowhere")
    assert job_lacking("attach") == ""


def test_a_node_that_does_not_answer_lacks_nothing_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.write_text("#!/nowhere/at/all\n")
    node.chmod(0o755)
    monkeypatch.setattr("nodrop.testbed.hosts.node.find_node_binary", lambda: node)
    assert job_lacking("attach") == "", "it cannot be started"
    node.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("nodrop.testbed.hosts.node.ANSWERS_WITHIN_S", 0.2)
    os.utime(node, (1, 1))
    assert job_lacking("attach") == "", "it is silent"
