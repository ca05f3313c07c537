"""What is suspicious in a set of runs.

Measured runs and imported ones are judged by the same rules. Every rule looks at `Observation`s
only; a rule that needs a figure that was not measured stays silent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from nodrop.findings.finding import Finding, Severity
from nodrop.findings.load_rules import idle_ports, loads_contradict, not_as_asked, sut_failed
from nodrop.findings.method_rules import (
    fixed_run_order,
    missing_samples,
    shared_starts,
    spread_over_time,
    survivor_tail,
    time_of_day,
    unpaired_channels,
)
from nodrop.findings.observations import Cells, Observation, SpreadClaim
from nodrop.findings.traffic_rules import (
    alert_explosion,
    captured_below_decoded,
    guest_time_counted_twice,
    loss_per_replica,
    offered_below_nominal,
    start_up_race,
)

Rule = Callable[[Cells], Iterator[Finding]]
OF_ALL: tuple[Rule, ...] = (sut_failed, loads_contradict, time_of_day)
OF_MEASURED: tuple[Rule, ...] = (
    not_as_asked,
    idle_ports,
    shared_starts,
    start_up_race,
    loss_per_replica,
    guest_time_counted_twice,
    alert_explosion,
    offered_below_nominal,
    captured_below_decoded,
    survivor_tail,
    unpaired_channels,
)


def find(
    observations: Iterable[Observation],
    *,
    planned: Mapping[str, int] | None = None,
    spreads: Iterable[SpreadClaim] = (),
) -> list[Finding]:
    """All findings, the serious first. `planned`: cell → runs there should be."""
    runs = list(observations)
    by_cell: dict[str, list[Observation]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell].append(run)
    # What was void, or what a dead SUT left behind, is no figure to be judged.
    measured = {c: [r for r in of if r.outcome == "measured"] for c, of in by_cell.items()}
    found = [finding for rule in OF_ALL for finding in rule(by_cell)]
    # When and how often a search tries a load follows from what it found.
    found += fixed_run_order({c: of for c, of in by_cell.items() if not of[0].searched})
    found += [finding for rule in OF_MEASURED for finding in rule(measured)]
    of_plan = {c: of for c, of in measured.items() if not by_cell[c][0].searched}
    found += missing_samples(of_plan, planned)
    found += spread_over_time(spreads)
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))
