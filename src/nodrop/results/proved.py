"""The answer of `nodrop tune prove --json`, and proved.json in the run directory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from nodrop.errors import BadInput
from nodrop.ledger.quantities import Count
from nodrop.results.model import Model
from nodrop.results.rundir import RunDir, read_manifest
from nodrop.untrusted.folder import read_file

NAME = "proved.json"


class Effect(Model):
    """A knob's effect on one metric, against the trials without it."""

    knob: str
    """`rps=1`; of several together `ring-size=20000 + mpm=hs`."""
    setting: str = ""
    """Key and value of an experiment: `sut.ring_size=20000`; empty of several together."""
    metric: str
    unit: str
    state: Literal["helps", "makes it worse", "does not", "cannot tell yet"]
    without: float | None
    """Median of the trials without it."""
    by: float | None
    """Median with it, less that without."""
    interval: tuple[float, float] | None
    """Interval of `by`; null with too few trials."""
    relative: tuple[float, float] | None
    """The interval as a share of the median without; null if that is 0."""
    trials: tuple[Count, Count]
    """Trials without and with it; void ones do not count."""
    void: Count
    """Trials with it whose books did not close."""
    words: str


class Together(Model):
    """Knobs that help, at once: do their effects add up?"""

    effect: Effect
    sum: tuple[float, float] | None
    """Interval of the sum of their effects, each alone."""
    beyond: tuple[float, float] | None
    """Interval of what they do together beyond that sum; without 0 in it, they interact."""


class Proved(Model):
    format: Literal[1] = 1
    effects: list[Effect]
    together: Together | None
    notes: list[str]
    exit_code: Count


def states(run: RunDir) -> Mapping[str, str]:
    """Setting → what proofs beside this run say of it, the newest first: of the same trace, on the
    same host, with the same SUT."""
    found: dict[str, str] = {}
    of_run = _measured(run.manifest)
    for file in sorted(run.path.absolute().parent.glob(f"prove-*/{NAME}"), reverse=True):
        with suppress(BadInput, OSError, ValueError):
            if _measured(read_manifest(file.parent)) == of_run:
                for effect in Proved.model_validate_json(read_file(file)).effects:
                    state = "does not" if effect.state == "makes it worse" else effect.state
                    found.setdefault(effect.setting, state)
    return found


def _measured(manifest: Mapping[str, Any]) -> tuple[Any, ...]:
    """Traces, SUTs and host of a run."""
    loads = _tables(manifest, "loads", "load")
    suts = _tables(manifest, "suts", "sut")
    host = manifest.get("host")
    return (
        sorted({str(load.get("trace_sha256")) for load in loads}),
        sorted({str(sut.get("name")) for sut in suts}),
        host.get("hostname") if isinstance(host, dict) else None,
    )


def _tables(manifest: Mapping[str, Any], many: str, one: str) -> list[dict[str, Any]]:
    """The tables of a matrix, and that of a run without one."""
    every = [*(manifest.get(many) or ()), manifest.get(one)]
    return [table for table in every if isinstance(table, dict)]
