"""Run directories that never were measured: made through the results API, the same every time.

Figures follow the real trace realmix.pcap (101,171 packets; fanout defragmentation absorbs 1,372
and holds 51 in each pass) on a SUT that carries `capacity_pps`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import Class
from nodrop.ledger.imbalance import BusyThread, Running
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.over_time import Losses
from nodrop.ledger.sender import Sending
from nodrop.ledger.thread_times import ThreadInterval, ThreadTime, ThreadTimeline
from nodrop.ledger.verdict import Verdict, judge
from nodrop.results.layout import TrialFolder
from nodrop.results.ledger_file import ledger_to_json
from nodrop.results.packet_books import PacketBooks
from nodrop.results.trial import Offered, TrialRecord
from nodrop.results.writer import RunWriter, plan_sha256
from tests.made.judged import judged
from tests.made.made_books import PACKETS, books


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
    """Rows of a sampler that sees two CPUs, a port and a SUT of three threads."""

    packets: int
    duration_s: float
    busy: float
    """Part of one CPU that the SUT's worker uses while packets come."""

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


STARTED = datetime(2026, 11, 21, 20, 53, tzinfo=UTC)
BYTES_PER_PACKET = 297.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Faults of a cell, besides more load than the SUT carries."""

    late: bool = False
    path_lost: int = 0
    residual: int = 0
    not_ready: bool = False
    foreign: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fake:
    """A run directory to be made."""

    name: str = "demo"
    question: str = "How many copies of realmix does Suricata carry on this host without loss?"
    cells: Sequence[Mapping[str, Any]] = (
        {"load.multiplier": 1},
        {"load.multiplier": 4},
        {"load.multiplier": 8},
    )
    repetitions: int = 6
    capacity_pps: float = 120_000
    base_pps: float = 25_000
    """The load's rate at load.multiplier 1."""
    defrag: bool = True
    trouble: Mapping[int, Trouble] = field(default_factory=dict)
    """Plan index → what goes wrong."""
    seed: int = 7
    samples: bool = True
    manifest: Mapping[str, Any] = field(default_factory=dict)


DEMO = Fake()
MIXED = Fake(
    name="mixed",
    trouble={
        1: Trouble(late=True),
        4: Trouble(path_lost=507),
        6: Trouble(residual=7),
        9: Trouble(not_ready=True),
        12: Trouble(foreign=3),
    },
)

SETUPS = Fake(
    name="isolation",
    question="What does each setup cost Suricata?",
    cells=tuple(
        {"setup.kind": setup, "load.multiplier": n}
        for setup in ("bare", "docker", "docker-macvtap", "vm")
        for n in (1, 2, 4)
    ),
)
INSTANCES = Fake(
    name="scale-out",
    question="What do more instances carry?",
    cells=tuple(
        {"setup.kind": "oci", "setup.instances": instances, "load.multiplier": n}
        for instances in (1, 2, 4)
        for n in (1, 8)
    ),
)


def make_run(out: Path, fake: Fake = DEMO) -> Path:
    """Makes one run directory and returns its path."""
    rng = random.Random(fake.seed)
    plan = _plan(fake, rng)
    writer = RunWriter.create(
        out,
        fake.name,
        experiment=f'name = "{fake.name}"\nquestion = {json.dumps(fake.question)}\n',
        lab='name = "netns"\n',
        plan_sha256=plan_sha256([dict(cell) for cell, _ in plan]),
        manifest=_manifest(fake),
        started=STARTED,
    )
    with writer:
        for index, (cell, repetition) in enumerate(plan):
            _Trial(fake=fake, cell=cell, repetition=repetition, index=index, rng=rng).make(writer)
        finished = STARTED + timedelta(seconds=9 * len(plan))
        writer.update_manifest({"finished_utc": finished.isoformat(timespec="seconds")})
    return writer.path


def damage(path: Path) -> None:
    """Spoils a run directory the ways a full disk, a crash or a careless hand do."""
    trials = path / "trials.jsonl"
    lines = trials.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:60] + b"\n"
    lines[-1] = lines[-1][:-40]
    trials.write_bytes(b"".join(lines))
    runs = sorted((path / "runs").iterdir())
    (runs[0] / "ledger.json").write_text('{"hops":[{"name":"sent"')
    (runs[2] / "ledger.json").unlink()


def _plan(fake: Fake, rng: random.Random) -> list[tuple[Mapping[str, Any], int]]:
    plan: list[tuple[Mapping[str, Any], int]] = []
    for repetition in range(1, fake.repetitions + 1):
        block = list(fake.cells)
        rng.shuffle(block)
        plan += [(cell, repetition) for cell in block]
    return plan


