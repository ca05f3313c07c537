"""How a NIC spreads packets over its queues: hash key, table, function and fields, and flow rules.

By ioctl and not by the program ethtool, which shows tables that it cannot set.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Mapping

SIOCETHTOOL = 0x8946
GRSSH, SRSSH = 0x46, 0x47
"""struct ethtool_rxfh: `HEAD`, the table of u32, the key."""
HEAD = struct.Struct("=IIII8s")
"""Command, context (0: the port's own), entries of the table, bytes of the key, the function."""
GRXFH, SRXFH, GRXCLSRLCNT = 0x29, 0x2A, 0x2E
FIELDS = struct.Struct("=IIQ")
"""Command, kind of flow, fields that are hashed: the front of struct ethtool_rxnfc."""
RXNFC_BYTES, RULES_AT = 192, 184
FLOWS = {
    "tcp4": 1, "udp4": 2, "sctp4": 3, "tcp6": 5, "udp6": 6, "sctp6": 7, "ip4": 16, "ip6": 17
}  # fmt: skip
"""Kind of flow → the kernel's number. All but the last two are in the words of `ethtool -n PORT
rx-flow-hash`."""
RSS = "rss"


def shown(port: str) -> Mapping[str, str]:
    """`rss` and kinds of flows → hex. What the driver does not say is left out."""
    found = {name: read(port, name) for name in (RSS, *FLOWS)}
    return {name: said.hex() for name, said in found.items() if said}


def put_back(port: str, before: Mapping[str, str]) -> None:
    """Puts the settings back. One that the driver does not take stays otherwise: `shown` says
    so."""
    for name, said in before.items():
        value = bytes.fromhex(said)
        command = struct.pack("=I", SRSSH if name == RSS else SRXFH)
        ioctl(port, command + value[len(command) :])


def flow_rules(port: str) -> int:
    """How many were set (`ethtool -n PORT`); 0 if the driver has no such thing."""
    said = ioctl(port, struct.pack("=I", GRXCLSRLCNT), more=RXNFC_BYTES - 4)
    return 0 if said is None else int(struct.unpack_from("=I", said, RULES_AT)[0])


def read(port: str, name: str) -> bytes | None:
    """`rss`, or the fields of a kind of flow; None if the driver does not say it."""
    return _rss(port) if name == RSS else _fields(port, FLOWS[name])


def _rss(port: str) -> bytes | None:
    sizes = ioctl(port, HEAD.pack(GRSSH, 0, 0, 0, b""))
    if sizes is None:
        return None
    _, _, entries, key_bytes, _ = HEAD.unpack(sizes)
    asked = HEAD.pack(GRSSH, 0, entries, key_bytes, b"")
    return ioctl(port, asked, more=4 * entries + key_bytes)


def _fields(port: str, flow: int) -> bytes | None:
    return ioctl(port, FIELDS.pack(GRXFH, flow, 0))


def ioctl(port: str, asked: bytes, *, more: int = 0) -> bytes | None:
    """The answer, which may be longer; None if the driver has none."""
    try:
        return ask(port, asked, more=more)
    except OSError:
        return None


def ask(port: str, asked: bytes, *, more: int = 0) -> bytes:
    """OSError if the driver refuses."""
    length = len(asked) + more
    answer = ctypes.create_string_buffer(asked, max(length, RXNFC_BYTES))
    request = struct.pack("16sP16x", port.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    return answer.raw[:length]
