"""The profiler beside a trial (`[measure] profile = true`): a `profile` job on the SUT's host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from nodrop.hosts.seam import AnyJob, HostProcess, Json
from nodrop.ledger.threads import Role

STOP_TIMEOUT_S = 30.0


def unseen(why: str) -> Json:
    """A profile without a sample."""
    return {
        "began_mono_ns": 0,
        "ended_mono_ns": 0,
        "own_cpu_ns": 0,
        "missing": [{"what": "functions", "why": why}],
        "functions": [],
        "stacks": [],
        "threads": [],
        "concurrency": None,
    }


class Profiling:
    """As a context manager it is ended on every way out. It has read all names when it is made."""

    def __init__(self, roots: Sequence[HostProcess], *, hardware: bool) -> None:
        pids = [process.pid for process in roots]
        spec: Json = {"job": "profile", "pids": pids, "hardware": hardware}
        self._job: AnyJob = roots[0].host.job(spec)

    def begin(self) -> None:
        self._job.start()

    def end(self, role: Callable[[str], Role | None]) -> Json:
        """What was seen since the beginning, each thread with its role."""
        self._job.stop()
        found: Json = dict(self._job.result(timeout_s=STOP_TIMEOUT_S))
        found.pop("type", None)
        for thread in found["threads"]:
            known = role(thread["name"])
            thread["role"] = None if known is None else str(known)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._job.close()
