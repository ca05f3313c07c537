"""Runs for scripts and notebooks: `import nodrop; run = nodrop.open(DIR)`.

docs/reference/python.md shows each name by an example that a test runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.results.export import trial_rows
from nodrop.results.rundir import Damage, RunDir, open_run
from nodrop.results.trial import TrialRecord

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory, opened for reading, whatever state it is in."""

    directory: RunDir

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Versions, hashes, host: docs/results-format.md has the keys."""
        return self.directory.manifest

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """Trials in the order in which they were measured."""
        return self.directory.trials.records

    @property
    def cells(self) -> list[Mapping[str, Any]]:
        """Each combination of the matrix once, in the order in which they came."""
        found: list[Mapping[str, Any]] = []
        for trial in self.trials:
            if trial.cell not in found:
                found.append(trial.cell)
        return found

    @property
    def damage(self) -> Sequence[Damage]:
        """Parts that could not be read."""
        return self.directory.all_damage

    def rows(self) -> list[Row]:
        """A flat row for each trial, with the columns of `nodrop export`, for a data frame; None
        means not measured."""
        return [*trial_rows([self.directory])]

    def ledger(self, trial: TrialRecord) -> Row | None:
        """Hops that counted the trial's packets; None if it has no ledger, or a damaged one."""
        found = self.directory.detail(trial.run, "ledger")
        return None if found is None or isinstance(found, Damage) else dict(found)

    def samples(self, trial: TrialRecord, host: str) -> list[Row]:
        """Readings of one host during the trial; `hosts` names those that have some."""
        return [dict(row) for row in self.directory.samples(trial.run, host)]

    def hosts(self, trial: TrialRecord) -> Sequence[str]:
        return self.directory.sampled_hosts(trial.run)


def open_directory(path: str | os.PathLike[str]) -> Run:
    """Raises `nodrop.errors.BadInput` if this is no run directory."""
    return Run(open_run(Path(path)))
