"""A made-up trial over time: the sampler's rows, what the sender achieved, what the SUT said."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodrop.ledger.balance import Ledger
from nodrop.ledger.sender import Sending

MONO_NS = 86_400_000_000_000
"""CLOCK_MONOTONIC when the first row is taken."""
OFFER_NS, DRAIN_NS = 500_000_000, 600_000_000
TICK_NS = 100_000_000


def achieved(sending: Sending, rng: random.Random, *, bytes_per_packet: float) -> dict[str, Any]:
    """offered.json: what the sender did in each interval."""
    duration_ns = round((sending.duration_s or 1) * 1e9)
    steps = -(-duration_ns // TICK_NS)
    each = sending.sent_packets // steps
    error_ns = (sending.schedule_error_p99_us or 0) * 1e3
    first_ns = MONO_NS + OFFER_NS + 70_000
    return {
        "achieved": {
            "interval_ns": TICK_NS,
            "packets": [each] * (steps - 1) + [sending.sent_packets - each * (steps - 1)],
            "bytes": [round(each * bytes_per_packet)] * steps,
            "largest_error_ns": [round(error_ns * rng.uniform(0.5, 2)) for _ in range(steps)],
        },
        "first_sent_mono_ns": first_ns,
        "last_sent_mono_ns": first_ns + duration_ns,
    }


def live_rows(sending: Sending, ledger: Ledger) -> Iterator[dict[str, Any]]:
    """live.jsonl, as Suricata has it: the kernel's counters 1 s late, the decoder's every 3 s."""
    duration_ns = round((sending.duration_s or 1) * 1e9)
    captured = ledger.packets_at("socket") or 0
    decoded = ledger.packets_at("decoded") or 0
    for n in range(0, duration_ns, TICK_NS * 5):
        part, late = n / duration_ns, max(0, n - 10**9) / duration_ns
        old = n // (3 * 10**9) * 3e9 / duration_ns
        yield {
            "mono_ns": MONO_NS + OFFER_NS + n,
            "phase": "offer",
            "intended_packets": sending.intended_packets,
            "sent_packets": round(sending.sent_packets * part),
            "captured_packets": round(captured * late),
            "dropped_packets": round((captured - decoded) * late),
            "decoded_packets": round(decoded * old),
        }
    yield {
        "mono_ns": MONO_NS + OFFER_NS + duration_ns + DRAIN_NS,
        "phase": "drained",
        "intended_packets": sending.intended_packets,
        "sent_packets": sending.sent_packets,
        "captured_packets": captured,
        "dropped_packets": captured - decoded,
        "decoded_packets": decoded,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRows:
    """What a sampler would see of two CPUs, a port and a SUT of three threads."""

    packets: int
    duration_s: float
    busy: float
    """Of one CPU, the SUT's worker while packets come."""

    def make(self, rng: random.Random) -> Iterator[dict[str, Any]]:
        cpus = [dict.fromkeys(CPU_FIELDS, 10**12) for _ in range(2)]
        threads = {"Suricata-Main": 10**8, "W#01-ndrx0": 10**9, "FM#01": 10**7}
        end_ns = OFFER_NS + self.duration_s * 1e9
        for at in range(0, round(end_ns + DRAIN_NS) + TICK_NS, TICK_NS):
            came = min(max(at - OFFER_NS, 0) / (self.duration_s * 1e9), 1.0)
            load = self.busy * rng.uniform(0.95, 1.0) if OFFER_NS < at <= end_ns + TICK_NS else 0.01
            threads["W#01-ndrx0"] += round(load * TICK_NS)
            threads["Suricata-Main"] += round(0.004 * TICK_NS)
            for number, cpu in enumerate(cpus):
                share = {"user_ns": 0.7, "system_ns": 0.12, "softirq_ns": 0.18}
                of_this = load if number == 0 else load * 0.45 * rng.uniform(0.9, 1.1)
                for field_, part in share.items():
                    cpu[field_] += round(of_this * part * TICK_NS)
                cpu["idle_ns"] += round(max(1 - of_this, 0) * TICK_NS)
            yield self._row(at, came, cpus, threads)

    def _row(
        self, at: int, came: float, cpus: list[dict[str, int]], threads: Mapping[str, int]
    ) -> dict[str, Any]:
        return {
            "mono_ns": MONO_NS + at,
            "real_ns": 1_795_000_000_000_000_000 + at,
            "lateness_us": 61.0,
            "cost_us": 212.0,
            "cpus": [{"cpu": number, **times} for number, times in enumerate(cpus)],
            "memory": {"total_bytes": 8_323_284_992, "anon_bytes": 512 * 2**20},
            "softnet": [{"cpu": n, "dropped": 0, "time_squeeze": 0} for n in range(2)],
            "links": {"ndrx0": {"rx_packets": round(came * self.packets), "rx_dropped": 0}},
            "cgroup": None,
            "tree": {"rss_bytes": round((69 + 8 * came) * 2**20)},
            "processes": [
                {
                    "pid": 4711,
                    "name": "Suricata-Main",
                    "threads": [
                        {"tid": 4711 + n, "name": name, "cpu_ns": spent}
                        for n, (name, spent) in enumerate(threads.items())
                    ],
                }
            ],
        }


CPU_FIELDS = (
    "user_ns",
    "nice_ns",
    "system_ns",
    "idle_ns",
    "iowait_ns",
    "irq_ns",
    "softirq_ns",
    "steal_ns",
    "guest_ns",
    "guest_nice_ns",
)
