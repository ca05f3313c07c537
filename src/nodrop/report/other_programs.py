"""CPU time that neither the SUT nor the generator used while a load was offered."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.config.units import noun
from nodrop.report.story import Story, once
from nodrop.report.trials import Trial

FOREIGN_CPU_RATIO = 0.25
"""Beyond this other programs compete with the SUT for its CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrograms:
    ratios: tuple[float, ...]
    """One per trial that measured it."""
    crowded: tuple[Trial, ...]
    whole: str
    """Name of the CPUs that the ratios are shares of."""

    @property
    def words(self) -> str:
        limit = f"{FOREIGN_CPU_RATIO * 100:.0f} %"
        trials = noun(len(self.ratios), "trial")
        return f"in {len(self.crowded)} of {len(self.ratios)} {trials} more than {limit}"


@once
def other_programs(story: Story) -> OtherPrograms:
    known = [(r, t) for t in story.trials if (r := t.aside.foreign_cpu_ratio) is not None]
    return OtherPrograms(
        ratios=tuple(ratio for ratio, _ in known),
        crowded=tuple(t for ratio, t in known if ratio >= FOREIGN_CPU_RATIO),
        whole="the host's CPUs"
        if any(t.aside.foreign_of_all_cpus for _, t in known)
        else "the CPUs that the SUT may use",
    )
