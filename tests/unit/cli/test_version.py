"""`nodrop --version`: what a report of a problem must name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import nodrop
from nodrop.cli.main import exit_code

ROOT = Path(__file__).parents[3]


def test_version_commit_and_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = tmp_path / "nodrop-node"
    node.write_text("#!/bin/sh\n")
    node.chmod(0o755)
    monkeypatch.setenv("NODROP_NODE", str(node))
    assert exit_code(["--version"]) == 0
    said = capsys.readouterr().out
    commit = r"([0-9a-f]{7,}(-dirty)?|unknown)"
    assert re.fullmatch(rf"nodrop \S+ \(commit {commit}, node [0-9a-f]{{12}} at {node}\)\n", said)
    monkeypatch.setenv("NODROP_NODE", str(tmp_path / "none"))
    assert exit_code(["--version"]) == 0
    assert capsys.readouterr().out.endswith(", no node)\n")


def test_all_parts_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert nodrop.__version__ == project == workspace