def _manifest(fake: Fake) -> dict[str, Any]:
    found = {
        "question": fake.question,
        "command": ["nodrop", "run", f"experiments/{fake.name}.toml"],
        "seed": fake.seed,
        "nodrop": {"version": "0.1.0"},
        "node": {"version": "0.1.0", "sha256": "ab" * 32},
        "host": {
            "kernel": "6.18.44",
            "cpu_model": "AMD EPYC 9B45",
            "cpus": 2,
            "memory_bytes": 8_323_284_992,
        },
        "sut": {
            "name": "suricata",
            "version": "7.0.10",
            "bits": {"kind": "image", "sha256": "cd" * 32},
        },
        "load": {"name": "replay", "trace": "realmix.pcap", "trace_sha256": "ef" * 32},
        "self_test": {
            "ring": {
                "sent_packets": 200,
                "readable_packets": 56,
                "tp_packets": 200,
                "tp_drops": 144,
                "tp_packets_includes_drops": True,
            }
        },
        "undo": {"changed": ["network namespace nd-tx", "network namespace nd-rx"], "left": []},
    }
    return {**found, **fake.manifest}


def _running(busiest: BusyThread, ledger: Ledger) -> Running:
    """One thread that did the same all the time, and lost what was lost."""
    span_ns = (0, 10**9)
    time = ThreadTime(
        ran_ns=busiest.cpu_ratio * 1e9, waited_ns=0, came_on=True, states=("R", "R"), cpu=0
    )
    interval = ThreadInterval(begin_ns=0, end_ns=10**9, threads={1: time}, sender={}, cpus={})
    lost = ledger.total(Class.LOST)
    return Running(
        offered_ns=span_ns,
        timeline=ThreadTimeline(intervals=(interval,), names={1: busiest.name}),
        losses=(Losses(thread=busiest.name, begin_mono_ns=0, end_mono_ns=10**9, packets=lost),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    fake: Fake
    cell: Mapping[str, Any]
    repetition: int
    index: int
    rng: random.Random

    @property
    def multiplier(self) -> int:
        return int(self.cell.get("load.multiplier", 1))

    @property
    def trouble(self) -> Trouble:
        return self.fake.trouble.get(self.index, Trouble())

    @property
    def place(self) -> FakePlace | None:
        return place_of(self.cell)

    def make(self, writer: RunWriter) -> None:
        run = f"{self.index + 1:04}-{self.multiplier}x-r{self.repetition:02}"
        folder = writer.trial(run)
        if self.trouble.not_ready:
            dead = Problem(code=Reason.SUT_NOT_READY, words="Suricata was not ready after 60 s")
            verdict = judge(None, None, problems=[dead])
            writer.finish(self._record(run, None, None, verdict, None, error=dead.words))
            return
        ledger = self._books()
        sending = self._sending()
        busiest = self._busiest()
        verdict = judge(ledger, sending, running=_running(busiest, ledger))
        folder.write("ledger", ledger_to_json(ledger))
        if self.fake.samples:
            self._sample(folder, sending.duration_s or 1, busiest.cpu_ratio)
            self._tell(folder, sending, ledger)
        record = self._record(run, ledger, sending, verdict, busiest)
        writer.finish(record, self._details(record, ledger))

    def _books(self) -> Ledger:
        n, trouble = self.multiplier, self.trouble
        carries = self.fake.capacity_pps * (self.place.capacity_factor if self.place else 1)
        over = max(0.0, 1 - carries / (self.fake.base_pps * n)) * self.rng.uniform(0.8, 1.1)
        return books(
            n,
            defrag=self.fake.defrag,
            ring_full_ratio=min(over, 0.99),
            path_lost=trouble.path_lost,
            foreign=trouble.foreign,
            residual=trouble.residual,
        )

    def _sending(self) -> Sending:
        sent = PACKETS * self.multiplier
        intended_s = sent / (self.fake.base_pps * self.multiplier)
        late = self.trouble.late
        return Sending(
            intended_packets=sent,
            sent_packets=sent,
            duration_s=round(intended_s * (1.31 if late else 1.0003), 6),
            intended_duration_s=round(intended_s, 6),
            schedule_error_p99_us=48_211.0 if late else round(self.rng.uniform(9, 40), 1),
        )

    def _busiest(self) -> BusyThread:
        load = self.fake.base_pps * self.multiplier / self.fake.capacity_pps
        ratio = min(0.99, load * self.rng.uniform(0.93, 1.02))
        return BusyThread(name="W#01-ndrx0", cpu_ratio=round(ratio, 3))

    def _record(
        self,
        run: str,
        ledger: Ledger | None,
        sending: Sending | None,
        verdict: Verdict,
        busiest: BusyThread | None,
        error: str | None = None,
    ) -> TrialRecord:
        found: dict[str, Any] = {"body": PacketBooks.of(ledger, verdict)}
        said: dict[str, Any] = {}
        if ledger is not None:
            said = {name: ledger.packets_at(name) for name in ("intended", "sent")}
            said["unsent"] = ledger.total(Class.UNSENT)
        if sending and sending.duration_s:
            p99 = sending.schedule_error_p99_us or 0.0
            said |= {
                "duration_s": sending.duration_s,
                "intended_duration_s": sending.intended_duration_s,
                "per_s": round(sending.sent_packets / sending.duration_s, 1),
                "bps": round(sending.sent_packets * BYTES_PER_PACKET * 8 / sending.duration_s, 1),
                "schedule_error_us": {"p50": 0.2, "p99": p99, "max": round(p99 * 31, 1)},
            }
            found |= {
                "activation_s": round(self.rng.uniform(0.31, 0.38), 3),
                "sut_cpu_s": round(sending.duration_s * 0.9 * min(1, self.multiplier / 4), 3),
                "host_cpu_ratio": round(min(0.97, 0.2 + 0.1 * self.multiplier), 3),
                "sut_rss_peak_bytes": 71_000_000 + 1_000_000 * self.multiplier,
            }
        if self.place and sending and sending.duration_s:
            found |= self._costs(self.place, sending.duration_s, run)
        if busiest:
            found["busiest_thread"] = busiest
        started = STARTED + timedelta(seconds=9 * self.index)
        envelope = {
            "cell": dict(self.cell),
            "repetition": self.repetition,
            "index": self.index,
            "run": run,
            "started_utc": started.isoformat(timespec="seconds"),
            "error": error,
            "offered": Offered(**said),
        }
        return judged(verdict, **envelope | found)

    def _costs(self, place: FakePlace, duration_s: float, run: str) -> dict[str, Any]:
        """Costs from random numbers of their own, so that all others stay what they were."""
        rng = random.Random(f"{self.fake.seed} {run} {self.cell}")
        sut_s = duration_s * 0.2 * min(1, self.multiplier / 4) * place.cpu_factor
        return {
            "accelerator": place.accelerator,
            "activation_s": round(sum(place.phases_s.values()) * spread(rng), 4),
            "sut_cpu_s": round(sut_s * spread(rng), 4),
            "setup_cpu_s": round(sut_s * place.servants_factor * spread(rng), 4),
            "host_cpu_ratio": min(0.99, (0.1 + sut_s / duration_s / 2) * spread(rng)),
            "sut_rss_peak_bytes": round(place.memory_bytes * spread(rng)),
        }

    def _details(self, record: TrialRecord, ledger: Ledger) -> dict[str, Any]:
        duration_s, place = record.offered.duration_s or 1, self.place
        anonymous = place.anonymous_bytes if place else None
        found: dict[str, Any] = {}
        if place:
            rng = random.Random(f"{self.fake.seed} {record.run}")
            found |= place_details(place, rng, sent_packets=record.offered.sent or 0)
        if instances := self.cell.get("setup.instances"):
            received = ledger.packets_at("rx_nic") or 0
            lost = ledger.total(Class.LOST)
            found |= instance_details(int(instances), received=received, lost=lost)
        return {
            **found,
            "usage": {
                "sampler": {"first": {"cpus": [{"cpu": 0}, {"cpu": 1}]}},
                "cgroup": None if anonymous is None else {"anon_peak_bytes": anonymous},
                "marks_mono_ns": {
                    "offer": MONO_NS + OFFER_NS,
                    "offered": MONO_NS + OFFER_NS + round(duration_s * 1e9),
                    "drained": MONO_NS + OFFER_NS + round(duration_s * 1e9) + DRAIN_NS,
                },
            },
            "worked_off": {"drain_at_most_s": DRAIN_NS / 1e9},
            "results": {"decoder.ipv4": 98_000 * self.multiplier, "detect.alert": 0},
        }

    def _tell(self, folder: TrialFolder, sending: Sending, ledger: Ledger) -> None:
        """Writes the sent load and the live readings, from random numbers of their own, so that all
        others stay what they were."""
        rng = random.Random(self.index)
        folder.write("offered", achieved(sending, rng, bytes_per_packet=BYTES_PER_PACKET))
        for row in live_rows(sending, ledger):
            folder.append_live(row)

    def _sample(self, folder: TrialFolder, duration_s: float, busy: float) -> None:
        """Rows in the sampler's format (docs/reference/counters.md), ten a second."""
        rows = SampleRows(packets=PACKETS * self.multiplier, duration_s=duration_s, busy=busy)
        with folder.samples("rx").open("w", encoding="utf-8") as file:
            for row in rows.make(self.rng):
                file.write(json.dumps(row, separators=(",", ":")) + "\n")


FEW = replace(DEMO, cells=({"load.multiplier": 1},), repetitions=24, samples=False)


def again(tmp_path: Path, name: str, fake: Fake = FEW, **manifest: Any) -> Path:
    out = tmp_path / name
    out.mkdir()
    return make_run(out, replace(fake, name=name, seed=len(name), manifest=manifest))
