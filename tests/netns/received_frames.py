"""Runs a replay into dtx, in a network namespace of its own (`unshare --net`), and writes in
hexadecimal what arrives at drx, a frame per line, and at last whether a port merges packets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

from kernel_reassembly import DEADLINE_S, ETH_P_ALL, ETH_P_LOCAL, make_link
from ring import Ring


def main() -> None:
    make_link()
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    ring = Ring(sink, slots=1 << 14, slot_bytes=2048)
    sink.bind(("drx", ETH_P_ALL))
    before = offloads()
    done = subprocess.run(sys.argv[1:], check=True, capture_output=True, timeout=60)
    assert json.loads(done.stdout)["unsent_packets"] == 0, done.stdout
    sys.stdout.writelines(f"{frame.hex()}\n" for frame in received(ring))
    assert offloads() == before


def received(ring: Ring) -> Iterator[bytes]:
    """Up to a marker that is sent behind the frames: a veth keeps the order of a sender."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind(("dtx", 0))
    sender.send(bytes(12) + ETH_P_LOCAL.to_bytes(2, "big") + bytes(46))
    while frame := ring.read(wait_s=DEADLINE_S):
        if frame.ethertype == ETH_P_LOCAL:
            assert ring.dropped() == 0
            return
        yield frame.captured
    raise TimeoutError("the marker did not arrive")


def offloads() -> list[str]:
    return [
        subprocess.run(["ethtool", "-k", port], check=True, capture_output=True, text=True).stdout
        for port in ("dtx", "drx")
    ]


if __name__ == "__main__":
    main()
