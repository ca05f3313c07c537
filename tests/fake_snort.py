#!/usr/bin/env python3
"""A stand-in for Snort 3, which no distribution has: it captures by a ring for each packet thread,
as its DAQs do, and prints the statistics that Snort's documentation shows, at its end. With the
pcap DAQ "received" includes what was dropped, and it ends only when one more packet comes.
A line `-- fault: …` of its configuration makes it lie as real programs have lied."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SOL_PACKET, RX_RING, STATISTICS, VERSION, FANOUT = 263, 5, 6, 10, 18
FRAME_BYTES, BLOCK_BYTES = 2048, 1 << 17
ETH_P_ALL, PR_SET_NAME = 3, 15
RULE = "-" * 50


class Instance(threading.Thread):
    """A packet thread with a socket and a ring of its own."""

    def __init__(
        self, number: int, interface: str, ring_bytes: int, group: int | None, *, pcap: bool
    ) -> None:
        super().__init__()
        self.number, self.received, self.dropped, self.analyzed, self.bytes = number, 0, 0, 0, 0
        self.idle, self.pcap = 0, pcap
        self.ends_after: int | None = None
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(SOL_PACKET, VERSION, struct.pack("i", 1))
        blocks = max(1, ring_bytes // BLOCK_BYTES)
        self.frames = blocks * BLOCK_BYTES // FRAME_BYTES
        ring = struct.pack("IIII", BLOCK_BYTES, blocks, FRAME_BYTES, self.frames)
        self.socket.setsockopt(SOL_PACKET, RX_RING, ring)
        self.ring = mmap.mmap(self.socket.fileno(), blocks * BLOCK_BYTES)
        self.socket.bind((interface, ETH_P_ALL))
        if group is not None:
            self.socket.setsockopt(SOL_PACKET, FANOUT, struct.pack("I", group))

    def run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"snort.ins-%d" % self.number, 0, 0, 0)
        at, ready = 0, select.poll()
        ready.register(self.socket, select.POLLIN)
        while True:
            place = at * FRAME_BYTES
            status, length = struct.unpack_from("II", self.ring, place)
            if status & 1:
                self.analyzed += 1
                self.bytes += length
                struct.pack_into("I", self.ring, place, 0)
                at = (at + 1) % self.frames
            elif self.ends_after is not None and self.analyzed >= self.ends_after + self.pcap:
                break
            else:
                self.idle += not ready.poll(50)
        came, lost = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, STATISTICS, 8))
        self.received, self.dropped = came if self.pcap else came - lost, lost


def line(name: str, value: object, more: str = "") -> str:
    """Counters in Snort's format: one that is zero is not printed."""
    return f"{name:>25}: {value}{more}\n" if value else ""


def statistics(instances: Sequence[Instance]) -> Iterator[str]:
    total = {
        name: sum(getattr(one, name) for one in instances)
        for name in ("received", "analyzed", "dropped", "idle", "bytes")
    }
    yield f"{RULE}\nPacket Statistics\n{RULE}\ndaq\n"
    for name in ("received", "analyzed", "dropped"):
        yield line(name, total[name])
    yield line("allow", total["analyzed"]) + line("idle", total["idle"])
    yield line("rx_bytes", total["bytes"])
    yield f"{RULE}\ncodec\n" + line("total", total["analyzed"], "      \t(100.000%)")
    yield f"{RULE}\nModule Statistics\n{RULE}\ndetection\n" + line("analyzed", total["analyzed"])
    yield f"{RULE}\nSummary Statistics\n{RULE}\nprocess\n" + line("signals", 1)
    yield f"{RULE}\ntiming\n" + line("runtime", "00:00:01") + line("seconds", "1.000000")
    yield 'o")~   Snort exiting\n'


def lied(text: str, fault: str) -> str:
    """The text of a program that has lost its way."""

    def number(name: str, change: Callable[[int], int]) -> str:
        return re.sub(rf"({name}: )(\d+)", lambda m: f"{m[1]}{change(int(m[2]))}", text, count=1)

    if fault == "counts each packet twice":
        return number("received", lambda n: 2 * n)
    if fault == "a counter ran backwards":
        return number("received", lambda n: n - 7)
    if fault == "a counter of 32 bits":
        return re.sub(r"( +analyzed: \d+\n)", rf"\1{'dropped':>25}: 4294965006\n", text, count=1)
    if fault == "its text is cut":
        return text[: text.index("received") + len("received: 1")]
    return text


def main() -> None:
    words = sys.argv[1:]
    if "-V" in words:
        sys.stdout.write('   ,,_     -*> Snort++ <*-\n  o"  )~   Version 3.0.0.0 (a stand-in)\n')
        return
    asked = dict(zip(words[::2], words[1::2], strict=False))
    variables = dict(
        w.split("=", 1) for w, key in zip(words[1:], words, strict=False) if key == "--daq-var"
    )
    found = re.search(r"^-- fault: (.+)$", Path(asked["-c"]).read_text(), re.M)
    fault, number = found[1] if found else "", int(asked["-z"])
    grouped = variables.get("fanout_type") == "hash" and number > 1 and fault != "no fan-out"
    group = os.getpid() & 0xFFFF if grouped else None
    pcap = asked["--daq"] == "pcap"
    size = variables["buffer_size"] if pcap else variables["buffer_size_mb"]
    ring_bytes = int(size) if pcap else int(size) << 20
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    instances = [Instance(n, asked["-i"], ring_bytes, group, pcap=pcap) for n in range(number)]
    for one in instances:
        one.start()
    sys.stdout.write(f"Commencing packet processing\n++ [0] {asked['-i']}\n")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    for one in instances:
        one.ends_after = one.analyzed
    for one in instances:
        one.join()
    sys.stdout.write("== stopping\n" + lied("".join(statistics(instances)), fault))


if __name__ == "__main__":
    main()
