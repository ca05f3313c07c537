"""Samples of a guest's usage as its own kernel counts it: taken inside, spooled there, fetched
afterwards.

No sample goes over the line while traffic runs. The guest's CPU time is the emulator's time on
this host, so the two are shown beside each other and never added.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from nodrop.errors import LabProblem
from nodrop.hosts.guest import GuestHost
from nodrop.hosts.seam import SampleJob
from nodrop.protocol.events import SampleResult

INTERVAL_MS = 100
NOT_READ = {"links": 0, "load": 0, "disks": 0, "swap": 0}
"""The sampler's usual sources that are left out: every one is time that an emulated guest does not
have."""
RESULT_TIMEOUT_S = 30.0
"""An emulated guest that still works off its queue answers slowly."""


class GuestSamples:
    """A SamplesInside (setups/seam.py): a `sample` job, running from now on."""

    def __init__(self, host: GuestHost, *, pids: Sequence[int], spool: str) -> None:
        self.clock_offset_ns = host.clock_offset_ns
        self._host = host
        self._spool = spool
        self._job: SampleJob = host.job(
            {
                "job": "sample",
                "interval_ms": INTERVAL_MS,
                "every": NOT_READ,
                "pids": list(pids),
                "path": spool,
            }
        )
        self._job.start()
        self._await_first_row()

    def _await_first_row(self) -> None:
        """The load comes next, and what is used before the first row is in no figure."""
        deadline = time.monotonic() + RESULT_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                if b"\n" in self._host.read_file(self._spool):
                    return
        self._job.close()
        raise LabProblem(f"the guest's sampler wrote nothing within {RESULT_TIMEOUT_S:.0f} s")

    def finish(self) -> tuple[SampleResult, bytes]:
        self._job.stop()
        said = self._job.result(timeout_s=RESULT_TIMEOUT_S)
        return said, self._host.read_file(self._spool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()
