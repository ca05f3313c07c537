"""Reassembly of a trace by this kernel's fanout defragmentation: run as root in a network namespace
of its own (`unshare --net`), writes one JSON object.

Arguments: a trace to send frame by frame, or `--replay` and the argv of a replay into dtx.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from ring import SOL_PACKET, Ring

PACKET_FANOUT = 18
FANOUT_HASH = 0
FANOUT_FLAG_DEFRAG = 0x8000
ETH_P_ALL = 3
ETH_P_LOCAL = 0x88B5
"""Local experimental EtherType: ends the stream at each socket."""
DEADLINE_S = 20.0


def main() -> None:
    make_link()
    rings = [open_ring("drx", group=7) for _ in range(2)]
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind(("dtx", 0))
    before = counters()
    if sys.argv[1] == "--replay":
        done = subprocess.run(sys.argv[2:], check=True, capture_output=True, timeout=60)
        assert json.loads(done.stdout)["unsent_packets"] == 0, done.stdout
    else:
        for frame in read_pcap(Path(sys.argv[1])):
            sender.send(frame)
    seen = count(sender, rings)
    after = counters()
    counted = {"seen": seen, **queues()} | {name: after[name] - before[name] for name in after}
    sys.stdout.write(json.dumps(counted))


def make_link() -> None:
    def run(line: str) -> None:
        subprocess.run(line.split(), check=True, timeout=10)

    for key in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{key}/disable_ipv6").write_text("1")
    run("ip link add dtx type veth peer name drx")
    for port in ("dtx", "drx"):
        run(f"ip link set {port} mtu 9000 arp off up")


def open_ring(port: str, *, group: int) -> Ring:
    """A ring whose slots are shorter than the frames: the kernel cuts the frames there."""
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    ring = Ring(sink, slots=1 << 19, slot_bytes=256)
    sink.bind((port, ETH_P_ALL))
    fanout = group | (FANOUT_HASH | FANOUT_FLAG_DEFRAG) << 16
    sink.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=I", fanout))
    return ring


def count(sender: socket.socket, rings: list[Ring]) -> int:
    """A marker behind the frames says that all have arrived: a veth keeps the order of a sender.
    The hash may put it into another ring than the frames, so all are read dry after it."""
    marker = bytes(12) + struct.pack("!H", ETH_P_LOCAL) + bytes(46)
    sender.send(marker)
    deadline = time.monotonic() + DEADLINE_S
    seen, ended = 0, False
    while not ended:
        if time.monotonic() > deadline:
            raise TimeoutError("the marker did not arrive")
        for ring in rings:
            found, marked = read_dry(ring)
            seen, ended = seen + found, ended or marked
    seen += sum(read_dry(ring)[0] for ring in rings)
    assert [ring.dropped() for ring in rings] == [0] * len(rings)
    return seen


def read_dry(ring: Ring) -> tuple[int, bool]:
    """Frames that came, and whether the marker was among them."""
    seen, marked = 0, False
    while frame := ring.read(wait_s=0 if marked else 0.01):
        if frame.ethertype == ETH_P_LOCAL:
            marked = True
        elif frame.kind != socket.PACKET_OUTGOING:
            seen += 1
    return seen, marked


def counters() -> dict[str, int]:
    ip = table("/proc/net/snmp", "Ip")
    extended = table("/proc/net/netstat", "IpExt")
    names = ("ReasmReqds", "ReasmOKs", "ReasmFails")
    return {name: ip[name] for name in names} | {"ReasmOverlaps": extended["ReasmOverlaps"]}


def table(path: str, name: str) -> dict[str, int]:
    rows = [row.split() for row in Path(path).read_text().splitlines()]
    names, values = [row[1:] for row in rows if row[0] == f"{name}:"]
    return dict(zip(names, map(int, values), strict=True))


def queues() -> dict[str, int]:
    found = re.search(r"FRAG: inuse (\d+) memory (\d+)", Path("/proc/net/sockstat").read_text())
    assert found
    return {"queues": int(found[1]), "memory": int(found[2])}


def read_pcap(path: Path) -> list[bytes]:
    data, at, frames = path.read_bytes(), 24, []
    while at < len(data):
        (captured,) = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16 : at + 16 + captured])
        at += 16 + captured
    return frames


if __name__ == "__main__":
    main()
