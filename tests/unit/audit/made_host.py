"""A well-set sensor as its node sees it. A test changes one thing of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nodrop.audit.audit_answer import AuditAnswer, answer, findings
from nodrop.audit.host_role import HostRole
from nodrop.audit.reading import judged
from nodrop.audit.symmetry import Dealt
from nodrop.audit.world import JudgedSnapshot
from nodrop.sensor.snapshot import Snapshot, Socket

Json = dict[str, Any]
SURICATA, LISTENER = 500, 512
SYMMETRIC = "6d5a" * 20
RANDOM = "d181c62cf7f4db5b1983a2fc943e1adbd9389e6bd1039c2ca74499ad593d56d9f3253c06"
PATH = "/etc/suricata/suricata.yaml"
YAML = """%YAML 1.1
---
af-packet:
  - interface: eth1
    threads: 2
    cluster-id: 99
    cluster-type: cluster_qm
"""
GROUP = "/sys/fs/cgroup/system.slice/ids.service"
WORKER = Socket(
    inode=9001,
    protocol=3,
    index=2,
    port="eth1",
    uid=0,
    pid=SURICATA,
    program="Suricata-Main",
    version=3,
    block_bytes=1 << 20,
    blocks=155,
    frame_bytes=1616,
    retire_ms=10,
    fanout_id=99,
    fanout_type=5,
    filtered=False,
)
"""One of two sockets of the Suricata."""
STATISTICS = (
    "rx_packets", "rx_bytes", "rx_dropped", "rx_missed_errors", "rx_length_errors",
    "rx_over_errors", "rx_crc_errors", "rx_frame_errors", "tx_dropped",
)  # fmt: skip
ETH1: Json = {
    "name": "eth1",
    "space": 0,
    "pid": None,
    "index": 2,
    "driver": "igb",
    "firmware": "1.2",
    "ring": [4096, 4096],
    "queues": 2,
    "pauses": [False, False],
    "features": {
        name: {"on": on, "fixed": False}
        for name, on in {
            "rx-gro": False, "rx-lro": False, "rx-gro-hw": False, "rx-checksum": True,
            "tx-tcp-segmentation": True,
        }.items()
    },
    "spread": {"queues": [0, 1], "key": SYMMETRIC, "function": 1, "transformed": False},
    "driver_counters": {"rx_packets": 5, "rx_queue_0_drops": 0, "tx_flow_control_xoff": 0},
    "mtu": 1500,
    "flags": 0x1103,
    "carrier": True,
    "physical": True,
    "statistics": dict.fromkeys(STATISTICS, 0) | {"rx_packets": 5000},
    "queue_folders": 2,
    "rps": {},
    "lines": [
        {"number": 30, "name": "eth1-rx-0", "allowed": [2], "effective": [2], "fired": 5000},
        {"number": 31, "name": "eth1-rx-1", "allowed": [3], "effective": [3], "fired": 5001},
    ],
    "node": 0,
    "speed_mbit": 10_000,
    "duplex": "full",
    "pcie": {
        "current_link_width": "8", "max_link_width": "8",
        "current_link_speed": "8.0 GT/s PCIe", "max_link_speed": "8.0 GT/s PCIe",
    },
    "peer": None,
    "missing": [],
}  # fmt: skip
MACHINE: Json = {
    "online": [*range(8)],
    "isolated": [2, 3],
    "nodes": {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]},
    "balancers": {},
    "softnet_dropped": {"0": 0},
    "memory_bytes": 64 << 30,
    "uptime_s": 1000.0,
    "hypervisor": False,
    "own_quotas": [],
    "values": [{"what": "kernel", "value": "6.12.0", "at": "/proc/sys/kernel/osrelease"}],
}


class MadeHost:
    def __init__(self) -> None:
        self.dealt: list[Dealt] = []
        self.port = copy.deepcopy(ETH1)
        self.other_ports: list[Json] = []
        self.machine = copy.deepcopy(MACHINE)
        self.sockets = [WORKER, replace(WORKER, inode=9002)]
        self.programs = {SURICATA: program(SURICATA, "Suricata-Main", [2], [3])}
        self.suricata = self.programs[SURICATA]
        self.suricata["yaml"] = {"path": PATH, "newer": False, "text": texts(YAML)}
        self.suricata["answers"] = {
            "socket": "/run/suricata/suricata-command.socket",
            "silent": None,
            "refused": False,
            "mode": "AF_PACKET_DEV",
            "memcaps": {},
            "counters_mono_ns": None,
            "ports_before": {},
            "ports": {"eth1": {"packets": 1000, "drops": 0, "invalid_checksums": 1}},
            "counters": {
                "capture.kernel_packets": 1000, "capture.kernel_drops": 0, "decoder.pkts": 1000,
                "flow.memcap": 0, "flow.emerg_mode_entered": 0, "tcp.ssn_memcap_drop": 0,
            },
        }  # fmt: skip
        self.suricata["quotas"] = []
        self.group(cpus=None)
        self.files: Json = {}
        self.missing: list[Json] = []

    # --- what a test changes --------------------------------------------------------------------

    def listen(self, pid: int, name: str, *sockets: Socket) -> None:
        """Adds packet sockets and who holds them; in ports of which the node knows no name."""
        self.sockets += [replace(one, pid=pid, program=name) for one in sockets]
        self.programs.setdefault(pid, program(pid, name))

    def rings(self, **other: Any) -> None:
        self.sockets[:] = [replace(one, **other) for one in self.sockets]

    def veth(self, name: str, *, mtu: int, tx_dropped: int) -> None:
        """eth1 is a veth, and this its peer."""
        peer = {"name": name, "pid": None, "mtu": mtu, "tx_dropped": tx_dropped}
        self.port |= {"driver": "veth", "peer": peer}

    def group(self, *, cpus: float | None, throttled: int = 0, full: int = 0) -> None:
        """The control group of the Suricata."""
        quota = {"group": GROUP, "cpus": cpus, "periods": 100, "throttled_periods": throttled,
                 "throttled_s": throttled * 9e-4}  # fmt: skip
        self.suricata["quotas"] = [] if cpus is None else [quota]
        self.suricata["memory_hits"] = [{"file": f"{GROUP}/memory.events (max)", "times": full}]

    def lacks(self, what: str, needs: str) -> None:
        self.missing.append({"what": what, "needs": needs})

    # --- what is seen ---------------------------------------------------------------------------

    def look(self, asked: Sequence[str] = ()) -> Json:
        """A node's answer; of ports that are asked for, the sockets there alone."""
        sockets = [
            asdict(one)
            for one in self.sockets
            if not asked or (one.space == 0 and (one.index == 0 or one.port in asked))
        ]
        ports = [self.port, *self.other_ports]
        return {
            **self.machine,
            "names": ["lo", *(one["name"] for one in ports if one["space"] == 0)],
            "ports": ports,
            "sockets": sockets,
            "programs": [*self.programs.values()],
            "files": self.files,
            "missing": self.missing,
        }

    def world(
        self, *, role: HostRole = HostRole.SENSOR, ports: Sequence[str] = ()
    ) -> JudgedSnapshot:
        found = judged(Snapshot.of(self.look(ports)), role=role, ports=ports)
        return replace(found, dealt={"eth1": tuple(self.dealt)})

    def configured(self, path: Path, text: str | None) -> JudgedSnapshot:
        """World with --config; None: no such file."""
        self.files[str(path.absolute())] = texts(text, str(path.absolute()))
        return judged(Snapshot.of(self.look()), config=path)

    def answer(self, **asked: Any) -> AuditAnswer:
        return answer(self.world(**asked), took_s=0.1)

    def ids(self, role: HostRole = HostRole.SENSOR) -> list[str]:
        return [one.id for one in findings(self.world(role=role))]


def program(pid: int, name: str, *workers: list[int]) -> Json:
    """A program with a thread W#nn for each list of CPUs."""
    threads = [{"tid": pid, "name": name, "allowed": [*range(8)]}]
    for number, cpus in enumerate(workers, 1):
        threads.append({"tid": pid + number, "name": f"W#0{number}-eth1", "allowed": cpus})
    return {
        "pid": pid,
        "name": name,
        "space": 0,
        "arguments": [name],
        "threads": threads,
        "quotas": [],
        "memory_hits": [],
        "yaml": None,
        "answers": None,
        "uptime_s": 100.0,
        "missing": [],
    }


def texts(text: str | None, path: str = PATH) -> Json:
    """A yaml that includes none."""
    lacking = {path: "No such file or directory"} if text is None else {}
    return {"path": path, "texts": {} if text is None else {path: text}, "errors": lacking}
