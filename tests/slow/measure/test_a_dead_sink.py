"""A sink that died under its load is let go of as any other that ends."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.measure.packets import instances
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.suts.job import JobProcess
from nodrop.testbed.suts.sink import Sink


def open_files() -> set[Path]:
    """Open files of this process; the folder that is read for it is closed again."""
    return {file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_no_pipe_of_a_dead_sink_stays_open(number: signal.Signals, looks: int) -> None:
    before = open_files()
    host = LocalHost(name="here", node=find_node_binary(), label="test")
    # A job that needs no root and stays: to its owner it is as the sink.
    job: Any = host.job({"job": "probe", "what": ["account"], "pids": [], "again": True})
    process = JobProcess(host, host, job, time.monotonic_ns())
    sut: Any = SimpleNamespace(launch=lambda _env: SimpleNamespace(process=process))
    env: Any = None
    with ExitStack() as stack:
        instances.launch(sut, [env], stack)
        os.kill(job.pid, number)
        deadline = time.monotonic() + 10
        while not job.ended():  # the signal is on its way
            assert time.monotonic() < deadline
        for _ in range(looks):
            assert process.poll() is not None
    assert open_files() <= before
    assert process.stop(timeout_s=1) == 0  # once more is no error


def test_a_sink_that_is_gone_before_it_is_taken_leaves_nothing() -> None:
    before = open_files()
    host = LocalHost(name="here", node=find_node_binary(), label="test")
    job: Any = host.job({"job": "probe", "what": ["account"], "pids": [], "again": True})
    os.kill(job.pid, signal.SIGKILL)
    os.waitid(os.P_PID, job.pid, os.WEXITED)  # reaped: its PID is nobody's
    env: Any = SimpleNamespace(
        job=lambda _spec: job, capture_interfaces=["lo"], near=host, host=host
    )
    with pytest.raises(ProcessLookupError):
        Sink({"kind": "sink"}, base=Path()).launch(env)
    assert open_files() <= before
