"""Time that trials take beside what they measure: the harness's own time, step by step.

Not the harness's are the offered traffic, the loading of rules, the boot of a guest, and the
waiting that an experiment asks for; all else is, the SUT's own way to its end included.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from nodrop.errors import LabProblem
from nodrop.results.rundir import Damage, Json, RunDir
from nodrop.untrusted.json_text import making_sense

NOT_OURS = frozenset({"reset", "warm up", "warm up the guest"})
"""Steps an experiment asks for: a driver loaded anew, quiet time, the load offered once before."""
WAITED = frozenset({"ready", "drain", "stop"})
"""Steps that wait for the SUT: until it listens, until its counters rest, until it has ended."""
OWN, WAITING, ALL = "nodrop itself", "waiting for the SUT", "in all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """One step over the trials of a run."""

    name: str
    median_s: float
    total_s: float


def harness_time(run: RunDir) -> tuple[PartTime, ...]:
    """A row per step in the order of a trial, and their sum, over all trials that came to their
    end; empty if none did."""
    trials = []
    for record in run.trials.records:
        found = run.detail(record.run, "trial")
        if isinstance(found, Damage | None) or record.error or not record.offered.duration_s:
            continue
        # A trial whose file was spoilt counts for nothing, like one without a file.
        with suppress(LabProblem), making_sense(f"{record.run}/trial.json"):
            trials.append(own_time_s(found["details"], offered_s=record.offered.duration_s))
    names = dict.fromkeys(name for trial in trials for name in trial)
    return tuple(_over(name, (trial.get(name, 0.0) for trial in trials)) for name in names)


def own_time_s(details: Json, *, offered_s: float) -> dict[str, float]:
    """Step → what of it was the harness's, the sums last."""
    steps: Mapping[str, float] = details["timings_s"]
    phases = (details.get("readiness") or {}).get("phases_s", {})
    others = {
        "launch": phases.get("boot", 0.0),
        "ready": phases.get("load_rules", 0.0),
        "offer": offered_s,
    }
    own = {
        name: max(0.0, took - others.get(name, 0.0))
        for name, took in steps.items()
        if name not in NOT_OURS
    }
    waited = sum(took for name, took in own.items() if name in WAITED)
    whole = sum(own.values())
    return {**own, OWN: whole - waited, WAITING: waited, ALL: whole}


def _over(name: str, seconds: Iterable[float]) -> PartTime:
    each = list(seconds)
    return PartTime(name=name, median_s=statistics.median(each), total_s=sum(each))
