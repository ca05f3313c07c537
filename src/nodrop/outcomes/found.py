"""Detections of a SUT: units of its event log, read by the node, and rules that limit their alerts.

A unit is a signature in a flow or, of a rule that limits its alerts, a signature and the address
that the rule tracks: which of an address's flows carries such an alert depends on the order of
threads, so that flows would differ between two trials that lost nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from nodrop.errors import LabProblem
from nodrop.hosts.binary import find_node_binary
from nodrop.hosts.rights import KEPT_BY_OURS, READER, environment, limited
from nodrop.untrusted.json_text import NotJson, decode_object
from nodrop.untrusted.words import making_sense

By = Literal["by_src", "by_dst", "by_both", "by_rule"]
TIMEOUT_S = 600.0
LONGEST_ANSWER = 512 << 20
UNREAD = ("not_json", "without_type", "without_unit", "cut_lines", "long_lines", "left_out")
"""Counts of lines that no unit was made of, and why."""
_SID = re.compile(r"[;(\s]sid\s*:\s*(\d{1,18})\s*;")
_GID = re.compile(r"[;(\s]gid\s*:\s*(\d{1,9})\s*;")
_LIMITS = re.compile(r"[;(\s](?:threshold|detection_filter)\s*:([^;]*);")
_TRACK = re.compile(r"\btrack\s+(by_src|by_dst|by_both|by_rule|by_flow)\b")
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


def _by(word: str) -> By:
    found: dict[str, By] = {"by_src": "by_src", "by_dst": "by_dst", "by_both": "by_both"}
    return found.get(word, "by_rule")


Unit = tuple[str, str]
"""`gid:sid`, and a flow such as `tcp 10.0.0.1:80 10.0.0.2:999` or an address: `by_src 10.0.0.1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Detections of one trial, or of the SUT's own reading of the trace."""

    units: frozenset[Unit]
    classes: Mapping[str, str] = field(default_factory=dict)
    """`gid:sid` → the class of the signature."""
    names: Mapping[str, str] = field(default_factory=dict)
    alerts: int
    events: Mapping[str, int] = field(default_factory=dict)
    """Lines by type."""
    flows: Mapping[str, int] = field(default_factory=dict)
    """Packets by flow, if the log has flows."""
    lines: int = 0
    read_bytes: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    """Lines that cannot be used, by why; those that are 0 left out."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "units": sorted(map(list, self.units))}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Found:
        return cls(**{**said, "units": frozenset((sid, where) for sid, where in said["units"])})


def read_found(
    files: Sequence[Path], limits: Mapping[str, By], *, with_flows: bool = False
) -> Found:
    """The event logs of one SUT, or of its instances. LabProblem if one cannot be read."""
    node = find_node_binary()
    with NamedTemporaryFile("w", prefix="nodrop-", suffix=".limits") as rules:
        rules.writelines(f"{rule} {by}\n" for rule, by in limits.items())
        rules.flush()
        argv = [str(node), "outcomes", *map(str, files), "--limited", rules.name]
        argv += ["--flows"] if with_flows else []
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


def _found(said: Mapping[str, Any]) -> Found:
    signatures = said["signatures"]
    return Found(
        units=frozenset((sid, unit) for sid, one in signatures.items() for unit in one["units"]),
        classes={sid: one["class"] for sid, one in signatures.items()},
        names={sid: one["name"] for sid, one in signatures.items()},
        alerts=sum(one["alerts"] for one in signatures.values()),
        events=said["events"],
        flows=said["flows"],
        lines=said["lines"],
        read_bytes=said["bytes"],
        unread={name: said[name] for name in UNREAD if said[name]},
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
