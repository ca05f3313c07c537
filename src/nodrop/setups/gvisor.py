"""gVisor: known, and refused with its reason, because its kernel cannot capture as an IDS does.

runsc's own network stack has packet sockets without receive rings (PACKET_RX_RING; gVisor issue
6699), and Suricata and libpcap capture through nothing else. What a gVisor costs in CPU alone can
be measured by reading a trace offline, which needs no NIC and no ledger, and is not built here.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodrop.config.options import Options, check
from nodrop.errors import LabProblem
from nodrop.hosts.seam import Link, UndoJournal
from nodrop.images.bits import Bits
from nodrop.ledger.places import Place
from nodrop.setups.limits import cpu_problems, host_cpus, memory_problems
from nodrop.setups.seam import Env, Limits, Setup

WHY = (
    "setup gvisor cannot capture: gVisor has no AF_PACKET ring (PACKET_RX_RING), through which "
    "Suricata and libpcap read packets; use docker or oci"
)


class Gvisor:
    """A Setup (setups/seam.py)."""

    name = "gvisor"
    places: Sequence[Place] = ()
    alone = ""
    heeds_cpus = True
    several_ports = False

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        check(Options, options or {}, table="setup", base=base)

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        del bits
        absent = "" if shutil.which("runsc") else " (and program runsc is missing)"
        return [WHY + absent, *memory_problems(limits), *cpu_problems(limits)]

    def cpus(self, limits: Limits) -> AbstractSet[int]:
        return host_cpus(limits)

    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> AbstractContextManager[Env]:
        del link, bits, limits, work, journal
        raise LabProblem(WHY)


if TYPE_CHECKING:  # plugins are cast to the seam: mypy holds this one to it here
    _SETUP: Setup = Gvisor()
