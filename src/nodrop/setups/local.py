"""A process of the receiving host, seen from outside; its work folder is the controller's."""

from __future__ import annotations

import os
import socket
import struct
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
    """To a Unix socket, however long its path: sun_path has 108 bytes, a descriptor has no path.

    A listener that is busy accepts later: the kernel waits for that only if the connecting socket
    blocks, and otherwise says EAGAIN at once (unix_stream_connect, net/unix/af_unix.c).
    """
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            stream.connect(f"/proc/self/fd/{folder}/{path.name}")
        except BlockingIOError:
            raise TimeoutError(f"no connection within {timeout_s:g} s") from None
        finally:
            os.close(folder)
        stream.settimeout(timeout_s)
    except BaseException:
        stream.close()
        raise
    return stream


def _timeval(seconds: float) -> bytes:
    """struct timeval of 64-bit hosts; 0 would mean for ever."""
    whole, part = divmod(max(1, round(seconds * 1e6)), 1_000_000)
    return struct.pack("ll", whole, part)
