"""CPU time that neither the SUT nor the generator used while a load was offered."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.report.story import Story
from nodrop.report.trials import Trial

FOREIGN_CPU_RATIO = 0.25
"""Beyond this other programs compete with the SUT for its CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrograms:
    ratios: tuple[float, ...]
    """Of the CPUs that the SUT may use (in older runs: of all), one per trial that measured it."""
    crowded: tuple[Trial, ...]

    @property
    def words(self) -> str:
        limit = f"{FOREIGN_CPU_RATIO * 100:.0f} %"
        return f"in {len(self.crowded)} of {len(self.ratios)} trials more than {limit}"


def other_programs(story: Story) -> OtherPrograms:
    known = [(ratio, t) for t in story.trials if (ratio := _ratio(story, t)) is not None]
    return OtherPrograms(
        ratios=tuple(ratio for ratio, _ in known),
        crowded=tuple(t for ratio, t in known if ratio >= FOREIGN_CPU_RATIO),
    )


def _ratio(story: Story, trial: Trial) -> float | None:
    if "foreign_cpu_ratio" in trial.details:
        known = trial.details["foreign_cpu_ratio"]
        return float(known) if isinstance(known, int | float) else None
    offered = story.sources[trial.source].run.detail(trial.record.run, "offered")
    usage = trial.details.get("usage")
    if not isinstance(offered, dict) or not isinstance(usage, dict):
        return None
    try:
        ours = float(usage["sut_offering_cpu_s"]) + float(offered["cpu_s"])
        return max(0.0, float(usage["host_busy_s"]) - ours) / float(usage["host_cpu_s"])
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None  # a generator, or a version, that did not say
