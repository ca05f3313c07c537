"""A sensor that is made to lose: programs that capture on a port, in network and mount namespaces
of their own (`unshare --net --mount`). Each line of stdin is a command, answered by a line.

    open PROGRAM PORT KIND [GROUP[:TYPE]]
                                     a program opens a socket: plain, v2:SLOT_BYTES, v3, any
    close PROGRAM                    it closes all of its sockets, and stays
    stop PROGRAM | go PROGRAM        SIGSTOP, SIGCONT
    drain PROGRAM                    it reads what waits in its plain sockets
    count PROGRAM                    it reads its sockets' counters, which sets them to zero
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_FANOUT = 263, 5, 6, 10, 18
ETH_P_ALL, PR_SET_NAME = 3, 15
BLOCK_BYTES, BLOCKS, RETIRE_MS = 1 << 17, 4, 100


class Made:
    """A namespace, its programs and its ports."""

    def __init__(self, pid: int, ask: Callable[[str], str]) -> None:
        self.pid, self._ask = pid, ask
        self.pids: set[str] = set()
        """Programs that it made."""

    def ask(self, line: str) -> str:
        said = self._ask(line)
        if line.startswith("open"):
            self.pids.add(said)
        return said

    def run(self, *words: str | int, check: bool = True) -> str:
        argv = ["nsenter", "-t", str(self.pid), "-n", *map(str, words)]
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout

    def link(self, port: str, other: str, *, mtu: int = 1500, other_mtu: int = 1500) -> None:
        self.run("ip", "link", "add", port, "mtu", mtu, "numrxqueues", 4, "type", "veth",
                 "peer", "name", other, "mtu", other_mtu, "numtxqueues", 4)  # fmt: skip
        for name in (port, other):
            self.run("ip", "link", "set", name, "addrgenmode", "none", "up")

    def send(self, port: str, packets: int, *, length: int = 60) -> None:
        """Frames of one length, a flow each; what the port refuses is left out."""
        script = (
            "import contextlib, socket\n"
            "one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
            f"one.bind(({port!r}, 0))\n"
            "head = bytes.fromhex('ffffffffffff020000000001080045000028000040004011000008080808"
            "0a4d0002')\n"
            f"for n in range({packets}):\n"
            "    with contextlib.suppress(OSError):\n"
            "        udp = (1024 + n % 60000).to_bytes(2, 'big') + bytes.fromhex('0035002c0000')\n"
            f"        one.send((head + udp).ljust({length}, b'x'))\n"
        )
        self.run(sys.executable, "-c", script)


@contextmanager
def made_sensor(*, own_sys: bool = True) -> Iterator[Made]:
    """Without a /sys of its own it has that of the namespace in which it was made."""
    command = ["unshare", "--net", "--mount", sys.executable, str(Path(__file__))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as there:
        assert there.stdin and there.stdout
        to, answers = there.stdin, there.stdout

        def ask(line: str) -> str:
            to.write(f"{line}\n")
            to.flush()
            return answers.readline().strip()

        ask("sys" if own_sys else "begin")
        try:
            yield Made(there.pid, ask)
        finally:
            to.close()


def main() -> None:
    children: dict[str, tuple[int, int, int]] = {}
    for line in sys.stdin:
        command, *words = line.split()
        said = "done"
        if command == "sys":
            subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)
        elif command in ("stop", "go"):
            pid = children[words[0]][0]
            os.kill(pid, signal.SIGSTOP if command == "stop" else signal.SIGCONT)
            if command == "stop":
                os.waitpid(pid, os.WUNTRACED)
            said = str(pid)
        elif command != "begin":
            name = words[0]
            if name not in children:
                children[name] = forked(name)
            pid, to, answers = children[name]
            os.write(to, f"{command} {' '.join(words[1:])}\n".encode())
            said = os.read(answers, 4096).decode().strip()
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
    for pid, to, _ in children.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(to)
        os.waitpid(pid, 0)


def forked(name: str) -> tuple[int, int, int]:
    commands, to = os.pipe()
    answers, back = os.pipe()
    pid = os.fork()
    if pid:
        os.close(commands)
        os.close(back)
        return pid, to, answers
    os.close(to)
    os.close(answers)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.partition("-")[0].encode(), 0, 0, 0)
    held: list[socket.socket] = []
    kept: list[mmap.mmap] = []
    for line in os.fdopen(commands):
        os.write(back, f"{done(line.split(), held, kept)}\n".encode())
    os._exit(0)


def done(words: list[str], held: list[socket.socket], kept: list[mmap.mmap]) -> str:
    if words[0] == "open":
        one, ring = opened(*words[1:])
        held.append(one)
        kept.extend(ring)
    elif words[0] == "close":
        kept.clear()
        while held:
            held.pop().close()
    elif words[0] == "drain":
        taken = 0
        for one in held:
            with suppress(BlockingIOError):
                while one.recv(1 << 16, socket.MSG_DONTWAIT):
                    taken += 1
        return str(taken)
    elif words[0] == "count":
        said = [one.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8) for one in held]
        return " ".join(str(number) for one in said for number in struct.unpack("=2I", one))
    return str(os.getpid())


def opened(port: str, kind: str, group: str = "") -> tuple[socket.socket, list[mmap.mmap]]:
    one, ring = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0), []
    version, _, slot = kind.partition(":")
    if version in ("v2", "v3"):
        one.setsockopt(SOL_PACKET, PACKET_VERSION, int(version[1]) - 1)
        slot_bytes = int(slot or 2048)
        sizes = [BLOCK_BYTES, BLOCKS, slot_bytes, BLOCKS * (BLOCK_BYTES // slot_bytes)]
        sizes += [RETIRE_MS, 0, 0] if version == "v3" else []
        one.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack(f"={len(sizes)}I", *sizes))
        ring = [mmap.mmap(one.fileno(), BLOCK_BYTES * BLOCKS)]
    address = (0, socket.htons(ETH_P_ALL)) if kind == "any" else (port, ETH_P_ALL)
    if kind == "any":
        one.close()
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    else:
        one.bind(address)
    if group:
        number, _, dealt = group.partition(":")
        joined = int(number) | int(dealt or 0) << 16
        one.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=I", joined))
    return one, ring


if __name__ == "__main__":
    main()
