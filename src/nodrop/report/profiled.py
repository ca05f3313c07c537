"""Cells and their trials that have a profile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from nodrop.findings.functions import RoleProfile, TrialProfile, trial_profile
from nodrop.report.story import Cell, Story, once
from nodrop.report.trials import Trial
from nodrop.results.names import PROFILE
from nodrop.results.rundir import Damage
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Summary, by_start, summarize

MOST_CELLS = 12
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A cell and its measured trials that have a profile."""

    label: str
    trials: tuple[tuple[Hashable, TrialProfile], ...]
    """With the start of the SUT."""
    records: tuple[TrialRecord, ...] = ()
    """Records of the trials, in their order."""

    def roles(self) -> list[str]:
        """The one with most samples first."""
        total: dict[str, int] = {}
        for _, trial in self.trials:
            for role, found in trial.roles.items():
                total[role] = total.get(role, 0) + sum(found.running.values())
        return sorted((r for r in total if total[r]), key=lambda role: (-total[role], role))

    def all_roles(self) -> list[str]:
        """Roles that ran, and those as well that never ran while they were looked at."""
        ran = self.roles()
        return [*ran, *sorted({r for _, trial in self.trials for r in trial.roles} - {*ran})]

    def over(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> list[tuple[KeyT, Summary]]:
        """Share of each key over all trials in which the role ran; the largest first."""
        starts, values = self._values(role, shares)
        told = [(key, summarize(of, starts=starts)) for key, of in values.items()]
        known = [(key, summary) for key, summary in told if summary is not None]
        return sorted(known, key=lambda one: (-one[1].median, str(one[0])))

    def by_start(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> dict[KeyT, list[float]]:
        """Shares of each key, one figure for each start of the SUT in which the role ran."""
        starts, values = self._values(role, shares)
        return {key: by_start(of, starts) for key, of in values.items()}

    def _values(
        self, role: str, shares: Callable[[RoleProfile], Mapping[KeyT, float]]
    ) -> tuple[list[Hashable], dict[KeyT, list[float]]]:
        found = [(start, shares(t.roles[role])) for start, t in self.trials if role in t.roles]
        found = [(start, of) for start, of in found if of]
        keys = {key for _, of in found for key in of}
        values = {key: [of.get(key, 0.0) for _, of in found] for key in keys}
        return [start for start, _ in found], values


@once
def profiled(story: Story) -> list[Profiled]:
    """The first cells that have any."""
    found = []
    for cell in story.cells:
        trials = tuple(_trials(story, cell))
        if trials:
            label = f"{cell.label} {cell.load_label}".strip()
            seen = tuple((trial.start, profile) for trial, profile in trials)
            records = tuple(trial.record for trial, _ in trials)
            found.append(Profiled(label=label or "all", trials=seen, records=records))
    return found[:MOST_CELLS]


def _trials(story: Story, cell: Cell) -> Iterator[tuple[Trial, TrialProfile]]:
    for trial in cell.valid:
        if (found := profile_of(story, trial)) is not None:
            yield trial, found


def profile_of(story: Story, trial: Trial) -> TrialProfile | None:
    """None if it has none, or a damaged one."""
    said = story.sources[trial.source].run.detail(trial.name, PROFILE)
    if said is None or isinstance(said, Damage):
        return None
    try:
        return trial_profile(said)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
