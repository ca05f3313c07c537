"""Detections that a SUT is to make in a load: units of lossless trials, and how a trial
compares."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, TypeAdapter

from nodrop.config.units import count_of
from nodrop.errors import LabProblem
from nodrop.results.detection_books import (
    LEAST_UNITS,
    MOST_NAMED,
    DetectionClass,
    Detections,
    FlowOfMissed,
    MissedByFlow,
    MissedUnit,
)
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.rights import KEPT_BY_OURS, READER, environment, limited
from nodrop.untrusted.json_text import NotJson, decode_object, making_sense

# Detections of a SUT: units of its event log, read by the node, and rules that limit their alerts.
#
# A unit is a signature in a flow or, of a rule that limits its alerts, a signature and the address
# that the rule tracks: which of an address's flows carries such an alert depends on the order of
# threads, so that flows would differ between two trials that lost nothing.
By = Literal["by_src", "by_dst", "by_both", "by_rule"]
TIMEOUT_S = 600.0
LONGEST_ANSWER = 512 << 20
UNREAD = (
    *("not_json", "without_type", "without_unit", "cut_lines", "long_lines", "left_out"),
    *("of_other_loads", "of_every_load"),
)
"""Counts of lines that no unit was made of, and why."""
_SID = re.compile(r"[;(\s]sid\s*:\s*(\d{1,18})\s*;")
_GID = re.compile(r"[;(\s]gid\s*:\s*(\d{1,9})\s*;")
_LIMITS = re.compile(r"[;(\s](?:threshold|detection_filter)\s*:([^;]*);")
_COUNTED = re.compile(r"[;(\s](threshold|detection_filter)\s*:([^;]*);")
_TYPE = re.compile(r"\btype\s+(limit|threshold|both)\b")
_COUNT = re.compile(r"\bcount\s+(\d{1,9})\b")
_EXPIRING = re.compile(r"[;(\s](?:xbits|hostbits)\s*:\s*(?:isset|isnotset)\b|[;(\s]flow\.age\s*:")
"""Bits of addresses expire, after 30 s or 300 s if a rule does not say when."""
_TRACK = re.compile(r"\btrack\s+(by_src|by_dst|by_both|by_rule|by_flow)\b")
_REMEMBERING = re.compile(
    r"[;(\s](?:(?:threshold|detection_filter)\s*:[^;]*\btrack\s+by_rule\b"
    r"|dataset\s*:\s*(?:un)?set\b|lua(?:jit)?\s*:)"
)
"""One limit for all addresses, values that were seen before, a script that may keep anything."""
_CONFIG = re.compile(
    r"(?:threshold|event_filter|rate_filter)\s+gen_id\s+(\d{1,9})\s*,\s*sig_id\s+(\d{1,18})\s*,(.*)"
)


def limits_of_rules(text: str) -> Iterator[tuple[str, By]]:
    """`gid:sid` and what it tracks, of each rule with `threshold` or `detection_filter`; per flow,
    which is the unit of any other rule, is no limit here."""
    for line in text.splitlines():
        rule = line.strip()
        if rule.startswith("#") or not (said := _LIMITS.search(rule)):
            continue
        sid, gid, by = _SID.search(rule), _GID.search(rule), _TRACK.search(said[1])
        if sid and by and by[1] != "by_flow":
            yield f"{gid[1] if gid else 1}:{sid[1]}", _by(by[1])


def limits_of_config(text: str) -> Iterator[tuple[str, By]]:
    """`gid:sid` and what it tracks, of each entry of a threshold.config that limits alerts. Entries
    for all signatures (`sig_id 0`), and per flow, limit none here."""
    for line in text.splitlines():
        said = _CONFIG.match(line.strip())
        by = _TRACK.search(said[3]) if said else None
        if said and by and by[1] != "by_flow" and int(said[2]):
            yield f"{int(said[1]) or 1}:{said[2]}", _by(by[1])


def clocks_of_rules(text: str) -> Iterator[str]:
    """`gid:sid` of each rule whose alerts depend on the time between packets: counted in some
    seconds, or after bits that expire. The first match of a `limit`, or of a count of 1, alerts at
    any speed."""
    for line in text.splitlines():
        rule = line.strip()
        if rule.startswith("#") or not (sid := _SID.search(rule)):
            continue
        counted = any(_counts(kind, said) for kind, said in _COUNTED.findall(rule))
        if counted or _EXPIRING.search(rule):
            gid = _GID.search(rule)
            yield f"{gid[1] if gid else 1}:{sid[1]}"


def clocks_of_config(text: str) -> Iterator[str]:
    """`gid:sid` of each entry of a threshold.config that counts packets of one signature."""
    for line in text.splitlines():
        said = _CONFIG.match(line.strip())
        if said and int(said[2]) and _counts("threshold", said[3]):
            yield f"{int(said[1]) or 1}:{said[2]}"


def remembering_rules(text: str) -> Iterator[str]:
    """`gid:sid` of each rule that remembers, whatever the addresses are, so that the packets of one
    load change what it says of the next, all of whose addresses are others."""
    for line in text.splitlines():
        rule = line.strip()
        if not rule.startswith("#") and _REMEMBERING.search(rule) and (sid := _SID.search(rule)):
            gid = _GID.search(rule)
            yield f"{gid[1] if gid else 1}:{sid[1]}"


def remembering_config(text: str) -> Iterator[str]:
    """`gid:sid` of each entry of a threshold.config with one limit for all addresses."""
    for line in text.splitlines():
        said = _CONFIG.match(line.strip())
        by = _TRACK.search(said[3]) if said else None
        if said and by and by[1] == "by_rule":
            yield f"{said[1]}:{said[2]}"


def _counts(kind: str, said: str) -> bool:
    of_type, count = _TYPE.search(said), _COUNT.search(said)
    several = count is not None and int(count[1]) > 1
    if kind == "detection_filter":
        return True
    return several and of_type is not None and of_type[1] != "limit"


def _by(word: str) -> By:
    found: dict[str, By] = {"by_src": "by_src", "by_dst": "by_dst", "by_both": "by_both"}
    return found.get(word, "by_rule")


Unit = tuple[str, str]
"""`gid:sid`, and a flow such as `tcp 10.0.0.1:80 10.0.0.2:999` or an address: `by_src 10.0.0.1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDetections:
    """Detections of one trial, or of the SUT's own reading of the trace."""

    units: Annotated[frozenset[Unit], PlainSerializer(sorted)]
    late: Annotated[frozenset[Unit], PlainSerializer(sorted)] = frozenset()
    """Units that no packet raised, but the end of the flow; only of a SUT that stays up, whose
    trials end before their flows."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """`gid:sid` → the class of the signature."""
    names: Mapping[str, str] = field(default_factory=dict)
    alerts: int
    events: Mapping[str, int] = field(default_factory=dict)
    """Lines of the log by type."""
    flows: Mapping[str, int] = field(default_factory=dict)
    """Packets by flow, if the log has flows."""
    lines: int = 0
    read_bytes: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    """Lines that cannot be used, by why; those that are 0 left out."""
    ends: tuple[int, ...] = ()
    """The end of the last whole line of each log, where the next reading begins."""

    def without(self, rules: Set[str]) -> FoundDetections:
        units, late = (
            frozenset(u for u in each if u[0] not in rules) for each in (self.units, self.late)
        )
        return replace(self, units=units, late=late)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCopies:
    """Replicas that one load of a standing SUT sent. Their alerts are known by their addresses, and
    named as those of the first load of a start, which begins with the trace itself."""

    trace: Path
    first: int = 0
    count: int = 1
    tolerate_truncated: bool = False

    @property
    def argv(self) -> Sequence[str]:
        cut = ["--tolerate-truncated"] if self.tolerate_truncated else []
        copies = ["--first-copy", str(self.first), "--copies", str(self.count)]
        return ["--sent", str(self.trace), *copies, *cut]


def read_found(
    files: Sequence[Path],
    limits: Mapping[str, By],
    *,
    with_flows: bool = False,
    sent: SentCopies | None = None,
    begins: Sequence[int] = (),
) -> FoundDetections:
    """The event logs of one SUT, or of its instances. `begins`: of logs that are still written,
    where this reading of each begins. LabProblem if one cannot be read."""
    node = find_node_binary()
    with NamedTemporaryFile("w", prefix="nodrop-", suffix=".limits") as rules:
        rules.writelines(f"{rule} {by}\n" for rule, by in limits.items())
        rules.flush()
        argv = [str(node), "outcomes", *map(str, files), "--limited", rules.name]
        argv += ["--flows"] if with_flows else []
        argv += [] if sent is None else sent.argv
        argv += ["--from", ",".join(map(str, begins))] if begins else []
        done = subprocess.run(
            limited(node, READER, argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment(KEPT_BY_OURS),
            check=False,
        )
    if done.returncode:
        raise LabProblem(f"event log: {done.stderr.strip()[-400:]}")
    try:
        said = decode_object(done.stdout, most_bytes=LONGEST_ANSWER)
    except NotJson as failed:
        raise LabProblem(f"event log: nodrop-node outcomes: {failed}") from failed
    with making_sense("nodrop-node outcomes"):
        return _found(said)


def _found(said: Mapping[str, Any]) -> FoundDetections:
    signatures = said["signatures"]
    units, late = (
        frozenset((sid, unit) for sid, signature in signatures.items() for unit in signature[of])
        for of in ("units", "late")
    )
    return FoundDetections(
        units=units,
        late=late,
        classes={sid: signature["class"] for sid, signature in signatures.items()},
        names={sid: signature["name"] for sid, signature in signatures.items()},
        alerts=sum(signature["alerts"] for signature in signatures.values()),
        events=said["events"],
        flows=said["flows"],
        lines=said["lines"],
        read_bytes=said["bytes"],
        unread={name: said[name] for name in UNREAD if said[name]},
        ends=tuple(said["ends"]),
    )


def flows_of(units: Iterable[Unit]) -> set[str]:
    """Flows of the units that are named by flow."""
    return {where for _, where in units if not where.startswith("by_")}


def keep(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: others may measure the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(content, file)
    Path(file.name).replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Units that the SUT finds if nothing is lost."""

    offline: FoundDetections | None
    """Detections of the SUT's own reading of the trace; None if it did not read it."""
    live: Sequence[FoundDetections] = ()
    """Detections of lossless trials at a low load."""
    why: str = ""
    """The missing parts of the baseline, and why they are missing, in words."""

    def without(self, rules: Set[str]) -> Baseline:
        offline = None if self.offline is None else self.offline.without(rules)
        return replace(self, offline=offline, live=[one.without(rules) for one in self.live])

    def timed(self, clocks: Set[str]) -> Baseline | None:
        """Expected of a trial at the trace's own speed, which its lossless trials need not have:
        of rules with a clock, what the SUT finds by the times in the file. None if it did not read
        that."""
        if self.offline is None:
            return None
        own = {unit for unit in self.offline.units if unit[0] in clocks}
        live = [one.without(clocks) for one in self.live]
        return replace(self, live=[replace(one, units=one.units | own) for one in live])

    @property
    def kind(self) -> Literal["offline", "live"] | None:
        return "live" if self.live else "offline" if self.offline is not None else None

    @property
    def _each(self) -> Sequence[FoundDetections]:
        return self.live or ([] if self.offline is None else [self.offline])

    @property
    def expected(self) -> frozenset[Unit]:
        """Units seen in every reading, before their flows ended if the SUT stays up."""
        each = [one.units - one.late for one in self._each]
        return frozenset.intersection(*each) if each else frozenset()

    @property
    def uncertain(self) -> frozenset[Unit]:
        """Units seen in some readings, not in all, or only at the end of a flow."""
        each = [one.units for one in self._each]
        return frozenset().union(*each, self.late) - self.expected

    @property
    def late(self) -> frozenset[Unit]:
        """Units seen only at the end of a flow, which a standing SUT may not see in a trial."""
        each = [*self.live, *([] if self.offline is None else [self.offline])]
        return frozenset().union(*(one.late for one in each)) - self.expected

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
        late = ""
        if self.late:
            late = f"{count_of(len(self.late), 'unit')} left out that only the end of a flow raises"
        return "; ".join(filter(None, (self._compared, late, self.why)))

    @property
    def _compared(self) -> str:
        if self.offline is None or not self.live:
            return {
                "offline": "expected: what the SUT finds when it reads the trace itself",
                "live": f"expected: what {count_of(len(self.live), 'lossless trial')} found",
            }.get(self.kind or "", "")
        late = self.late
        seen = frozenset().union(*(one.units for one in self.live)) - late
        found = self.offline.units - late
        trials = count_of(len(self.live), "lossless trial")
        if seen == found and seen == self.expected:
            return (
                f"{trials} found the same {len(found):,} units as the SUT when it reads the trace "
                "itself"
            )
        return (
            f"{trials}: {len(self.expected):,} units in each, "
            f"{len(self.uncertain - late):,} in some; "
            f"{len(seen - found):,} of them the SUT does not find when it reads the trace "
            f"itself, where it finds {len(found - seen):,} others"
        )


@cache
def kept_baselines() -> TypeAdapter[Baseline]:
    """A baseline as it is kept in a file."""
    return TypeAdapter(Baseline)


def compared(
    found: FoundDetections,
    baseline: Baseline,
    *,
    measured: bool,
    clocks: Set[str] = frozenset(),
    no_ratio: str = "",
) -> Detections:
    """A trial with what was to be expected; `measured`: its books stand; `clocks`: rules left out,
    as the trial had another speed than the trace; `no_ratio`: why something else than the load may
    have cost units."""
    clocked = {u for u in baseline.expected | baseline.uncertain | found.units if u[0] in clocks}
    found, baseline = found.without(clocks), baseline.without(clocks)
    of_trial = partial(
        Detections,
        seen=len(found.units),
        alerts=found.alerts,
        events=dict(found.events),
        unread=dict(found.unread),
        baseline_words=baseline.words or baseline.why,
        clocked=len(clocked),
        clocked_rules=sorted({sid for sid, _ in clocked})[:MOST_NAMED],
    )
    if baseline.kind is None:
        return of_trial(no_ratio=baseline.why or "no baseline")
    expected, uncertain = baseline.expected, baseline.uncertain
    missed = expected - found.units
    no_ratio = _no_ratio(found, expected, measured=measured) or no_ratio
    by_flow = flows_of_missed(found, baseline, missed)
    return of_trial(
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
    )


def flows_of_missed(
    found: FoundDetections, baseline: Baseline, missed: Iterable[Unit]
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


def differences(found: FoundDetections, baseline: Baseline) -> dict[str, Any]:
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


def _no_ratio(found: FoundDetections, expected: frozenset[Unit], *, measured: bool) -> str:
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
