"""What a made-up setup makes of a trial: activation by phase, CPU, memory, clock, shares."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FakePlace:
    """Costs of one setup, about which the repetitions spread by a few per cent."""

    phases_s: Mapping[str, float]
    cpu_factor: float
    memory_bytes: int
    anonymous_bytes: int | None
    servants_factor: float = 1.0
    """CPU of the whole setup, of that of its SUT."""
    capacity_factor: float = 1.0
    accelerator: str | None = None
    cpuid_ns: float = 5034.0


PROGRAM = {"exec": 0.03, "load_rules": 0.18, "open_capture": 0.22}
BARE = FakePlace(phases_s=PROGRAM, cpu_factor=1.0, memory_bytes=80 << 20, anonymous_bytes=44 << 20)
DOCKER = FakePlace(
    phases_s={"create": 0.2, "start": 0.35, "wire": 0.05, **PROGRAM},
    cpu_factor=1.02,
    servants_factor=1.1,
    memory_bytes=81 << 20,
    anonymous_bytes=44 << 20,
)
VM = FakePlace(
    phases_s={"boot": 7.2, "copy_files": 0.06, **{k: v * 10 for k, v in PROGRAM.items()}},
    cpu_factor=9.0,
    memory_bytes=490 << 20,
    anonymous_bytes=None,
    capacity_factor=0.2,
    accelerator="tcg",
    cpuid_ns=7.7,
)
PLACES: Mapping[str, FakePlace] = {
    "bare": BARE,
    "docker": DOCKER,
    "docker-macvtap": DOCKER,
    "oci": DOCKER,
    "vm": VM,
}
RDTSC_NS = 9.8


def place_of(cell: Mapping[str, Any]) -> FakePlace | None:
    """None if the cell names no setup that is known here."""
    return PLACES.get(str(cell.get("setup.kind")))


def spread(rng: random.Random) -> float:
    return rng.uniform(0.99, 1.01)


def place_details(place: FakePlace, rng: random.Random, *, sent_packets: int) -> dict[str, Any]:
    """The parts of trial.json that depend on where the SUT ran."""
    costs = {"rdtsc": RDTSC_NS, "cpuid": place.cpuid_ns, "syscall_getppid": 183.0}
    warm_up = {"offered_packets": sent_packets, "discarded": True}
    return {
        "readiness": {
            "phases_s": {name: took * spread(rng) for name, took in place.phases_s.items()}
        },
        "facts": {
            "tsc": {"batches": 15, "ns": {n: _cost(best) for n, best in costs.items()}},
            **({"warm_up": warm_up} if place.accelerator else {}),
        },
    }


def _cost(best_ns: float) -> dict[str, float]:
    return {"best": best_ns, "median": best_ns * 1.05, "worst": best_ns * 2}


def instance_details(instances: int, *, received: int, lost: int) -> dict[str, Any]:
    """The first instance gets twice the share of the others, and has all the losses."""
    share = received // (instances + 1)
    each = [received - share * (instances - 1)] + [share] * (instances - 1)
    parts = [
        {
            "received_packets": packets,
            "captured_packets": packets,
            "decoded_packets": packets - (lost if n == 0 else 0),
            "lost_packets": lost if n == 0 else 0,
            "residual_packets": 0,
            "closed": True,
        }
        for n, packets in enumerate(each)
    ]
    return {"instances": parts, "imbalance_ratio": each[0] * instances / received - 1}
