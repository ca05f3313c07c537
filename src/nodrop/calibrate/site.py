"""The site of a calibration: the lab, the setup, and the faults this host lets a user put in."""

from __future__ import annotations

import ctypes.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from nodrop import plugins
from nodrop.config.lab_file import LabSource
from nodrop.hosts.privileges import in_user_namespace

ON_THIS_KERNEL = frozenset({"bare", "docker", "oci"})
"""Setups whose SUT is a process of this host, with the receiver's port beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    lab: LabSource
    setup: str
    work: Path
    """For traces and runs."""
    cpus: tuple[int, ...]
    """CPUs that this process may use."""
    rootless: bool

    @classmethod
    def here(cls, lab: LabSource, setup: str, work: Path) -> Site:
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        return cls(lab=lab, setup=setup, work=work, cpus=cpus, rootless=in_user_namespace())

    @property
    def _ports(self) -> tuple[str, str]:
        return plugins.build_lab(self.lab).ports

    @property
    def tx(self) -> str:
        return self._ports[0]

    @property
    def rx(self) -> str:
        return self._ports[1]

    def no_filter(self) -> str:
        """Why nothing can be dropped on the sender's way out; "" if it can."""
        return "" if shutil.which("nft") else "program nft is missing (package nftables)"

    def no_xdp(self) -> str:
        if self.rootless:
            return "a normal user may attach no XDP program"
        return self.no_sut_process()

    def no_sut_process(self) -> str:
        """Why the SUT cannot be stopped, frozen or killed from here."""
        if self.setup in ON_THIS_KERNEL:
            return ""
        return f"with setup {self.setup} the SUT is no process of this host"

    def no_frozen_thread(self) -> str:
        if not ctypes.util.find_library("c"):
            return "no C library that ptrace(2) could be called through"
        return self.no_sut_process()

    def no_shared_cpu(self) -> str:
        if self.setup not in ON_THIS_KERNEL:
            return f"with setup {self.setup} the SUT's CPUs are not the sender's"
        return ""
