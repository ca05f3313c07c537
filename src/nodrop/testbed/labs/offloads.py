"""Offloads of a port, turned off by ioctl: a program for hosts that lack ethtool.

It is run in the network namespace of the port, `python -IS offloads.py PORT`, so it imports nothing
of nodrop.
"""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
GSTRINGS, GSSET_INFO, SFEATURES = 0x1B, 0x37, 0x3B
FEATURES = 4
"""String set of the names of features; each takes 32 bytes."""
OFF = re.compile(
    r"rx-checksum|tx-checksum-.*|tx-scatter-gather.*|tx-tcp.*-segmentation"
    r"|tx-generic-segmentation|rx-gro"
)
"""Kernel's names of the features that ethtool calls rx, tx, sg, tso, gso and gro."""


def main() -> None:
    (port,) = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def ask(words: bytes) -> bytes:
            value = ctypes.create_string_buffer(words, len(words))
            request = struct.pack("16sP16x", port.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)
            return value.raw

        said = ask(struct.pack("=IIQI", GSSET_INFO, 0, 1 << FEATURES, 0))
        count = struct.unpack_from("=I", said, 16)[0]
        names = ask(struct.pack("=III", GSTRINGS, FEATURES, count) + bytes(32 * count))[12:]
        blocks = [0] * ((count + 31) // 32)
        for i in range(count):
            name = names[32 * i : 32 * (i + 1)].partition(b"\0")[0].decode(errors="replace")
            if OFF.fullmatch(name):
                blocks[i // 32] |= 1 << i % 32
        words = b"".join(struct.pack("=II", block, 0) for block in blocks)
        ask(struct.pack("=II", SFEATURES, len(blocks)) + words)


if __name__ == "__main__":
    main()
