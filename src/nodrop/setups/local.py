"""A process of this kernel, seen from outside: its /proc and its work folder are ours."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodrop.hosts.binary import file_sha256
from nodrop.hosts.inside import Inside, connect, look
from nodrop.setups.seam import Proof, rights_of


class LocalView:
    """The looking half of a Process (setups/seam.py); launching and ending is the setup's."""

    pid: int
    work: Path
    own_cgroup = False
    phases_s: Mapping[str, float] = {}
    quiet = False
    shown: Mapping[str, str] = {}
    """Name in the work folder → path as the program sees it, of the host's files it was shown."""

    def look(self) -> Inside | None:
        return look(self.pid)

    def proof(self) -> Proof | None:
        inside = Path(f"/proc/{self.pid}")
        try:
            return Proof(
                exe=str((inside / "exe").readlink()),
                # By the link, which leads to the very file that is mapped, whatever its name.
                exe_sha256=file_sha256(inside / "exe"),
                files={
                    name: file_sha256(inside / "root" / path.lstrip("/"))
                    for name, path in self.shown.items()
                },
                **rights_of((inside / "status").read_text(errors="replace")),
            )
        except (FileNotFoundError, ProcessLookupError):
            return None

    def fetch(self, name: str) -> Path:
        return self.work / name

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        return connect(self.work / name, timeout_s=timeout_s)

    def servants(self) -> Sequence[int]:
        return ()

    def cause_of_death(self) -> str | None:
        return None
