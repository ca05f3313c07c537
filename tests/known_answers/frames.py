"""Traces of a few known frames, and what is done to them on their way."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.faults import namespace

PORTS = {"snd": "ndtx0", "rcv": "ndrx0"}
TAKEN_PORT = 9
"""UDP port of the frames that a fault takes out."""
HEADERS = 14 + 20 + 8
MORE = 0x2000
DEADLINE_S = 20.0


def ip(
    payload: bytes, *, protocol: int = 17, id: int = 0, field: int = 0, source: int = 1
) -> bytes:
    """An Ethernet frame with an IPv4 packet between two hosts of 10/8."""
    total = 20 + len(payload)
    source_address, target = (10 << 24 | source).to_bytes(4), bytes([10, 255, 0, 1])
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, total, id, field, 64, protocol, 0, source_address, target
    )
    words = sum(struct.unpack("!10H", header))
    checksum = ~(words % 0xFFFF) & 0xFFFF
    header = header[:10] + struct.pack("!H", checksum) + header[12:]
    return bytes(5) + b"\x02" + bytes(5) + b"\x01" + b"\x08\x00" + header + payload


def datagram(length: int, port: int = 7) -> bytes:
    """A frame of this many bytes with UDP to `port`."""
    payload = length - HEADERS
    return ip(struct.pack("!HHHH", 1000, port, 8 + payload, 0) + bytes(payload))


def halves(
    count: int, *, size: int = 1000, sources: bool = True
) -> tuple[list[bytes], list[bytes]]:
    """The first fragments of so many datagrams, and the second ones; `sources`: each datagram has
    one of its own."""

    def fragment(number: int, offset: int, more: int) -> bytes:
        source = number if sources else 0
        return ip(bytes(size), id=number, field=more | offset // 8, source=1 + source)

    assert size % 8 == 0
    numbers = range(count)
    return [fragment(n, 0, MORE) for n in numbers], [fragment(n, size, 0) for n in numbers]


def write(path: Path, frames: Sequence[bytes], *, gaps_s: Sequence[float] = ()) -> Path:
    """A pcap of these frames, 0.1 ms apart; `gaps_s` come on top, spread evenly among them."""
    at_us = 0
    every = len(frames) // (len(gaps_s) + 1)
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for number, frame in enumerate(frames):
            if number and number % every == 0 and number // every <= len(gaps_s):
                at_us += int(gaps_s[number // every - 1] * 1e6)
            at = (1_700_000_000 + at_us // 1_000_000, at_us % 1_000_000)
            out.write(struct.pack("<IIII", *at, len(frame), len(frame)) + frame)
            at_us += 100
    return path


def inside(end: str, *argv: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", namespace(end), *argv],
        input=stdin, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def drop_on_the_way_out() -> None:
    """nft in front of the sender's port: send() answers ENOBUFS."""
    rules = f"""
table netdev fault {{
  chain out {{
    type filter hook egress device "{PORTS["snd"]}" priority 0; policy accept;
    udp dport {TAKEN_PORT} drop
  }}
}}
"""
    inside("snd", "nft", "-f", "-", stdin=rules)


def steal_on_the_way_out() -> None:
    """tc in front of the sender's port: the kernel takes the frame, and the port never has it."""
    port, taken = PORTS["snd"], f"{TAKEN_PORT:#x}"
    inside("snd", "ip", "link", "set", "lo", "up")
    inside("snd", "tc", "qdisc", "add", "dev", port, "clsact")
    inside(
        "snd", "tc", "filter", "add", "dev", port, "egress", "protocol", "ip", "u32",
        "match", "u16", taken, "0xffff", "at", "22",
        "action", "mirred", "egress", "redirect", "dev", "lo",
    )  # fmt: skip


def send(end: str, count: int, *, length: int = 60, past_the_taps: bool = False) -> None:
    """Frames that the generator does not send, out of one of the two ports."""
    program = f"""
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
if {past_the_taps}:
    s.setsockopt(263, 20, 1)  # PACKET_QDISC_BYPASS
s.bind(("{PORTS[end]}", 0))
for _ in range({count}):
    s.send({datagram(length)!r})
"""
    inside(end, sys.executable, "-c", program)


def receiver_down_for(packets: int) -> None:
    """Takes the receiving port down in the middle of the offer, for so many sends."""
    _until("rcv", "rx_packets", 100)
    inside("rcv", "ip", "link", "set", PORTS["rcv"], "down")
    _until("snd", "tx_dropped", packets)
    inside("rcv", "ip", "link", "set", PORTS["rcv"], "up")


def _until(end: str, counter: str, value: int) -> None:
    file = f"/sys/class/net/{PORTS[end]}/statistics/{counter}"
    deadline = time.monotonic() + DEADLINE_S
    # `ip netns exec` mounts the namespace's own sysfs.
    while int(inside(end, "cat", file)) < value:
        assert time.monotonic() < deadline, f"{counter} does not reach {value}"


@contextmanager
def thief() -> Iterator[list[subprocess.Popen[str]]]:
    """Joins the sink's fanout group and takes part of the SUT's packets; `steal()` starts
    it once the group is there."""
    started: list[subprocess.Popen[str]] = []
    try:
        yield started
    finally:
        for process in started:
            process.communicate(timeout=DEADLINE_S)


def steal(started: list[subprocess.Popen[str]]) -> None:
    found = re.search(r"fanout\(id:(\d+),", inside("rcv", "ss", "-0ne"))
    assert found, "the sink is in no fanout group"
    program = f"""
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("{PORTS["rcv"]}", 3))
s.setsockopt(263, 18, struct.pack("=I", {found[1]} | 0x8000 << 16))
print("joined", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        ["ip", "netns", "exec", namespace("rcv"), sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "joined\n"


def limit_reassembly(**settings: int) -> None:
    """Sets the receiver's namespace: `ipfrag_high_thresh=100_000`."""
    if "ipfrag_high_thresh" in settings:
        settings = {"ipfrag_low_thresh": settings["ipfrag_high_thresh"], **settings}
    inside("rcv", "sysctl", "-qw", *(f"net.ipv4.{name}={n}" for name, n in settings.items()))
