"""SUTs whose truth is known, that answer a search without a lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nodrop.capacity.answering import answers
from nodrop.capacity.controller import Capacity
from nodrop.capacity.search_answer import Answer
from nodrop.config.search import Search
from nodrop.ledger.over_time import Busy, WatchedRamp, shown
from nodrop.measure.controllers.blocks import Asked, AskedCell, Controller, TrialInput
from nodrop.results.trial import Ramp, Searched, TrialRecord
from tests.made import outcome_runs

PACKETS_PER_S = 10_000.0
"""Rate of a load of 1."""
METHODS: list[dict[str, Any]] = [
    {"method": "nodrop"},
    {"method": "bisection", "min": 0.25, "max": 64.0},
    {"method": "mlrsearch", "min": 0.25, "max": 64.0},
]


@dataclass(kw_only=True)
class SimulatedSut:
    """Serves `capacity` of the scale, less what a trial's noise takes."""

    capacity: float
    noise: float = 0.0
    """One-sided: |N(0, 1)| times this part of the capacity is missing in a trial."""
    stall_ratio: float = 0.0
    """Part of the trials that stand still for a tenth of their time."""
    disturbed_ratio: float = 0.0
    """Part of the trials that are void because the hypervisor takes the sender's CPU."""
    ticks: float = 0.0
    """Part of the trials in which the hypervisor takes the SUT's CPU for 10 ms. Packets beyond the
    ring are then lost."""
    thefts_per_s: float = 0.0
    """The hypervisor takes the SUT's CPU so often, 10 ms each, and it is seen when packets went."""
    path_loss: float = 0.0
    """Share of the packets lost before the SUT, at any load."""
    bursts: float = 0.0
    """The load swings by this part of its mean, evenly: what is above the capacity is lost."""
    spikes: tuple[float, float] = (0.0, 1.0)
    """Part of the time, and the load in that part as a multiple of its mean."""
    ring_packets: int = 0
    reads: bool = True
    """Its counters can be read while it works."""
    cpu_ratio: float = 0.0
    """CPU of its busiest thread at its capacity; 0 = it cannot be seen."""
    sender_most: float = float("inf")
    """Load beyond which the sender is late."""
    sender_seldom: float = float("inf")
    """Load beyond which the sender is in time in one trial of four."""
    late_p99_us: float = 8_000.0
    """The lateness of a sender that is late."""
    crashes_above: float = float("inf")
    counters_stop_above: float = float("inf")
    void_from: tuple[int, str] | None = None
    """First trial that is void, as all later ones are, and the reason, whatever the load is."""
    between_starts: float = 0.0
    """Standard deviation of the capacity from start to start, as a part of it."""
    drift: Callable[[int], float] = field(default=lambda index: 1.0)
    """Factor of a trial's capacity."""
    tires: float = 0.0
    """Part of its capacity that is lost with each trial of one start."""
    drops: tuple[float, float] = (0.0, 0.0)
    """Part of the trials, and the part of the packets lost in them, whatever the load is."""
    modes: tuple[float, float] = (0.0, 1.0)
    """This part of its starts serve so much of the capacity."""
    misses: Callable[[float, float], float | None] = field(default=lambda load, loss: 0.0)
    """Part of its detections that it misses of this load if it loses this part of the packets; None
    if too few are expected."""
    random: Random = field(default_factory=lambda: Random(1))
    _start: float = 1.0
    _trials_of_start: int = 0

    def least(self, index: int) -> float:
        """Rate that it serves at this trial, or that its weaker starts do."""
        return self.capacity * self.drift(index) * (self.modes[1] if self.modes[0] else 1.0)

    def measure(self, trial: TrialInput) -> TrialRecord:
        assert trial.searched is not None
        if trial.new_world:
            self._start = 1 + self.between_starts * self.random.gauss(0, 1)
            if self.modes[0] and self.random.random() < self.modes[0]:
                self._start *= self.modes[1]
            self._trials_of_start = 0
        self._trials_of_start += 1
        x, seconds = trial.searched.value, trial.searched.duration_s
        common: dict[str, Any] = {
            "cell": dict(trial.cell),
            "repetition": trial.repetition,
            "index": trial.index,
            "run": trial.run_name,
            "took_s": seconds + 2.0,
            "searched": trial.searched,
        }
        if self.void_from is not None and trial.index >= self.void_from[0]:
            return _record(common, "void", [self.void_from[1]], "void: as at any load")
        if trial.searched.ramp is not None:
            return self._ramped(common, trial.searched)
        if self.disturbed_ratio and self.random.random() < self.disturbed_ratio:
            late = "void: the sender was late; the hypervisor gave 30 % of its CPU to others"
            return _record(common, "void", ["sender_late"], late, steal_ratio=0.3)
        seldom = x > self.sender_seldom and self.random.random() < 0.75
        if x > self.sender_most or seldom:
            error = {"p50": 150.0, "p99": self.late_p99_us, "max": self.late_p99_us}
            said = "void: the sender was late"
            return _record(common, "void", ["sender_late"], said, schedule_error_us=error)
        if x > self.counters_stop_above:
            return _record(common, "void", ["not_read"], "void: its counters were not read")
        if x > self.crashes_above:
            return _record(common, "failed", ["sut_died"], "failed: it was killed by SIGSEGV")
        return self._measured(common, x, seconds)

    def _capacity(self, index: int) -> float:
        tired = (1 - self.tires) ** (self._trials_of_start - 1)
        return self.capacity * self._start * self.drift(index) * tired

    def _ramped(self, common: dict[str, Any], asked: Searched) -> TrialRecord:
        """A load that grows by equal factors, as nodrop reads it."""
        assert asked.ramp is not None
        if asked.value > self.crashes_above:
            return _record(common, "failed", ["sut_died"], "failed: it was killed by SIGSEGV")
        seconds, growth = asked.duration_s, asked.value / asked.ramp.start
        served = self._capacity(common["index"])
        served *= 1 - self.noise * abs(self.random.gauss(0, 1))
        if self.random.random() < self.stall_ratio:
            served *= 0.9
        interval_s = 0.1
        values = [
            asked.ramp.start * growth ** ((n + 0.5) * interval_s / seconds)
            for n in range(round(seconds / interval_s))
        ]
        sent = [min(value, self.sender_most) * PACKETS_PER_S * interval_s for value in values]
        here = [n * (1 - self.path_loss) for n in sent]
        beyond = sum(max(0.0, n - served * PACKETS_PER_S * interval_s) for n in here)
        lost = max(0.0, beyond - self.ring_packets) + sum(sent) - sum(here)
        step_ns = round(interval_s * 1e9)
        first = 0 if self.path_loss else sum(value < served for value in values)
        found = shown(
            WatchedRamp(
                first_ns=0,
                interval_ns=step_ns,
                sent=[round(n) for n in sent],
                lost=round(lost) if self.reads else None,
                end_pps=asked.value * PACKETS_PER_S,
                lossy_ns=(first * step_ns, (first + 10) * step_ns)
                if lost >= 1 and self.reads
                else None,
                busy=[
                    Busy(
                        mono_ns=(n * 5 + 2) * step_ns,
                        cpu_ratio=min(1.0, values[n * 5 + 2] * self.cpu_ratio / self.capacity),
                    )
                    for n in range(len(values) // 5)
                    if self.cpu_ratio
                ],
            )
        )
        ramp = Ramp(
            start=asked.ramp.start,
            clean_to=None if found.clean_pps is None else found.clean_pps / PACKETS_PER_S,
            sender_to=None if found.sender_pps is None else found.sender_pps / PACKETS_PER_S,
            expects=None if found.expects_pps is None else found.expects_pps / PACKETS_PER_S,
            expects_by=found.by,
        )
        common["searched"] = asked.model_copy(update={"ramp": ramp})
        if asked.value > min(self.sender_most, self.counters_stop_above):
            return _record(common, "void", ["sender_late"], "void: the sender was late")
        ratio = lost / sum(sent)
        return _record(
            common,
            "measured",
            [],
            f"{ratio:.3%} lost",
            duration_s=seconds,
            loss_ratio=ratio,
            **_where(lost, in_ring=beyond > self.ring_packets),
        )

    def _measured(self, common: dict[str, Any], x: float, seconds: float) -> TrialRecord:
        served = self._capacity(common["index"])
        served *= 1 - self.noise * abs(self.random.gauss(0, 1))
        if self.random.random() < self.stall_ratio:
            served *= 0.9
        sent = x * PACKETS_PER_S * seconds
        came = sent * (1 - self.path_loss)
        can = served * PACKETS_PER_S * seconds
        behind = sum(
            max(0.0, came * (1 + self.bursts * (2 * n / 9 - 1)) - can) / 10 for n in range(10)
        )
        share, times = self.spikes
        behind = (1 - share) * behind + share * max(0.0, came * times - can)
        stolen_s = 0.01 if self.ticks and self.random.random() < self.ticks else 0.0
        own = max(0.0, behind - self.ring_packets)
        beyond: int | None = None
        if self.thefts_per_s:
            chances = [self.random.random() for _ in range(int(seconds * 100))]
            thefts = sum(chance < self.thefts_per_s / 100 for chance in chances)
            stolen_s += thefts * 0.01
            # What was lost while a theft and its aftermath lasted says nothing.
            beyond = round(own * max(0.0, 1 - thefts * 0.4 / seconds))
        behind += came * stolen_s / seconds
        held = min(behind, self.ring_packets)
        lost = sent - came + behind - held
        if self.drops[0] and self.random.random() < self.drops[0]:
            lost = max(lost, sent * self.drops[1])
        decoded = max(0, round(sent) - round(lost))
        drain_s = held / (served * PACKETS_PER_S)
        pace = decoded / (seconds + drain_s)
        share = seconds / (seconds + drain_s)
        sustained = False if share < 0.95 else None if share < 0.99 or lost >= 1 else True
        ratio = round(lost) / round(sent)
        if common["searched"].goals_of == "detections":
            missed = self.misses(x, ratio)
            common["detections"] = {
                "detection_loss_ratio": missed,
                "no_ratio": "" if missed is not None else "5 expected units are fewer than 20",
                "seen": 100,
                "alerts": 100,
            }
        return _record(
            common,
            "measured",
            [],
            f"{ratio:.3%} lost" if round(lost) else "no loss",
            offered_packets=round(sent),
            offered_pps=sent / seconds,
            offered_bps=sent / seconds * 8000,
            duration_s=seconds,
            decoded_packets=decoded,
            lost_packets=round(lost),
            loss_ratio=ratio,
            **_where(lost, in_ring=behind - held >= 1 or not self.path_loss),
            sustained=sustained,
            service_pps_at_least=pace,
            steal_ratio=stolen_s / seconds or None,
            lost_beyond_steal_packets=beyond,
        )


def _where(lost: float, *, in_ring: bool) -> dict[str, str]:
    if not round(lost):
        return {}
    return {"loss_place": "socket ring" if in_ring else "path", "knob": "more threads"}


def _record(
    common: dict[str, Any], outcome: str, reasons: list[str], verdict: str, **fields: Any
) -> TrialRecord:
    found = {"outcome": outcome, "valid": outcome == "measured", "verdict": verdict}
    return outcome_runs.trial(**common, **found, invalid_reasons=reasons, **fields)


def cell(**fields: Any) -> AskedCell:
    load = {"kind": "replay", "trace": "make:demo", **fields.pop("load", {})}
    times = load.get("multiplier", 1) * load.get("speed", 1.0)
    return AskedCell(
        factors=fields.pop("factors", {}),
        load=load,
        first_pps=load.get("pps") or 100_000 / 60 * times,
        trace_packets=100_000,
        trace_s=fields.pop("trace_s", None),
    )


def controller(search: Search, *cells: AskedCell, seed: int = 1, sut: Any = "fresh") -> Capacity:
    return Capacity(
        Asked(
            cells=cells or (cell(),),
            repetitions=1,
            seed=seed,
            sut=sut,
            guess_s=10.0,
            around_s=2.0,
            search=search,
        )
    )


def run(
    asks: Controller, measure: Callable[[TrialInput], TrialRecord], *, most: int = 1000
) -> Sequence[TrialRecord]:
    done: list[TrialRecord] = []
    while (trial := asks.next(done)) is not None:
        assert len(done) < most, "no end"
        done.append(measure(trial))
    return done


def searched(sut: SimulatedSut, **settings: Any) -> dict[float, Answer]:
    search = Search(**settings)
    found = answers(run(controller(search, sut="standing"), sut.measure), search)
    return {answer.goal: answer for answer in found}


def texts(answer: Answer) -> str:
    return "; ".join(statement.text for statement in answer.findings)


def asked_for(index: int, value: float, seconds: float, *, round: int = 1) -> TrialInput:
    asked = Searched(by="multiplier", value=value, duration_s=seconds, round=round)
    return TrialInput(index=index, cell={}, repetition=index, load={}, searched=asked)
