"""An MME that the user runs: nodrop offers it the load, samples its process and never ends it."""

from __future__ import annotations

import ipaddress
import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from nodrop.config.options import Options, check
from nodrop.errors import TrialFailed
from nodrop.ledger.transactions import Latency, Messages
from nodrop.testbed.hosts.api import HostProcess, Json
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.hosts.sctp import sctp_lacking
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Env, Process
from nodrop.testbed.setups.contained import LocalView
from nodrop.testbed.suts.api import NOTHING_SAID, Drained, Readiness, SutCounters
from nodrop.testbed.suts.mme import SCTP_PREFIX, Mme

PROC = Path("/proc")
COMM_CHARACTERS = 15
"""Longest name that the kernel keeps of a process."""


def _address(text: str) -> str:
    host, _, port = text.removeprefix(SCTP_PREFIX).rpartition(":")
    try:
        ipaddress.IPv4Address(host)
        known = 0 < int(port) < 1 << 16
    except ValueError:
        known = False
    if not known:
        raise ValueError("must be an IPv4 address and a port, as sctp:10.0.0.5:36412")
    return text


class ExternalOptions(Options):
    address: Annotated[str, AfterValidator(_address)]
    """Address at which it listens: `sctp:10.0.0.5:36412`; without `sctp:`, framed TCP."""
    process: Annotated[str, Field(min_length=1)]
    """PID of the process to sample on this host, or a name that one process has."""


def found(process: str) -> Sequence[int]:
    """PIDs of this host's processes of that name; the number itself, if it is the PID of one."""
    if process.isdecimal():
        return [int(process)] if (PROC / process).exists() else []
    pids = []
    for folder in PROC.iterdir():
        try:
            name = (folder / "comm").read_text() if folder.name.isdecimal() else ""
        except OSError:
            continue  # it has just ended
        if name.rstrip("\n") == process[:COMM_CHARACTERS]:
            pids.append(int(folder.name))
    return sorted(pids)


class External(Mme):
    """A `Sut`."""

    name = "external"
    options: ExternalOptions

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(ExternalOptions, options, table="sut", base=base)

    def problems(self, bits: Bits | None) -> Sequence[str]:
        del bits
        why = [sctp_lacking()] if self.options.address.startswith(SCTP_PREFIX) else []
        if not is_root_of_the_host():
            why.append('sut.kind = "external": no normal user\'s lab reaches it; run as root')
        return [*filter(None, [*why, self._odd()])]

    def _odd(self) -> str:
        process = self.options.process
        pids = found(process)
        if len(pids) == 1:
            return ""
        how_many = (
            "no process" if not pids else f"{len(pids)} processes ({', '.join(map(str, pids))})"
        )
        return f"sut.process = {process!r}: {how_many} of this host; start it, or give its PID"

    def misplaced(self, setup: str, *, mtu: int | None, standing: bool) -> str:
        del mtu, standing  # it stands anyway
        if setup == "bare":
            return ""
        return (
            f'sut.kind = "external": not with setup.kind = "{setup}", which starts nothing of an '
            "MME that runs; leave it out"
        )

    def launch(self, env: Env) -> RunningExternal:
        if odd := self._odd():
            raise TrialFailed(odd)
        (pid,) = found(self.options.process)
        return RunningExternal(self.options, HostProcess(env.near, pid))


class ExternalProcess(LocalView):
    """A `Process` that is watched and never ended. It runs where the user started it."""

    work = stdout = stderr = Path(os.devnull)

    def __init__(self, root: HostProcess) -> None:
        self.root = root
        self.launched_mono_ns = time.monotonic_ns()
        self._handle = os.pidfd_open(root.pid)
        self._let_go = False

    def poll(self) -> int | None:
        ended = self._let_go or select.select([self._handle], [], [], 0)[0]
        return 0 if ended else None

    def signal(self, number: int) -> None:
        """Does nothing: the program is not ours to end."""

    def stop(self, *, timeout_s: float) -> int:
        del timeout_s
        if not self._let_go:
            self._let_go = True
            os.close(self._handle)
        return 0


class RunningExternal:
    """An `AnsweringSut`."""

    lies_outside = True
    messages: Messages | None = None
    round_trips: Mapping[str, Latency] = {}

    def __init__(self, options: ExternalOptions, root: HostProcess) -> None:
        self._options = options
        self.process: Process = ExternalProcess(root)

    def server(self, address: str) -> str:
        del address  # it has its own
        return self._options.address

    def wait_ready(self, *, timeout_s: float) -> Readiness:
        """The load says whether it listens."""
        del timeout_s
        return Readiness(ready_mono_ns=time.monotonic_ns(), phases_s={}, evidence={})

    def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
        del expected_packets, timeout_s
        if self.process.poll() is not None:
            raise TrialFailed(f"{self._options.process} ended while it was measured")
        return Drained(rested_mono_ns=time.monotonic_ns())

    def live(self) -> None:
        """Nothing: the program says nothing while it runs."""

    def counted(self) -> SutCounters:
        return NOTHING_SAID

    def mark(self) -> None:
        """Does nothing: the program counts nothing that we read."""

    def finish(self, *, timeout_s: float) -> SutCounters:
        self.process.stop(timeout_s=timeout_s)
        return NOTHING_SAID

    def facts(self) -> Json:
        return {"address": self._options.address, "pid": self.process.root.pid}
