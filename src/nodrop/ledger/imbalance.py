"""The reason why work falls unevenly to threads that share it by flow, judged from the flows'
sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log, sqrt

from nodrop.config.units import noun
from nodrop.ledger.threads import over_mean

UNEVEN = 0.1
"""The busiest has this much more than its share."""
MOST = 0.5
RARE = 0.01
"""A fair hash makes more than `by_chance` once in a hundred times, or less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSizes:
    """How the packets of a load fall to its flows."""

    flows: int
    effective_flows: float
    """So many flows of equal size would spread over threads as unevenly."""
    largest_ratio: float
    """Share of the packets in the largest flow."""
    same_copies: float = 1.0
    """Copies of each flow that were sent as the same flow."""

    @property
    def distinct(self) -> FlowSizes:
        """If each copy were a flow of its own."""
        copies = self.same_copies
        return FlowSizes(
            flows=round(self.flows * copies),
            effective_flows=self.effective_flows * copies,
            largest_ratio=self.largest_ratio / copies,
        )


class Makes(StrEnum):
    """The reason why work falls unevenly to threads; EVEN if it does not."""

    EVEN = "even"
    ONE_FLOW = "one_flow"
    SAME_FLOWS = "same_flows"
    FEW_FLOWS = "few_flows"
    NOT_THE_SIZES = "not_the_sizes"
    """A fair hash would hardly do it to flows of these sizes."""
    NOT_BY_FLOW = "not_by_flow"
    COST = "cost"
    """Packets fall evenly, and CPU time does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    makes: Makes
    words: str


def by_chance(sizes: FlowSizes, threads: int) -> float:
    """How much more than its share the busiest has at most, in 99 of 100 times or more, if a fair
    hash gives each flow its thread: Bernstein's bound, for all threads together."""
    variance = (threads - 1) / sizes.effective_flows
    likely = log(threads / RARE)
    part = sizes.largest_ratio * threads * likely / 3
    return min(threads - 1, part + sqrt(part**2 + 2 * variance * likely))


def what_makes(
    packets: Sequence[float], cpu: Sequence[float], sizes: FlowSizes
) -> Imbalance | None:
    """The imbalance of threads that do the same work. CPU time stands for packets that are not
    counted by thread. None without two threads, or without work."""
    counted = over_mean(packets)
    over, threads = (over_mean(cpu), len(cpu)) if counted is None else (counted, len(packets))
    if over is None:
        return None
    spread = _Spread(over=over, threads=threads, of_packets=counted is not None)
    found = spread.judged(sizes)
    if found.makes is Makes.EVEN and spread.of_packets and (over_mean(cpu) or 0.0) >= UNEVEN:
        words = "packets fall evenly and CPU time does not: some packets cost more"
        return Imbalance(makes=Makes.COST, words=words)
    by_sizes = (Makes.ONE_FLOW, Makes.FEW_FLOWS)
    if found.makes in by_sizes and spread.judged(sizes.distinct).makes not in by_sizes:
        words = (
            f"{sizes.same_copies:g} copies are the same flows, and all copies of a flow are on its "
            f"thread; {found.words}"
        )
        return Imbalance(makes=Makes.SAME_FLOWS, words=words)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    over: float
    """Excess of the busiest thread over its share, as a part of that share."""
    threads: int
    of_packets: bool

    def judged(self, sizes: FlowSizes) -> Imbalance:
        over, largest, share = self.over, sizes.largest_ratio, 1 / self.threads
        busiest = (over + 1) * share
        if over < UNEVEN:
            return Imbalance(makes=Makes.EVEN, words="even")
        if self.of_packets and busiest < largest:
            words = (
                f"the busiest has {busiest * 100:.0f} % of the packets, less than the largest flow "
                f"({largest * 100:.0f} %): packets of one flow go to several threads"
            )
            return Imbalance(makes=Makes.NOT_BY_FLOW, words=words)
        # The largest flow makes most of what the spread over threads varies by.
        rules_spread = largest**2 * sizes.effective_flows >= MOST
        if rules_spread and largest * (self.threads - 1) >= MOST * over:
            words = (
                f"one flow has {largest * 100:.0f} % of the packets and stays on one thread, whose "
                f"even share is {share * 100:.0f} %"
            )
            return Imbalance(makes=Makes.ONE_FLOW, words=words)
        flows = f"{sizes.flows} {noun(sizes.flows, 'flow')}"
        spread = f"{flows} spread like {sizes.effective_flows:.0f} equal ones"
        chance = by_chance(sizes, self.threads)
        if over <= chance:
            words = f"chance can do this with few flows: {spread}"
            return Imbalance(makes=Makes.FEW_FLOWS, words=words)
        other = "" if self.of_packets else "; or some packets cost more"
        words = (
            f"not the sizes of the flows: {spread}, and a fair hash would give the busiest at most "
            f"{chance * 100:.0f} % more than its share{other}"
        )
        return Imbalance(makes=Makes.NOT_THE_SIZES, words=words)
