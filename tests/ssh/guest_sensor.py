"""Stand-in for a Suricata at eth1 of a guest, until it is killed.

So many sockets with rings of TPACKET_V3 in a fanout group, as its arguments say (name=value).
"""

import ctypes
import os
import signal
import socket
import struct
import sys
from pathlib import Path

SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, PACKET_FANOUT = 263, 5, 10, 18
EVERY_PROTOCOL, TPACKET_V3 = 3, 2
BLOCK_BYTES, FRAME_BYTES = 1 << 15, 1 << 11


def main() -> None:
    asked = {"sockets": 1, "blocks": 32, "kind": 0, "group": 7}
    asked |= {name: int(value) for name, value in (word.split("=") for word in sys.argv[2:])}
    if os.fork():
        return
    os.setsid()
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
    held = [opened(asked) for _ in range(asked["sockets"])]
    with Path("/run/sensor.pid").open("a") as file:
        file.write(f"{os.getpid()}\n")
    for number in (0, 1, 2):
        os.close(number)
    while held:
        signal.pause()


def opened(asked: dict[str, int]) -> socket.socket:
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
    if blocks := asked["blocks"]:
        one.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        frames = blocks * BLOCK_BYTES // FRAME_BYTES
        sizes = (BLOCK_BYTES, blocks, FRAME_BYTES, frames, 10, 0, 0)
        one.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("=7I", *sizes))
    one.bind(("eth1", EVERY_PROTOCOL))
    if group := asked["group"]:
        one.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=I", group | asked["kind"] << 16))
    return one


main()
