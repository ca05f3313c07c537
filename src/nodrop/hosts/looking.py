"""One probe job of a host that stays, and answers all looks: a process for each would cost 5 ms
here, and a conversation over ssh elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from nodrop.errors import NodeDied
from nodrop.hosts.rights import LOOKS
from nodrop.hosts.seam import AnyJob, ProbeJob
from nodrop.protocol.events import ProbeResult


class Jobs(Protocol):
    """The part of a Host (hosts/seam.py) that is needed here."""

    def job(self, spec: Mapping[str, Any], *, timeout_s: float = 30) -> AnyJob: ...


class Looking:
    """The looks of one host, from any thread. To be closed."""

    def __init__(self, host: Jobs) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._probe: ProbeJob | None = None

    def probe(
        self,
        *what: str,
        ports: Sequence[str],
        pids: Sequence[int],
        files: Sequence[str],
        timeout_s: float,
    ) -> ProbeResult:
        """`Host.probe`."""
        spec = {
            "job": "probe",
            "what": list(what),
            "ports": list(ports),
            "pids": list(pids),
            "files": list(files),
        }
        # Others try something out, each in a process of its own.
        if LOOKS.issuperset(what):
            return self._look({**spec, "again": True}, timeout_s)
        job: ProbeJob = self._host.job(spec, timeout_s=timeout_s)
        with closing(job):
            return job.result(timeout_s=timeout_s)

    def close(self) -> None:
        """Ends the job that looks. The next look starts another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _look(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        with self._lock:
            try:
                return self._asked(spec, timeout_s)
            except NodeDied:  # its thread of ours has ended, or it was killed
                self._close()
                return self._asked(spec, timeout_s)

    def _asked(self, spec: Mapping[str, Any], timeout_s: float) -> ProbeResult:
        try:
            if self._probe is None:
                self._probe = self._host.job(spec, timeout_s=timeout_s)
            else:
                self._probe.again(spec, timeout_s=timeout_s)
            return self._probe.result(timeout_s=timeout_s)
        except NodeDied:
            raise
        except BaseException:
            self._close()  # refused, late or interrupted: its next answer would be to this question
            raise
