"""What the kernel of a host says of processes there while a trial runs: CPU time, quotas, CPUs.

A process is a PID on a host; the host's node looks, never Python in a /proc of its own. One job
stays for all looks: another process twice a second would disturb what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodrop.hosts.seam import Host, NodeJob
from nodrop.protocol.events import ProcessUsage

LOOK_TIMEOUT_S = 10.0


class UsageProbe:
    """To be closed. PIDs are those that the host's node sees."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._job: NodeJob | None = None

    def look(self, pids: Iterable[int]) -> Mapping[int, ProcessUsage]:
        """Of those that live now."""
        asked = sorted(set(pids))
        spec = {"job": "probe", "what": ["usage"], "pids": asked, "again": True}
        if self._job is None:
            self._job = self._host.job(spec, timeout_s=LOOK_TIMEOUT_S)
        else:
            self._job.again(spec, timeout_s=LOOK_TIMEOUT_S)
        said: Mapping[str, ProcessUsage | None]
        said = self._job.result(timeout_s=LOOK_TIMEOUT_S)["usage"]
        return {pid: one for pid in asked if (one := said.get(str(pid))) is not None}

    def allowed_cpus(self, pids: Iterable[int]) -> frozenset[int]:
        """On which any of their threads may run; cpusets are in it. Those of that host."""
        return frozenset(cpu for one in self.look(pids).values() for cpu in one["allowed_cpus"])

    def close(self) -> None:
        if self._job is not None:
            self._job.close()
