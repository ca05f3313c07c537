"""A port whose driver resets, pulls along, rounds and ignores, as real ones do."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nodrop.testbed.labs.port_settings import HOST, Device, Piece, Raw, rank

PORT = "eth1"
BUDGET = "proc/sys/net/core/netdev_budget"
QUEUES = 4


class Killed(BaseException):
    """The death of the process, as by kill -9."""


class SimulatedPort(Device):
    """A new number of channels resets the hash table, affinities and RPS; without sg
    there is no tso; rings are rounded to eights; the fourth coalescing word is never taken; without
    GRO there is no NAPI thread."""

    def __init__(self) -> None:
        self.state: dict[str, Raw] = {
            "channels": struct.pack("=9I", 0x3C, 0, 0, 0, QUEUES, 0, 0, 0, QUEUES).hex(),
            "rings": struct.pack("=9I", 0x10, 4096, 0, 0, 4096, 512, 0, 0, 512).hex(),
            "mtu": "1500",
            "feature/rx-gro": "11",
            "feature/tx-scatter-gather": "11",
            "feature/tx-tcp-segmentation": "11",
            "rss": _rss(QUEUES, b"\x01\x02\x03\x04\x05\x06"),
            "tcp4": struct.pack("=IIQ", 0x29, 1, 0x30).hex(),
            "coalesce": struct.pack("=23I", 0x0E, 3, *21 * [0]).hex(),
            "threaded": "0",
            **{f"queues/rx-{n}/rps_cpus": "00" for n in range(QUEUES)},
            **{f"irq/{30 + n}/smp_affinity": f"{1 << n:02x}" for n in range(QUEUES)},
        }
        self.host = {BUDGET: "300"}
        self.dies_after: int | None = None
        self.calls = 0
        self.refuses: str | None = None
        self.refusal = OSError(22, "Invalid argument")

    def pieces(self, port: str) -> Sequence[Piece]:
        assert port == PORT
        return sorted((Piece(port, name) for name in self.state), key=rank)

    def host_pieces(self, pattern: str) -> Sequence[Piece]:
        return [Piece(HOST, name) for name in self.host if name == pattern]

    def driver(self, port: str) -> str:
        return "simulated"

    def flaps(self, port: str) -> int | None:
        return None

    def read(self, piece: Piece) -> Raw | None:
        self._live()
        return (self.host if piece.port == HOST else self.state).get(piece.name)

    def write(self, piece: Piece, raw: Raw) -> None:
        self._live()
        self._write(piece.name, raw)
        self._live()

    def _live(self) -> None:
        self.calls += 1
        if self.dies_after is not None and self.calls > self.dies_after:
            raise Killed

    def _write(self, name: str, raw: Raw) -> None:
        state = self.state
        if name == self.refuses:
            raise self.refusal
        if name in self.host:
            self.host[name] = raw
            return
        if name not in state:
            raise FileNotFoundError(2, "No such file or directory")
        if name == "channels" and raw != state[name]:
            count = struct.unpack_from("=I", bytes.fromhex(raw), 32)[0]
            state["rss"] = _rss(count, bytes.fromhex(state["rss"])[-6:])
            for one in [one for one in state if one.startswith(("queues/", "irq/"))]:
                del state[one]
            state |= {f"queues/rx-{n}/rps_cpus": "00" for n in range(count)}
            state |= {f"irq/{30 + n}/smp_affinity": "0f" for n in range(count)}
        elif name == "rings":
            words = list(struct.unpack("=9I", bytes.fromhex(raw)))
            words[5] = (words[5] + 7) // 8 * 8
            raw = struct.pack("=9I", *words).hex()
        elif name == "coalesce":
            words = list(struct.unpack("=23I", bytes.fromhex(raw)))
            words[10] = 0
            raw = struct.pack("=23I", *words).hex()
        elif name == "threaded" and state["feature/rx-gro"] == "00":
            raise OSError(95, "Operation not supported")
        elif name.startswith("feature/"):
            raw = raw[0] + raw[0]
        state[name] = raw
        sg, tso = state["feature/tx-scatter-gather"], state["feature/tx-tcp-segmentation"]
        state["feature/tx-tcp-segmentation"] = tso[0] + str(int(tso[0] == sg[1] == "1"))


def _rss(queues: int, key: bytes) -> Raw:
    head = struct.pack("=IIII8s", 0x46, 0, 8, len(key), b"")
    return (head + struct.pack("=8I", *(n % queues for n in range(8))) + key).hex()
