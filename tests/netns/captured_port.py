"""A port that two programs capture on, in namespaces of its own (`unshare --net --mount`): one with
two rings as small as Suricata's default, one beside it.

Answers each line of stdin: an empty one with the state of the host, as a hash; a number when so
many packets were sent to the port; `counted` with what its own sockets say, which sets their
counters to zero."""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from kernel_reassembly import ETH_P_ALL, FANOUT_HASH, PACKET_FANOUT, SOL_PACKET, make_link
from ring import PACKET_RX_RING, PACKET_VERSION

PR_SET_NAME, TPACKET_V3, PACKET_STATISTICS = 15, 2, 6
BLOCKS, BLOCK_BYTES, FRAME_BYTES, RETIRE_MS = 13, 1 << 17, 1 << 11, 10
STATE = (
    "ethtool -k drx", "ethtool -k dtx", "ethtool -l drx", "ethtool -c drx", "ip -d link",
    "ss -0 -e -n", "cat /proc/net/ptype", "sysctl net.core", "sh -c 'cat /proc/modules; true'",
    "sh -c 'grep -r . /sys/class/net/drx/queues /sys/class/net/drx/flags; true'",
)  # fmt: skip

MAPPED: list[mmap.mmap] = []
"""Rings mapped by this process, their owner, where an onlooker reads them."""


def main() -> None:
    subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)
    make_link()
    subprocess.run(["ethtool", "-K", "drx", "gro", "on"], check=True)
    subprocess.run(["ip", "link", "set", "drx", "promisc", "on"], check=True)
    ours, theirs = os.pipe()
    beside = os.fork()
    named("sniffer" if beside == 0 else "Suricata-Main")
    held = [capture(ring=False)] if beside == 0 else [capture(ring=True) for _ in range(2)]
    if beside == 0:
        os.close(theirs)
        os.read(ours, 1)  # until the other one ends
        os._exit(0)
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind(("dtx", 0))
    for line in sys.stdin:
        if asked := line.strip():
            answer = counted(held) if asked == "counted" else sent(sender, int(asked))
        else:
            answer = state()
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
    assert len(held) == 2


def capture(*, ring: bool) -> socket.socket:
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    if ring:
        sink.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        frames = BLOCKS * BLOCK_BYTES // FRAME_BYTES
        sizes = (BLOCK_BYTES, BLOCKS, FRAME_BYTES, frames, RETIRE_MS, 0, 0)
        sink.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("=7I", *sizes))
        MAPPED.append(mmap.mmap(sink.fileno(), BLOCKS * BLOCK_BYTES))
    sink.bind(("drx", ETH_P_ALL))
    if ring:
        sink.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=I", 7 | FANOUT_HASH << 16))
    return sink


def sent(sender: socket.socket, packets: int) -> str:
    """Flows of a packet each, so that both rings have some."""
    head = bytes.fromhex("ffffffffffff020000000001080045000040000040004011000008080808 0a4d0002")
    for number in range(packets):
        udp = (1024 + number).to_bytes(2, "big") + bytes.fromhex("0035002c0000")
        sender.send(head + udp + bytes(36))
    return str(packets)


def counted(held: list[socket.socket]) -> str:
    """Packets, those dropped included, and drops of each."""
    said = (one.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12) for one in held)
    return json.dumps([struct.unpack_from("=II", one) for one in said])


def named(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def state() -> str:
    said = [
        subprocess.run(["sh", "-c", line], capture_output=True, check=False).stdout
        for line in STATE
    ]
    links = sorted(str(one) for one in Path("/sys/class/net").iterdir())
    return hashlib.sha256(b"\0".join([*said, *map(str.encode, links)])).hexdigest()


if __name__ == "__main__":
    main()
