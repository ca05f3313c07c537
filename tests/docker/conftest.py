"""Whole runs in containers: as root, with the real Suricata image and a Docker daemon."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.images.image_cache import list_images
from nodrop.testbed.setups.docker_engine import DEFAULT_URL, DockerEngine, docker_problems
from tests.e2e.conftest import _patience, _root, real_trace, run

__all__ = ["_patience", "_root", "real_trace", "run"]

UP_TIMEOUT_S = 60.0


@pytest.fixture(scope="session", autouse=True)
def image(real_root: None) -> None:
    if not list_images("suricata"):
        pytest.skip("no image of suricata: run `nodrop image build suricata`")


@pytest.fixture(autouse=True)
def _sockets_closed() -> Iterator[None]:
    """The SDK easily leaves a socket to the garbage collector: this blames the test that did,
    not one that runs minutes later."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def docker(real_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon that answers: the one that is there, or one of our own."""
    if not docker_problems():
        yield os.environ.get("NODROP_DOCKER_HOST") or os.environ.get("DOCKER_HOST") or DEFAULT_URL
        return
    with private_daemon(tmp_path_factory.mktemp("docker")) as (url, _):
        os.environ["NODROP_DOCKER_HOST"] = url
        yield url
        del os.environ["NODROP_DOCKER_HOST"]


@contextmanager
def private_daemon(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A daemon with sockets and data of its own; nothing of the host's network is touched."""
    if shutil.which("dockerd") is None:
        pytest.skip("needs dockerd (apt-get install docker.io)")
    with TemporaryDirectory(prefix="dockerd-", ignore_cleanup_errors=True) as sockets:
        yield from _served(folder, Path(sockets))


def _served(folder: Path, sockets: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    socket = sockets / "docker.sock"
    process = _daemon(folder, socket)
    try:
        deadline = time.monotonic() + UP_TIMEOUT_S
        while not _answers(f"unix://{socket}"):
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text(errors="replace")[-800:]
                pytest.skip(f"dockerd does not start here: {said}")
            time.sleep(0.05)
        yield f"unix://{socket}", process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(UP_TIMEOUT_S)


def _daemon(folder: Path, socket: Path) -> subprocess.Popen[bytes]:
    # A socket's path has room for 107 bytes, and pytest's folders leave containerd too few of them.
    places = {
        "--data-root": folder / "data",
        "--exec-root": socket.with_name("exec"),
        "--pidfile": folder / "pid",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["dockerd", "-H", f"unix://{socket}", "--bridge=none", "--iptables=false",
             *(f"{option}={place}" for option, place in places.items())],
            stdout=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip


def _answers(url: str) -> bool:
    try:
        DockerEngine(url).close()
    except LabProblem:
        return False
    return True
