"""A process of the receiving host, seen from outside; its work folder is the controller's."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodrop.hosts.inside import Inside, look
from nodrop.hosts.seam import HostProcess
from nodrop.setups.seam import Proof, proof_of


class LocalView:
    """The looking half of a Process (setups/seam.py); launching and ending is the setup's."""

    root: HostProcess
    work: Path
    own_cgroup = False
    phases_s: Mapping[str, float] = {}
    quiet = False
    shown: Mapping[str, str] = {}
    """Name in the work folder → path as the program sees it, of the host's files it was shown."""

    def inside(self) -> HostProcess | None:
        return self.root

    def look(self) -> Inside | None:
        return look(self.root)

    def proof(self) -> Proof | None:
        return proof_of(self.root, self.shown)

    def fetch(self, name: str) -> Path:
        return self.work / name

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        return connect(self.work / name, timeout_s=timeout_s)

    def servants(self) -> Sequence[HostProcess]:
        return ()

    def cause_of_death(self) -> str | None:
        return None


def connect(path: Path, *, timeout_s: float) -> socket.socket:
    """To a Unix socket, however long its path: sun_path has 108 bytes, a descriptor has no path."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.settimeout(timeout_s)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            stream.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except BaseException:
        stream.close()
        raise
    return stream
