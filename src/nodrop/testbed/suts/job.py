"""A node job that is the SUT, as a process that is watched and ended like any other."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from nodrop.testbed.hosts.api import AnyJob, Host, HostProcess
from nodrop.testbed.setups.contained import LocalView


class JobProcess(LocalView):
    """A `Process` over the node job, which speaks through its pipes and writes no files."""

    work = stdout = stderr = Path(os.devnull)

    def __init__(self, near: Host, host: Host, job: AnyJob, launched_mono_ns: int) -> None:
        """`host`: whose kernel runs it, `near` or a guest there."""
        self._host = host
        self._job = job
        self._closed = False
        self._closing = threading.Lock()
        self.root = HostProcess(near, job.pid)
        self._handle = os.pidfd_open(job.pid)
        self.launched_mono_ns = launched_mono_ns

    def inside(self) -> HostProcess | None:
        return self.root if self._host.here else HostProcess(self._host, self._job.far_pid)

    def poll(self) -> int | None:
        # As a Popen's, a look that sees the end takes it: whoever sees it stops nothing any more,
        # and the pipes of a job that was killed would stay open.
        if not self._closed and self._job.ended():
            self.stop(timeout_s=0)
        return 0 if self._closed else None

    def signal(self, number: int) -> None:
        # In a container it is no child of ours: when it has ended, its PID may be another's.
        with self._closing, suppress(ProcessLookupError):
            if not self._closed:
                signal.pidfd_send_signal(self._handle, number)

    def stop(self, *, timeout_s: float) -> int:
        del timeout_s  # closing has a grace period of its own
        self._job.close()
        with self._closing:  # several threads look whether it ended
            if not self._closed:
                self._closed = True
                os.close(self._handle)
        return 0
