"""A known answer: what is put in, what nodrop must say, what it said; its captures."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path

from nodrop import plugins
from nodrop.calibrate.faults import Fault
from nodrop.config.lab_file import LabSource
from nodrop.ledger.outcome import Outcome
from nodrop.report.comparison import Compared, compared
from nodrop.report.costs import differences_of
from nodrop.report.setups import compared_at_once
from nodrop.report.story import read_story
from nodrop.results.calibration import Clock, Pace, Spread
from nodrop.results.trial import TrialRecord
from nodrop.stats.comparison import Relation
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.node import NodeProcess
from nodrop.testbed.hosts.rights import in_user_namespace

ON_THIS_KERNEL = frozenset({"bare", "docker", "oci"})
"""Setups whose SUT is a process of this host, with the receiver's port beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    lab: LabSource
    setup: str
    work: Path
    """Folder for traces and runs."""
    cpus: tuple[int, ...]
    """CPUs that this process may use."""
    rootless: bool

    @classmethod
    def here(cls, lab: LabSource, setup: str, work: Path) -> Site:
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        return cls(lab=lab, setup=setup, work=work, cpus=cpus, rootless=in_user_namespace())

    @property
    def _ports(self) -> tuple[str, str]:
        return plugins.build_lab(self.lab).ports

    @property
    def tx(self) -> str:
        return self._ports[0]

    @property
    def rx(self) -> str:
        return self._ports[1]

    def no_filter(self) -> str:
        """Why nothing can be dropped on the sender's way out; "" if it can."""
        return "" if shutil.which("nft") else "program nft is missing (package nftables)"

    def no_xdp(self) -> str:
        if self.rootless:
            return "a normal user may attach no XDP program"
        return self.no_sut_process()

    def no_sut_process(self) -> str:
        """Why the SUT cannot be stopped, frozen or killed from here."""
        if self.setup in ON_THIS_KERNEL:
            return ""
        return f"with setup {self.setup} the SUT is no process of this host"

    def no_frozen_thread(self) -> str:
        if not ctypes.util.find_library("c"):
            return "no C library that ptrace(2) could be called through"
        return self.no_sut_process()

    def no_shared_cpu(self) -> str:
        if self.setup not in ON_THIS_KERNEL:
            return f"with setup {self.setup} the SUT's CPUs are not the sender's"
        return ""


OF_THE_SENDER = "sender_"
"""Beginning of the codes of a sender that was late or short."""

Judge = Callable[[Path, Sequence[TrialRecord]], Sequence[str]]
"""The directory and records of a whole run → what is false in it, in words."""


