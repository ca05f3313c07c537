"""A host's node looks at processes there, by one job that stays."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.api import HostProcess
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.processes import cpu_s, look, usage

NOBODY = 2**22 + 1
"""PID beyond the largest one."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHost]:
    jobs: list[Any] = []
    start = LocalHost.job

    def job(self: LocalHost, *args: Any, **more: Any) -> Any:
        jobs.append(start(self, *args, **more))
        return jobs[-1]

    monkeypatch.setattr(LocalHost, "job", job)
    with LocalHost(name="here", node=find_node_binary(), label="test") as host:
        host.jobs = jobs  # type: ignore[attr-defined]
        yield host
    assert all(job.ended() for job in jobs)


def started(host: LocalHost) -> int:
    return len(host.jobs)  # type: ignore[attr-defined]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_many_looks_are_one_job(host: LocalHost, sleeper: subprocess.Popen[bytes]) -> None:
    """Another process at each look would disturb what is measured."""
    process = HostProcess(host, sleeper.pid)
    for _ in range(20):
        seen = look(process)
        assert seen is not None and not seen.stopped and seen.threads
        assert usage([process]).keys() == {process}
        host.probe("counters")
    assert started(host) == 1


def test_what_is_gone_is_none(host: LocalHost, sleeper: subprocess.Popen[bytes]) -> None:
    for pid in (NOBODY, sleeper.pid):
        sleeper.kill()
        sleeper.wait()
        gone = HostProcess(host, pid)
        assert (look(gone), usage([gone]), cpu_s(gone)) == (None, {}, None)
    assert started(host) == 1


def test_a_process_that_is_stopped(host: LocalHost, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    process = HostProcess(host, sleeper.pid)
    while (seen := look(process)) is None or not seen.stopped:
        pass  # the signal is on its way
    assert seen.cpu_ns is None


def test_a_job_whose_thread_has_ended_is_started_anew(host: LocalHost) -> None:
    """The kernel ends a child with the thread of ours that started it."""
    host.close()
    thread = threading.Thread(target=lambda: host.probe("account"))
    thread.start()
    thread.join()
    assert host.probe("account")["account"] == {}
    assert host.probe("account", pids=[NOBODY])["account"] == {str(NOBODY): None}


@pytest.mark.parametrize("port", ["no-such-port", "x", "ndrx9"])
def test_what_is_refused_once_does_not_hurt_the_next(host: LocalHost, port: str) -> None:
    with pytest.raises(NodeRefused, match=port):
        host.probe("counters", ports=[port])
    lo = host.probe("counters", ports=[socket.if_indextoname(1)])
    assert lo["counters"]["links"].keys() == {socket.if_indextoname(1)}
