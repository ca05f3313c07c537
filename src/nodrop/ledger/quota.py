"""A CPU quota around nodrop itself: a pod's, a service's, a container's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.config.units import noun

KNOBS = "systemd CPUQuota=, docker --cpus, Kubernetes limits.cpu"

DISTURBS = "will disturb: "
"""Begins the notes of a doctor that forbid no run, and will be in its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One control group's, and how often it was used up since some moment."""

    group: str
    """Folder of the group."""
    cpus: float
    """CPU time per time that all programs of the group may have."""
    periods: int
    throttled_periods: int
    throttled_s: float
    """Time in which programs of the group were not let run, summed over CPUs."""

    @property
    def words(self) -> str:
        return f"{self.cpus:g} {noun(self.cpus, 'CPU')}, {self.group}"

    @property
    def throttled_words(self) -> str:
        if not self.throttled_periods:
            return "throttled in no period"
        return (
            f"throttled in {self.throttled_periods} of {self.periods} periods, "
            f"{self.throttled_s:.2f} s in all"
        )


def rise(before: Sequence[Quota], now: Sequence[Quota]) -> Quota | None:
    """The group that held its programs back longest between two looks; None if none did."""
    earlier = {quota.group: quota for quota in before}
    found = [
        Quota(
            group=quota.group,
            cpus=quota.cpus,
            periods=quota.periods - first.periods,
            throttled_periods=quota.throttled_periods - first.throttled_periods,
            throttled_s=quota.throttled_s - first.throttled_s,
        )
        for quota in now
        if (first := earlier.get(quota.group)) is not None
    ]
    held = [quota for quota in found if quota.throttled_s > 0 or quota.throttled_periods > 0]
    return max(held, key=lambda quota: quota.throttled_s, default=None)