class CaseOutcome(StrEnum):
    CAUGHT = "caught"
    MISSED = "missed"
    NOT_POSSIBLE = "not possible here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Requirements on a record. None and "" leave a field open."""

    outcome: Outcome = Outcome.MEASURED
    reasons: frozenset[str] = frozenset()
    """Codes of which a trial that is no measurement has at least one."""
    lost: tuple[int, int] | None = None
    """Least and greatest number of lost packets."""
    place: str = ""
    """Regular expressions, of loss_place and of knob."""
    knob: str = ""
    rules: frozenset[str] = frozenset()
    """Rules that may name the cause with the largest share."""

    @property
    def exact(self) -> bool:
        return self.lost is not None and self.lost[0] == self.lost[1]

    def mismatches(self, record: TrialRecord) -> list[str]:
        """Differences of a record from the requirements, in words."""
        found, books = [], record.packets
        if record.outcome != self.outcome:
            found.append(f"{record.outcome}, not {self.outcome}")
        if self.reasons and not self.reasons.intersection(record.invalid_reasons):
            said = ", ".join(record.invalid_reasons) or "none"
            found.append(f"reasons {said}, not {' or '.join(sorted(self.reasons))}")
        if self.lost is not None and not self._fits(books.lost_packets):
            low, high = self.lost
            wanted = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            lost = "unknown" if books.lost_packets is None else f"{books.lost_packets:,}"
            found.append(f"lost {lost}, not {wanted}")
        for name, wanted, told in (
            ("place", self.place, books.loss_place or ""),
            ("knob", self.knob, books.knob),
        ):
            if wanted and not re.search(wanted, told):
                found.append(f"{name} {told or 'not named'!r}")
        if self.rules and not self.rules.intersection(c.rule for c in books.loss_causes[:1]):
            words = " or ".join(sorted(self.rules))
            found.append(f"cause {books.loss_cause or 'not named'!r}, not {words}")
        return found

    def _fits(self, lost: int | None) -> bool:
        assert self.lost is not None
        return lost is not None and self.lost[0] <= lost <= self.lost[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A known answer: an experiment of a few short trials with a fault in each."""

    name: str
    put_in: str
    """The fault in words, for the table."""
    settings: Sequence[str]
    """`--set`s on the base experiment; measure.repetitions as long as `expected`."""
    expected: Sequence[Expected] = ()
    """Expectations, one per trial, in their order; empty if `judge` says all."""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """Step of the trial → what is put in as it begins."""
    judge: Judge | None = None
    not_possible: str = ""
    """Why it cannot be tried here."""
    about_s: float = 4.0

    def misses(self, directory: Path, records: Sequence[TrialRecord]) -> list[str]:
        """Everything that was said otherwise; empty: the known answer is caught."""
        found = []
        if self.expected and len(records) != len(self.expected):
            found.append(f"{len(records)} trials, not {len(self.expected)}")
        for number, (record, wanted) in enumerate(zip(records, self.expected, strict=False), 1):
            said = wanted.mismatches(record)
            if said:
                trial = f"trial {number}: " if len(self.expected) > 1 else ""
                found.append(trial + "; ".join(said))
        if self.judge is not None and not found:
            found += self.judge(directory, records)
        return found

    def disturbed(self, records: Sequence[TrialRecord]) -> bool:
        """The host made the sender late, not the case: the trial says nothing, which is not a false
        sentence."""
        return any(
            wanted.outcome is not Outcome.VOID
            and Outcome(record.outcome) is Outcome.VOID
            and all(reason.startswith(OF_THE_SENDER) for reason in record.invalid_reasons)
            for record, wanted in zip(records, self.expected, strict=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """Result of a case that was tried."""

    case: Case
    answer: CaseOutcome
    seen: str
    """The trials as nodrop judged them, in words."""
    why: str = ""
    """Differences from what was expected, or why the case could not be tried."""
    took_s: float = 0.0
    records: tuple[TrialRecord, ...] = ()
    directory: Path | None = None
    spread: Spread | None = None
    """Spread of the two cells that differ in nothing."""


MOST_LISTED = 4


def seen_words(records: Sequence[TrialRecord]) -> str:
    """The trials' outcomes in a line, those alike together."""
    groups: dict[str, list[int]] = {}
    for record in records:
        words = _words(record)
        groups.setdefault(words, []).append(record.packets.lost_packets or 0)
    return "; ".join(_together(words, lost) for words, lost in groups.items())


def _words(record: TrialRecord) -> str:
    """Result of a trial, with `{}` in the place of the number of lost packets."""
    if not record.valid:
        return f"{record.outcome}: {', '.join(record.invalid_reasons)}"
    of, books = f"{record.offered.sent or 0:,}", record.packets
    return f"lost {{}} of {of}, {books.loss_place}" if books.lost_packets else f"no loss in {of}"


def _together(words: str, lost: Sequence[int]) -> str:
    if "{}" not in words:
        return f"{len(lost)} x {words}" if len(lost) > 1 else words
    if len(lost) <= MOST_LISTED:
        return words.format(", ".join(f"{packets:,}" for packets in lost))
    return f"{len(lost)} x {words.format(f'{min(lost):,} to {max(lost):,}')}"


# Figures of a certificate that no fault is needed for: pace, A/A spread, clocks.

# The capture files of the known answers: small, the same everywhere, written when needed.

PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
ETHERNET = bytes.fromhex("020000000002 020000000001 0800")
ETHERNET_BYTES = len(ETHERNET)
UDP, MORE_FRAGMENTS = 17, 0x2000

Timed = tuple[float, bytes]
"""Seconds from the first packet on, and the frame."""


def write(path: Path, frames: Iterable[Timed]) -> Path:
    with path.open("wb") as file:
        file.write(PCAP_HEADER)
        for at_s, frame in frames:
            s, us = divmod(round(at_s * 1e6), 1_000_000)
            file.write(struct.pack("<IIII", s, us, len(frame), len(frame)) + frame)
    return path


def steady(packets: int) -> Iterator[Timed]:
    """UDP of 64 flows in turn; to be sent at a constant rate."""
    for n in range(packets):
        yield n * 1e-4, datagram(n % 64, 128)


def every(nth: int, packets: int, *, frame_bytes: int) -> Iterator[Timed]:
    """Small frames, of which each n-th is a larger one."""
    for n in range(packets):
        yield n * 1e-4, datagram(n % 64, frame_bytes if n % nth == nth - 1 else 128)


def bursts(count: int, *, packets: int, gap_s: float, apart_s: float) -> Iterator[Timed]:
    """Bursts of `packets` packets that are `apart_s` apart; a burst begins every `gap_s`."""
    for burst in range(count):
        for n in range(packets):
            yield burst * gap_s + n * apart_s, datagram(n % 64, 128)


def fragments(*, unfinished: int, whole: int) -> Iterator[Timed]:
    """First fragments whose datagrams never become whole, then datagrams in two fragments each."""
    first, rest = bytes(1400), bytes(200)
    told = chain(
        ((_fragment(n, first, at=0, more=True),) for n in range(unfinished)),
        (
            (_fragment(n, first, at=0, more=True), _fragment(n, rest, at=1400, more=False))
            for n in range(unfinished, unfinished + whole)
        ),
    )
    for n, frame in enumerate(chain.from_iterable(told)):
        yield n * 1e-4, frame


def datagram(flow: int, frame_bytes: int) -> bytes:
    room = frame_bytes - ETHERNET_BYTES - 20 - 8
    payload = struct.pack(">HHHH", 10_000 + flow, 9, 8 + room, 0) + bytes(room)
    return ETHERNET + _ipv4(flow, payload, number=0, offset=0) + payload


def _fragment(number: int, payload: bytes, *, at: int, more: bool) -> bytes:
    offset = at // 8 | (MORE_FRAGMENTS if more else 0)
    return ETHERNET + _ipv4(number % 64, payload, number=number, offset=offset) + payload


def _ipv4(host: int, payload: bytes, *, number: int, offset: int) -> bytes:
    source, target = bytes((10, 1, 0, 1 + host % 250)), bytes((10, 2, 0, 1))
    length = 20 + len(payload)
    head = struct.pack(">BBHHHBBH", 0x45, 0, length, number & 0xFFFF, offset, 64, UDP, 0)
    total = sum(struct.unpack(">10H", head + source + target))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + source + target


RATES = (10_000, 30_000, 100_000, 200_000, 400_000, 800_000, 1_600_000)
PACED_S = 0.5
RUNS = 10
"""Runs of each of the two cells that differ in nothing: from fewer, no difference could be seen."""


def steady_load(site: Site, pps: int, packets: int) -> list[str]:
    """Command line that sends `packets` packets of 128 bytes at a constant rate."""
    path = site.work / "steady.pcap"
    if not path.exists():
        write(path, steady(1000))
    return [f"load.trace={path}", f"load.loops={packets // 1000}", f"load.pps={pps}"]


def pace_case(site: Site) -> Case:
    return Case(
        name="pace",
        put_in=f"{RATES[0]:,} to {RATES[-1]:,} packets/s, {PACED_S:g} s each",
        settings=[
            *steady_load(site, RATES[0], int(RATES[-1] * PACED_S)),
            f"load.duration_s={PACED_S}",
            f"matrix.load.pps={list(RATES)}",
            "measure.repetitions=1",
        ],
        about_s=13,
    )


def pace_of(records: Sequence[TrialRecord]) -> Pace:
    """The sender's pace by its own bounds, whatever the sink lost."""
    reached: float | None = None
    for record in sorted(records, key=_rate):
        if any(reason.startswith(OF_THE_SENDER) for reason in record.invalid_reasons):
            break
        reached = _rate(record)
    return Pace(largest_pps=reached, tried_pps=sorted(map(_rate, records)))


def _rate(record: TrialRecord) -> float:
    value = record.cell["load.pps"]
    assert isinstance(value, int | float)
    return float(value)


def spread_case(site: Site) -> Case:
    """The seed chooses the addresses of replicas, and there are none."""
    return Case(
        name="a-a",
        put_in=f"two cells that differ in nothing, {RUNS} runs of each, 40 % lost",
        settings=[
            *steady_load(site, 20_000, 10_000),
            "sut.service_rate_pps=10000",
            "sut.ring_frames=1000",
            "matrix.load.seed=[1,2]",
            f"measure.repetitions={RUNS}",
            "measure.late_p99_us=100000",
        ],
        judge=_differ,
        about_s=28,
    )


def _differ(directory: Path, records: Sequence[TrialRecord]) -> Sequence[str]:
    if not all(record.valid for record in records):
        return [f"{sum(not r.valid for r in records)} of {len(records)} trials are not valid"]
    return [
        f"{name}: {item.verdict}"
        for name, item in _compared(directory).items()
        if item.answer is Relation.DIFFERENT
    ]


def _compared(directory: Path) -> Mapping[str, Compared]:
    """Figure → both cells of a run."""
    story = read_story([directory])
    base, other = story.cells
    family = compared_at_once(story)
    return {f.name: compared(base, other, f, family) for f in differences_of(story.cells)}


def spread_of(directory: Path, records: Sequence[TrialRecord]) -> Spread:
    return Spread(
        verdicts={name: item.verdict for name, item in _compared(directory).items()},
        loss_ratio=_range([r.packets.loss_ratio for r in records]),
        sut_cpu_s=_range([r.sut_cpu_s for r in records]),
        runs=len(records),
    )


def _range(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def clocks_of(site: Site) -> list[Clock]:
    """Both ends of the lab, asked as a trial would ask them."""
    found = []
    with DiskJournal.create() as journal, plugins.build_lab(site.lab).up(journal) as link:
        for port in (link.tx, link.rx):
            spool = site.work / f"clock-{port.host.name}.jsonl"
            spec = {"job": "sample", "interval_ms": 1000, "path": str(spool)}
            with closing(port.host.job(spec)) as job:
                assert isinstance(job, NodeProcess)
                fix = job.clock()
                found.append(
                    Clock(host=port.host.name, offset_ns=fix.offset_ns, bound_ns=fix.bound_ns)
                )
    return found
