"""Offloads of a port, turned off by ioctl: a program for hosts that lack ethtool.

It is run in the network namespace of the port, `python -IS offloads.py PORT`, so it imports nothing
of nodrop.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
OFF = {"gro": 0x2C, "gso": 0x24, "tso": 0x1F, "sg": 0x19, "tx": 0x17, "rx": 0x15}
"""Offload → its `ETHTOOL_S…` command, in an order that no other offload depends on."""


def main() -> None:
    (name,) = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFF.values():
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("16sP16x", name.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


if __name__ == "__main__":
    main()
