"""The thread study of 2017: its claims, held against the thread models of this run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodrop.ledger.imbalance import UNEVEN
from nodrop.profile.scaling import ThreadModelRun
from nodrop.profile.threads import thread_models
from nodrop.report.sections import Section
from nodrop.report.story import Story
from nodrop.report.tables import Field, Table, table_of, words
from nodrop_studies.words import NOTES

AUTOFP_GAIN = 1.13
"""Printed: the most that autofp gained from more capture threads."""
PORTS_GAIN = 1.28
MOST = 0.5
HALF_LOST = 0.4
"""Share of the packets from which on the loss is called about half."""


class Stands(StrEnum):
    HOLDS = "holds here"
    DOES_NOT = "does not hold here"
    CANNOT_TELL = "cannot tell on this host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    claim: str
    stands: Stands
    evidence: str


def judged(models: Sequence[ThreadModelRun]) -> tuple[Judged, ...]:
    return (
        _autofp(models),
        _cpu_grows(models),
        _uneven(models),
        _two_ports(models),
        _half_lost(models),
        _locks(models),
    )


def _autofp(models: Sequence[ThreadModelRun]) -> Judged:
    claim = f"Autofp gains no more than {AUTOFP_GAIN} from more capture threads"
    autofp = [m for m in models if m.runmode == "autofp"]
    pairs = list(_more_threads(autofp, same_detect=True))
    if not pairs:
        return _unknown(claim, "no autofp models that differ in their capture threads alone")
    return _gains(
        claim,
        pairs,
        at_most=AUTOFP_GAIN,
        words=lambda more: f"{more.capture_threads} capture threads carry",
    )


def _two_ports(models: Sequence[ThreadModelRun]) -> Judged:
    """Judgement of models with as many threads on each of two ports as others have on one."""
    claim = f"Workers gain no more than {PORTS_GAIN} from two NICs"
    pairs = list(_second_port([m for m in models if m.runmode == "workers"]))
    if not pairs:
        return _unknown(claim, "no models of workers that differ in their ports alone (sut.ports)")
    return _gains(claim, pairs, at_most=PORTS_GAIN, words=lambda _: "two ports carry")


def _half_lost(models: Sequence[ThreadModelRun]) -> Judged:
    """Only a load that is too much for one port says what the second is worth."""
    claim = "About half of the traffic is lost with two NICs"
    pairs = list(_second_port(models))
    if not pairs:
        return _unknown(claim, "no models that differ in their ports alone (sut.ports)")
    real = [(a, b) for a, b in pairs if not (a.shares_cpus or b.shares_cpus)]
    if not real:
        return _unknown(
            claim, "more threads ran than the SUT had CPUs of its own: time-sharing, not scaling"
        )
    lost = [(a.loss.median, b.loss.median) for a, b in real if a.load and a.loss and b.loss]
    if not lost:
        return _unknown(claim, "no load was offered to models of one port and of two")
    most = max(two for _, two in lost)
    words = f"two ports lost {most * 100:.1f} % at most, in {len(lost)} pairs of models and loads"
    if any(two >= HALF_LOST and one < two / 2 for one, two in lost):
        return Judged(
            claim=claim, stands=Stands.HOLDS, evidence=f"{words}; one port less than half"
        )
    if most < HALF_LOST and any(one > 0 for one, _ in lost):
        return Judged(claim=claim, stands=Stands.DOES_NOT, evidence=words)
    return _unknown(claim, f"{words}, and no load was too much for one port alone")


def _second_port(
    models: Sequence[ThreadModelRun],
) -> Iterator[tuple[ThreadModelRun, ThreadModelRun]]:
    """(one port, two), with as many threads on each, under one load."""
    for model in models:
        for two in models:
            alike = (model.runmode, model.load, model.rest) == (two.runmode, two.load, two.rest)
            each = two.capture_threads == 2 * model.capture_threads
            if alike and each and (model.ports, two.ports) == (1, 2):
                yield model, two


def _gains(
    claim: str,
    pairs: Sequence[tuple[ThreadModelRun, ThreadModelRun]],
    *,
    at_most: float,
    words: Callable[[ThreadModelRun], str],
) -> Judged:
    """Judgement of pairs (fewer, more) of threads, by what each carries."""
    real = [(a, b) for a, b in pairs if not (a.shares_cpus or b.shares_cpus)]
    if not real:
        return _unknown(
            claim, "more threads ran than the SUT had CPUs of its own: time-sharing, not scaling"
        )
    known = [(a, b, a.capacity, b.capacity) for a, b in real if a.capacity and b.capacity]
    if not known:
        return _unknown(claim, 'capacities were not searched (measure.mode = "capacity")')
    gains = [(b[0] / a[1], b[1] / a[0], words(more)) for _, more, a, b in known if a and b]
    low, high, who = max(gains)
    said = f"{who} {low:.2f} to {high:.2f} times what fewer carry"
    if low > at_most:
        return Judged(claim=claim, stands=Stands.DOES_NOT, evidence=said)
    if all(most <= at_most for _, most, _ in gains):
        return Judged(claim=claim, stands=Stands.HOLDS, evidence=said)
    return _unknown(claim, f"{said}: the bounds enclose {at_most}")


def _cpu_grows(models: Sequence[ThreadModelRun]) -> Judged:
    claim = "CPU grows with the threads while packets do not"
    pairs = list(_more_threads(models, same_detect=False))
    if not pairs:
        return _unknown(claim, "no models of one run mode and load that differ in their threads")
    real = [(a, b) for a, b in pairs if not (a.shares_cpus or b.shares_cpus)]
    if not real:
        return _unknown(
            claim, "more threads ran than the SUT had CPUs of its own: time-sharing, not scaling"
        )
    found = []
    for fewer, more in real:
        a, b = fewer.cpu_s_per_million, more.cpu_s_per_million
        if a and b and a.interval and b.interval:
            low, high = b.interval.low / a.interval.high, b.interval.high / a.interval.low
            found.append((low, high, fewer.threads, more.threads))
    if not found:
        return _unknown(claim, "CPU per packet has no interval: six runs of each model give one")
    words = "; ".join(
        f"{more} threads took {low:.2f} to {high:.2f} times the CPU per packet of {fewer}"
        for low, high, fewer, more in found
    )
    halfway = [(low, high, 1 + (more / fewer - 1) / 2) for low, high, fewer, more in found]
    if all(low > middle for low, _, middle in halfway):
        return Judged(claim=claim, stands=Stands.HOLDS, evidence=words)
    if all(high < middle for _, high, middle in halfway):
        return Judged(claim=claim, stands=Stands.DOES_NOT, evidence=words)
    return _unknown(claim, words)


def _uneven(models: Sequence[ThreadModelRun]) -> Judged:
    claim = "The load over threads with the same work is uneven"
    found = [(m.label, m.over_mean.median) for m in models if m.over_mean is not None]
    if not found:
        return _unknown(claim, "no model had several threads with the same work")
    least, most = min(over for _, over in found), max(over for _, over in found)
    low, high = f"{least * 100:.0f} %", f"{most * 100:.0f} %"
    over = low if low == high else f"{low} to {high}"
    among = "one model" if len(found) == 1 else f"{len(found)} models"
    words = (
        f"the busiest thread had {over} more than its share, in {among}; from "
        f"{UNEVEN * 100:.0f} % on it is called uneven"
    )
    if least >= UNEVEN:
        return Judged(claim=claim, stands=Stands.HOLDS, evidence=words)
    if most < UNEVEN:
        return Judged(claim=claim, stands=Stands.DOES_NOT, evidence=words)
    return _unknown(claim, f"{words}: it depends on the model")


def _locks(models: Sequence[ThreadModelRun]) -> Judged:
    claim = "Most time is spent in locks of the flow table, packet pools and polling"
    found = [m.coordination for m in models if m.coordination is not None]
    if not found:
        return _unknown(claim, "no functions were sampled (`nodrop profile`): CPU and wait were")
    least, most = min(found), max(whole for _, whole in found)
    words = (
        f"locks, conditions and polling had {least[0] * 100:.0f} % to "
        f"{max(found)[0] * 100:.0f} % of the CPU time of capture and detect threads, and up to "
        f"{most * 100:.0f} % with switching, in {len(found)} models; whose locks is not known"
    )
    if least[0] > MOST:
        return Judged(claim=claim, stands=Stands.HOLDS, evidence=words)
    if most <= MOST:
        return Judged(claim=claim, stands=Stands.DOES_NOT, evidence=words)
    return _unknown(claim, words)


def _more_threads(
    models: Sequence[ThreadModelRun], *, same_detect: bool
) -> Iterator[tuple[ThreadModelRun, ThreadModelRun]]:
    """(fewer, more) of one run mode under one load."""
    for fewer in models:
        for more in models:
            alike = _but_threads(fewer) == _but_threads(more)
            if same_detect:
                alike = alike and fewer.detect_threads == more.detect_threads
                grows = more.capture_threads > fewer.capture_threads
            else:
                grows = more.threads > fewer.threads
            if alike and grows:
                yield fewer, more


def _but_threads(model: ThreadModelRun) -> tuple[object, ...]:
    return model.runmode, model.load, model.ports, model.rest


def _unknown(claim: str, why: str) -> Judged:
    return Judged(claim=claim, stands=Stands.CANNOT_TELL, evidence=why)


CLAIM_FIELDS: tuple[Field[Judged], ...] = (
    words("claim", "The study found", lambda judged: judged.claim),
    words("stands", "Here", lambda judged: judged.stands),
    words("evidence", "Evidence", lambda judged: judged.evidence),
)


def tables(story: Story) -> Iterator[Table]:
    """Claims on what models differ in; none if all models have the same shape."""
    found = thread_models(story)
    if found is not None and len({model.shape for model in found.models}) > 1:
        title = "What the thread study of 2017 found, and here"
        yield table_of("thread-claims", title, CLAIM_FIELDS, judged(found.models))


SECTION = Section(
    id="study-2017", title="The thread study of 2017", note=NOTES["study-2017"], tables=tables,
    place=20, with_search=False,
)  # fmt: skip
