"""The node binary is found, or every place tried is named."""

import os
from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts import node


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/true\n")
    path.chmod(0o755)
    return path


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = executable(tmp_path / "node")
    monkeypatch.setenv("NODROP_NODE", str(path))
    assert node.find_node_binary() == path


def test_a_wrong_environment_is_an_error_not_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODROP_NODE", str(tmp_path))
    with pytest.raises(LabProblem, match="is not an executable file; unset NODROP_NODE"):
        node.find_node_binary()


def test_release_comes_before_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODROP_NODE", raising=False)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    executable(tmp_path / "debug" / "nodrop-node")
    release = executable(tmp_path / "release" / "nodrop-node")
    assert node.find_node_binary() == release


def test_a_node_of_an_older_build_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen after a pull without a build: "its ready makes no sense: has no copies"."""
    monkeypatch.delenv("NODROP_NODE", raising=False)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    os.utime(executable(tmp_path / "release" / "nodrop-node"), (1e9, 1e9))
    with pytest.raises(LabProblem, match=r"was built before schema/.* changed; run `make build`"):
        node.find_node_binary()


def test_every_place_tried_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODROP_NODE", raising=False)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    with pytest.raises(LabProblem) as caught:
        node.find_node_binary()
    tried = node.candidates()
    assert len(tried) == 8
    assert all(str(path) in caught.value.message for path in tried)


def test_a_far_host_of_another_machine_gets_another_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODROP_NODE", str(executable(tmp_path / "ours")))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    executable(tmp_path / "release" / "nodrop-node")
    with pytest.raises(LabProblem, match="no nodrop-node binary found for riscv64"):
        node.find_node_binary("riscv64")
    theirs = executable(tmp_path / "riscv64-unknown-linux-gnu/release/nodrop-node")
    assert node.find_node_binary("riscv64") == theirs


def test_the_hash_is_the_contents(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert node.file_sha256(tmp_path / "x").startswith("ba7816bf8f01cfea")
