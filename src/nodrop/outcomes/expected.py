"""Detections that a SUT is to make in a load: units of lossless trials, and how a trial
compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nodrop.config.units import count_of
from nodrop.outcomes.found import Found, Unit, flows_of
from nodrop.results.packets import (
    LEAST_UNITS,
    MOST_NAMED,
    DetectionClass,
    Detections,
    FlowOfMissed,
    MissedByFlow,
    MissedUnit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Units that the SUT finds if nothing is lost."""

    offline: Found | None
    """Detections of the SUT's own reading of the trace; None if it did not read it."""
    live: Sequence[Found] = ()
    """Detections of lossless trials at a low load."""
    why: str = ""
    """The missing parts of the baseline, and why they are missing, in words."""

    @property
    def kind(self) -> Literal["offline", "live"] | None:
        return "live" if self.live else "offline" if self.offline is not None else None

    @property
    def _each(self) -> Sequence[Found]:
        return self.live or ([] if self.offline is None else [self.offline])

    @property
    def expected(self) -> frozenset[Unit]:
        """Seen in every one."""
        each = [one.units for one in self._each]
        return frozenset.intersection(*each) if each else frozenset()

    @property
    def uncertain(self) -> frozenset[Unit]:
        """Seen in some, not in all."""
        each = [one.units for one in self._each]
        return frozenset().union(*each) - self.expected

    @property
    def flows(self) -> Mapping[str, int]:
        """Packets by flow: the fewest that one of its trials saw, so that what differs between
        lossless trials is no loss."""
        each = [one.flows for one in self._each]
        shared = set.intersection(*map(set, each)) if each else set()
        return {flow: min(one[flow] for one in each) for flow in shared}

    @property
    def words(self) -> str:
        """How its trials and the SUT's own reading compare."""
        if self.offline is None or not self.live:
            said = {
                "offline": "expected: what the SUT finds when it reads the trace itself",
                "live": f"expected: what {count_of(len(self.live), 'lossless trial')} found",
            }.get(self.kind or "", "")
            return "; ".join(filter(None, (said, self.why)))
        seen, found = frozenset().union(*(one.units for one in self.live)), self.offline.units
        if seen == found and not self.uncertain:
            return (
                f"{len(self.live)} lossless trials found the same {len(found):,} units as the SUT "
                "when it reads the trace itself"
            )
        return (
            f"{len(self.live)} lossless trials: {len(self.expected):,} units in each, "
            f"{len(self.uncertain):,} in some; {len(seen - found):,} of them the SUT does not find "
            f"when it reads the trace itself, where it finds {len(found - seen):,} others"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "offline": None if self.offline is None else self.offline.to_json(),
            "live": [one.to_json() for one in self.live],
            "why": self.why,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Baseline:
        offline = said["offline"]
        return cls(
            offline=None if offline is None else Found.from_json(offline),
            live=[Found.from_json(one) for one in said["live"]],
            why=said["why"],
        )


def compared(found: Found, baseline: Baseline, *, measured: bool) -> Detections:
    """A trial with what was to be expected; `measured`: its books stand."""
    common: dict[str, Any] = {
        "seen": len(found.units),
        "alerts": found.alerts,
        "events": dict(found.events),
        "unread": dict(found.unread),
        "baseline_words": baseline.words or baseline.why,
    }
    if baseline.kind is None:
        return Detections(no_ratio=baseline.why or "no baseline", **common)
    expected, uncertain = baseline.expected, baseline.uncertain
    missed = expected - found.units
    no_ratio = _no_ratio(found, expected, measured=measured)
    by_flow = flows_of_missed(found, baseline, missed)
    return Detections(
        detection_loss_ratio=None if no_ratio else len(missed) / len(expected),
        no_ratio=no_ratio,
        baseline=baseline.kind,
        expected=len(expected),
        expected_flows=len(flows_of(expected)),
        missed=len(missed),
        missed_by_flow=_by_flow(by_flow) if found.flows and baseline.flows else None,
        surplus=len(found.units - expected - uncertain),
        uncertain=len(uncertain),
        classes=_classes(baseline, expected, missed),
        missed_first=[
            MissedUnit(
                sid=sid,
                name=_names(baseline).get(sid, ""),
                where=where,
                flow=by_flow.get((sid, where)),
            )
            for sid, where in sorted(missed)[:MOST_NAMED]
        ],
        **common,
    )


def flows_of_missed(
    found: Found, baseline: Baseline, missed: Iterable[Unit]
) -> Mapping[Unit, FlowOfMissed]:
    """The state of each missed unit's flow, as far as both logs have flows."""
    usual = baseline.flows if found.flows else {}
    said: dict[Unit, FlowOfMissed] = {}
    for unit in missed:
        packets, seen = usual.get(unit[1]), found.flows.get(unit[1])
        if packets is None:
            continue
        if seen is None:
            said[unit] = "not seen"
        else:
            said[unit] = "lost packets" if seen < packets else "whole"
    return said


def _by_flow(said: Mapping[Unit, FlowOfMissed]) -> MissedByFlow:
    counted = Counter(said.values())
    return MissedByFlow(
        lost_packets=counted["lost packets"],
        whole=counted["whole"],
        not_seen=counted["not seen"],
    )


def differences(found: Found, baseline: Baseline) -> dict[str, Any]:
    """Every unit that is not as expected, for detections.json."""
    expected, uncertain = baseline.expected, baseline.uncertain
    units = {
        "missed": expected - found.units,
        "surplus": found.units - expected - uncertain,
        "uncertain": uncertain,
    }
    return {name: sorted(map(list, of_kind)) for name, of_kind in units.items()} | {
        "baseline": baseline.words,
        "lines": found.lines,
        "bytes": found.read_bytes,
    }


def _no_ratio(found: Found, expected: frozenset[Unit], *, measured: bool) -> str:
    if not measured:
        return "the trial was not measured"
    if left_out := found.unread.get("left_out"):
        return f"{left_out:,} lines were more than could be kept"
    if len(expected) < LEAST_UNITS:
        return f"{len(expected)} expected units are fewer than {LEAST_UNITS}"
    return ""


def _classes(
    baseline: Baseline, expected: frozenset[Unit], missed: frozenset[Unit]
) -> list[DetectionClass]:
    classes = {sid: name for one in baseline._each for sid, name in one.classes.items()}
    of_each = Counter(classes.get(sid, "") for sid, _ in expected)
    gone = Counter(classes.get(sid, "") for sid, _ in missed)
    found = [DetectionClass(name=k, expected=n, missed=gone[k]) for k, n in of_each.items()]
    return sorted(found, key=lambda one: (-one.missed, -one.expected, one.name))


def _names(baseline: Baseline) -> Mapping[str, str]:
    return {sid: name for one in baseline._each for sid, name in one.names.items()}
