"""A well-set sensor as a tree of /proc and /sys, and a kernel that answers for it. A test changes
one thing of it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nodrop.audit import kernel as asking
from nodrop.audit.audit_answer import AuditAnswer, answer, findings
from nodrop.audit.reading import read_world
from nodrop.audit.symmetry import Dealt
from nodrop.audit.world import Role, Socket, World
from nodrop.errors import TrialFailed
from nodrop.testbed.labs.driver import GRSSH, HEAD

SURICATA, LISTENER = 500, 512
SYMMETRIC = bytes.fromhex("6d5a" * 20)
RANDOM = bytes.fromhex("d181c62cf7f4db5b1983a2fc943e1adbd9389e6bd1039c2ca74499ad593d56d9f3253c06")
YAML = """%YAML 1.1
---
af-packet:
  - interface: eth1
    threads: 2
    cluster-id: 99
    cluster-type: cluster_qm
"""
ROOT_CAPS, NO_CAPS = "000001ffffffffff", "0000000000000000"


@dataclass
class MadeKernel:
    sockets: Sequence[Socket]
    ports: Mapping[int, str]
    port: dict[str, Any]
    """Word that asks the driver of eth1 → its answer."""
    suricata_said: dict[str, Any]
    asked: list[str] = field(default_factory=list)
    filters: bool = True
    takes_all: set[int] = field(default_factory=set)
    """Inodes of sockets with a filter that takes all, as that of a plain tcpdump."""

    peers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Veths beside eth1: the index of the other end, and the MTU."""

    def mtu(self, pid: int | None, port: str) -> int | None:
        return self.peers[port][1]

    def peer_space(
        self, pid: int | None, port: str, spaces: Sequence[int | None]
    ) -> Sequence[int | None]:
        """Its own namespace; none if the peer is in one that holds no process."""
        return spaces[:1] if any(of == 2 for of, _ in self.peers.values()) else []

    def interfaces(self, pid: int | None) -> Mapping[int, str]:
        return self.ports

    counts: Mapping[int, tuple[int, int]] | None = None
    """Packets and drops of sockets by inode; None: none has any."""

    def counted(self, pids: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        return {one.inode: (0, 0) for one in self.sockets} if self.counts is None else self.counts

    def packet_sockets(self, pid: int | None) -> bytes:
        self.asked.append("packet_diag")
        body = b"".join(map(self._record, self.sockets))
        return body + asking.MESSAGE.pack(16, asking.NLMSG_DONE, 0, 0, 0)

    def _record(self, one: Socket) -> bytes:
        body = asking.SAID.pack(17, 3, one.protocol, one.inode, 0, 0)
        body += _attribute(
            asking.INFO, struct.pack("=6I", one.index, (one.version or 1) - 1, 0, 0, 0, 0)
        )
        if one.blocks:
            sizes = (one.block_bytes, one.blocks, one.frame_bytes, one.frames, one.retire_ms)
            body += _attribute(asking.RING, struct.pack("=7I", *(n or 0 for n in sizes), 0, 0))
        if one.fanout_id is not None:
            group = one.fanout_id | (one.fanout_type or 0) << 16
            body += _attribute(asking.FANOUT, struct.pack("=I", group))
        body += _attribute(asking.FILTER, self._filter(one))
        length = asking.MESSAGE.size + len(body)
        return asking.MESSAGE.pack(length, asking.SOCK_DIAG_BY_FAMILY, 0, 0, 0) + body

    def _filter(self, one: Socket) -> bytes:
        """One step: load a half word, which a choice follows; or take all, if it is not selective
        and yet has one."""
        if not self.filters or (one.filtered is not True and one.inode not in self.takes_all):
            return b""
        return asking.STEP.pack(*((0x28, 0, 0, 12) if one.filtered else (0x06, 0, 0, 262144)))

    def listeners(
        self, pid: int | None, port: str, kind: int, members: int, mask: int
    ) -> list[socket.socket]:
        raise PermissionError

    def suricata(self, path: Path, commands: Sequence[tuple[str, Mapping[str, str]]]) -> list[Any]:
        if not self.suricata_said:
            raise TrialFailed("Suricata does not answer version on its command socket: timed out")
        return [
            self.suricata_said["interfaces"][more["iface"]]
            if name == "iface-stat"
            else self.suricata_said[name]
            for name, more in commands
        ]

    def ethtool(self, pid: int | None, port: str, asked: bytes, more: int) -> bytes | None:
        if port in self.peers:
            veth = {"driver": "veth", "counters": {"peer_ifindex": self.peers[port][0]}}
            return MadeKernel((), {}, {"features": {}, "key": None, **veth}, {}).ethtool(
                pid, "eth1", asked, more
            )
        command = struct.unpack_from("=I", asked)[0]
        made = getattr(self, f"_{command:#x}", None)
        said: bytes | None = made(asked) if made and port == "eth1" else None
        return None if said is None else said.ljust(len(asked) + more, b"\0")[: len(asked) + more]

    def _numbers(self, word: str, asked: bytes) -> bytes | None:
        said = self.port.get(word)
        return None if said is None else asked + struct.pack(f"={len(said)}I", *said)

    def _0x10(self, asked: bytes) -> bytes | None:
        return self._numbers("rings", asked)

    def _0x3c(self, asked: bytes) -> bytes | None:
        return self._numbers("channels", asked)

    def _0x12(self, asked: bytes) -> bytes | None:
        return self._numbers("pauses", asked)

    def _0x3(self, asked: bytes) -> bytes:
        return asked + self.port["driver"].encode().ljust(64, b"\0") + b"1.2".ljust(32, b"\0")

    def _named(self, group: int) -> list[str]:
        return [*(self.port["counters"] if group == asking.STATISTICS else self.port["features"])]

    def _0x37(self, asked: bytes) -> bytes:
        mask = struct.unpack_from("=Q", asked, 8)[0]
        return asked + struct.pack("=I", len(self._named(mask.bit_length() - 1)))

    def _0x1b(self, asked: bytes) -> bytes:
        names = self._named(struct.unpack_from("=I", asked, 4)[0])
        return asked + b"".join(name.encode().ljust(asking.NAME_BYTES, b"\0") for name in names)

    def _0x1d(self, asked: bytes) -> bytes:
        return asked + struct.pack(
            f"={len(self.port['counters'])}Q", *self.port["counters"].values()
        )

    def _0x3a(self, asked: bytes) -> bytes:
        bits = [0, 0, 0, 0]
        for number, said in enumerate(self.port["features"].values()):
            bits[0] |= (said != "fixed") << number
            bits[2] |= (said in ("on", "fixed")) << number
        return asked + struct.pack("=4I", *bits)

    def _0x46(self, asked: bytes) -> bytes | None:
        if self.port["key"] is None:
            return None
        table = [n % self.port["table_queues"] for n in range(128)]
        head = HEAD.pack(GRSSH, 0, 128, len(self.port["key"]), bytes((1, self.port["xfrm"])))
        return head + struct.pack("=128I", *table) + bytes(self.port["key"])


def _attribute(kind: int, body: bytes) -> bytes:
    length = 4 + len(body)
    return struct.pack("=HH", length, kind) + body + b"\0" * (-length % 4)


WORKER = Socket(
    inode=9001,
    protocol=3,
    index=2,
    version=3,
    block_bytes=1 << 20,
    blocks=155,
    frame_bytes=1616,
    frames=100_000,
    retire_ms=10,
    fanout_id=99,
    fanout_type=5,
    filtered=False,
)
"""One of two sockets of the Suricata."""


class MadeHost:
    def __init__(self, root: Path) -> None:
        self.dealt: list[Dealt] = []
        self.root = root
        self.sockets = [WORKER, replace(WORKER, inode=9002)]
        self.kernel = MadeKernel(
            sockets=self.sockets,
            ports={1: "lo", 2: "eth1"},
            port={
                "driver": "igb",
                "rings": [4096, 0, 0, 4096, 4096, 0, 0, 4096],
                "channels": [0, 0, 1, 8, 0, 0, 1, 2],
                "pauses": [0, 0, 0],
                "counters": {"rx_packets": 5, "rx_queue_0_drops": 0, "tx_flow_control_xoff": 0},
                "features": {
                    "rx-gro": "off",
                    "rx-lro": "off",
                    "rx-gro-hw": "off",
                    "rx-checksum": "on",
                    "tx-tcp-segmentation": "on",
                },
                "key": SYMMETRIC,
                "table_queues": 2,
                "xfrm": 0,
            },
            suricata_said={
                "dump-counters": {
                    "capture": {"kernel_packets": 1000, "kernel_drops": 0},
                    "decoder": {"pkts": 1000},
                    "flow": {"memcap": 0, "emerg_mode_entered": 0},
                    "tcp": {"ssn_memcap_drop": 0},
                },
                "uptime": 100,
                "iface-list": {"count": 1, "ifaces": ["eth1"]},
                "interfaces": {"eth1": {"pkts": 1000, "drop": 0, "invalid-checksums": 1}},
            },
        )
        self._files()
        self.process(SURICATA, "Suricata-Main", {"W#01-eth1": "2", "W#02-eth1": "3"})
        self.hold(SURICATA, 9001, 9002, 777)
        self.write("proc/self/net/packet", self._rows())

    # --- what a test changes --------------------------------------------------------------------

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def listen(self, *sockets: Socket) -> None:
        """Adds packet sockets."""
        self.sockets[:] = [*self.sockets, *sockets]
        self.write("proc/self/net/packet", self._rows())

    def rings(self, **other: Any) -> None:
        self.sockets[:] = [replace(one, **other) for one in self.sockets]

    def process(self, pid: int, name: str, threads: Mapping[str, str]) -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) S {' 0' * 18} 5000 0\n")
        self.write(f"proc/{pid}/cgroup", "0::/system.slice/ids.service\n")
        self.write(f"proc/{pid}/cmdline", f"{name}\0-c\0/etc/suricata/suricata.yaml\0")
        for number, (thread, cpus) in enumerate({name: "0-7", **threads}.items()):
            status = f"Name:\t{thread}\nCpus_allowed_list:\t{cpus}\n"
            self.write(f"proc/{pid}/task/{pid + number}/status", status)
        (self.root / f"proc/{pid}/ns").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}/ns/net").symlink_to("net:[1]")
        (self.root / f"proc/{pid}/root").symlink_to(self.root)
        (self.root / f"proc/{pid}/fd").mkdir(exist_ok=True)
        self.write(f"proc/{pid}/net/unix", UNIX)

    def veth(self, name: str, *, index: int, mtu: int, tx_dropped: int, of: int = 2) -> None:
        """eth1 is a veth, and this its peer if it says `of` eth1's index."""
        self.kernel.ports = {**self.kernel.ports, index: name}
        self.kernel.peers[name] = (of, mtu)
        self.kernel.port |= {"driver": "veth", "counters": {"peer_ifindex": index}}
        row = f"  {name}: 1 2 0 0 0 0 0 0 900 8 0 {tx_dropped} 0 0 0 0\n"
        self.write("proc/self/net/dev", f"Inter-| Receive\n face |bytes packets\n{row}")

    def hold(self, pid: int, *inodes: int) -> None:
        for number, inode in enumerate(inodes, 3):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")

    def said(self, table: str, **values: int) -> None:
        """Counters of Suricata."""
        self.kernel.suricata_said["dump-counters"].setdefault(table, {}).update(values)

    # --- what is seen ---------------------------------------------------------------------------

    def world(self, **asked: Any) -> World:
        found = read_world(root=self.root, kernel=self.kernel, **asked)
        ports = (replace(port, dealt=tuple(self.dealt)) for port in found.ports)
        return replace(found, ports=tuple(ports)) if self.dealt else found

    def answer(self, **asked: Any) -> AuditAnswer:
        return answer(self.world(**asked), took_s=0.1)

    def ids(self, role: Role = Role.SENSOR, **asked: Any) -> list[str]:
        return [one.kind.id for one in findings(self.world(role=role, **asked))]

    def _rows(self) -> str:
        lines = [
            f"0000000000000000 3 3 {one.protocol:04x} {one.index} 1 0 0 {one.inode}"
            for one in self.sockets
        ]
        return "\n".join(["sk RefCnt Type Proto Iface R Rmem User Inode", *lines, ""])

    def _files(self) -> None:
        slot = "sys/devices/pci0000:00/0000:00:01.0"
        for name, text in {
            "mtu": "1500", "flags": "0x1103", "ifindex": "2", "speed": "10000", "duplex": "full",
            "queues/rx-0/rps_cpus": "00", "queues/rx-1/rps_cpus": "00",
            **{f"statistics/{one}": "0" for one in STATISTICS}, "statistics/rx_packets": "5000",
        }.items():  # fmt: skip
            self.write(f"{slot}/net/eth1/{name}", f"{text}\n")
        for name, text in {
            "numa_node": "0", "current_link_width": "8", "max_link_width": "8",
            "current_link_speed": "8.0 GT/s PCIe", "max_link_speed": "8.0 GT/s PCIe",
            "msi_irqs/30": "msix", "msi_irqs/31": "msix",
        }.items():  # fmt: skip
            self.write(f"{slot}/{name}", f"{text}\n")
        (self.root / slot / "net/eth1/device").symlink_to("../..")
        (self.root / "sys/class/net").mkdir(parents=True)
        (self.root / "sys/class/net/eth1").symlink_to(f"../../../{slot}/net/eth1")
        for number, cpu in ((30, 2), (31, 3)):
            for name in ("smp", "effective"):
                self.write(f"proc/irq/{number}/{name}_affinity_list", f"{cpu}\n")
        self.write("proc/interrupts", INTERRUPTS)
        for path, text in {
            "online": "0-7", "isolated": "2-3",
        }.items():  # fmt: skip
            self.write(f"sys/devices/system/cpu/{path}", f"{text}\n")
        for node, cpus in enumerate(("0-3", "4-7")):
            self.write(f"sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
        for path, text in {
            "meminfo": "MemTotal:       67108864 kB\n",
            "uptime": "1000.0 1.0\n",
            "stat": "cpu 0\nbtime 2000000000\n",
            "cpuinfo": "model name\t: A CPU\nflags\t\t: fpu sse\n",
            "cmdline": "isolcpus=2-3\n",
            "sys/kernel/osrelease": "6.12.0\n",
            "net/softnet_stat": f"{'00000001 00000000 ' + '0 ' * 10}00000000\n",
            "self/net/packet": "",
            "self/net/dev": "Inter-| Receive\n face |bytes packets\n  eth1: 900 5 0 0\n",
            "self/status": f"CapEff:\t{ROOT_CAPS}\n",
            "self/cgroup": "0::/user.slice\n",
            "self/mountinfo": "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        }.items():
            self.write(f"proc/{path}", text)
        (self.root / "proc/self/ns").mkdir()
        (self.root / "proc/self/ns/net").symlink_to("net:[1]")
        self.group("max 100000", periods=0, throttled=0, full=0)
        self.write("etc/suricata/suricata.yaml", YAML)

    def group(self, quota: str, *, periods: int, throttled: int, full: int) -> None:
        """The control group of the Suricata."""
        folder = "sys/fs/cgroup/system.slice/ids.service"
        self.write(f"{folder}/cpu.max", f"{quota}\n")
        stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled * 900}\n"
        self.write(f"{folder}/cpu.stat", stat)
        self.write(f"{folder}/memory.events", f"low 0\nhigh 0\nmax {full}\n")


STATISTICS = (
    "rx_packets", "rx_bytes", "rx_dropped", "rx_missed_errors", "rx_length_errors",
    "rx_over_errors", "rx_crc_errors", "rx_frame_errors", "tx_dropped",
)  # fmt: skip
STATISTICS_AT = "sys/class/net/eth1/statistics"
INTERRUPTS = """            CPU0       CPU1       CPU2       CPU3
  30:          0          0       5000          0  PCI-MSIX-0000:00:01.0    1-edge      eth1-rx-0
  31:          0          0          0       5001  PCI-MSIX-0000:00:01.0    2-edge      eth1-rx-1
"""
UNIX = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 777 /run/suricata/suricata-command.socket
"""


def state(root: Path) -> dict[str, tuple[int, ...]]:
    """Every file of a tree: its size, its times but that of reading, its number."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            said = path.lstat()
            found[str(path)] = (said.st_size, said.st_mtime_ns, said.st_ino, said.st_mode)
    return found
