"""Threads that share flows of known sizes: what makes their work uneven is named, and no more."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from nodrop.ledger.imbalance import UNEVEN, FlowShares, Makes, by_chance, over_mean, what_makes

Chooses = Callable[[int], int]
"""Flow → its thread."""


def sizes_of(flows: Sequence[int], *, same_copies: float = 1.0) -> FlowShares:
    whole = sum(flows)
    return FlowShares(
        flows=len(flows),
        effective_flows=whole**2 / sum(n**2 for n in flows),
        largest_ratio=max(flows) / whole,
        same_copies=same_copies,
    )


def spread(flows: Sequence[int], threads: int, chooses: Chooses) -> list[float]:
    parts = [0.0] * threads
    for flow, packets in enumerate(flows):
        parts[chooses(flow)] += packets
    return parts


def fair(threads: int, seed: int) -> Chooses:
    found = random.Random(seed)
    return lambda _: found.randrange(threads)


def made(parts: Sequence[float], sizes: FlowShares, cpu: Sequence[float] = ()) -> tuple[str, str]:
    found = what_makes(parts, cpu, sizes)
    assert found is not None
    return found.makes, found.words


@pytest.mark.parametrize("threads", [2, 4, 8])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_one_elephant_flow_is_named_with_its_share(threads: int, share: float) -> None:
    mice = 4000
    flows = [round(mice * share / (1 - share)), *[1] * mice]
    for seed in range(20):
        makes, words = made(spread(flows, threads, fair(threads, seed)), sizes_of(flows))
        assert makes == Makes.ONE_FLOW
        assert words.startswith(f"one flow has {share * 100:.0f} % of the packets")
        assert f"even share is {100 / threads:.0f} %" in words


@pytest.mark.parametrize(("flows", "threads"), [(6, 4), (12, 4), (30, 8), (40, 2), (100, 16)])
def test_few_flows_fall_unevenly_by_chance(flows: int, threads: int) -> None:
    uneven = 0
    for seed in range(50):
        parts = spread([10] * flows, threads, fair(threads, seed))
        makes, words = made(parts, sizes_of([10] * flows))
        uneven += makes == Makes.FEW_FLOWS
        assert makes in (Makes.EVEN, Makes.FEW_FLOWS)
        if makes == Makes.FEW_FLOWS:
            assert f"{flows} flows spread like {flows} equal ones" in words
    assert uneven >= 25


@pytest.mark.parametrize(("flows", "copies", "threads"), [(30, 400, 4), (20, 900, 2), (60, 300, 8)])
def test_copies_that_are_the_same_flows_are_named(flows: int, copies: int, threads: int) -> None:
    named = 0
    for seed in range(50):
        parts = spread([copies] * flows, threads, fair(threads, seed))
        makes, words = made(parts, sizes_of([1] * flows, same_copies=copies))
        assert makes in (Makes.EVEN, Makes.SAME_FLOWS)
        if makes == Makes.SAME_FLOWS:
            named += 1
            assert words.startswith(f"{copies} copies are the same flows")
    assert named >= 25
    apart = sizes_of([1] * flows, same_copies=copies).distinct
    assert (apart.flows, apart.effective_flows) == (flows * copies, flows * copies)
    assert apart.same_copies == 1


@pytest.mark.parametrize("copies", [2, 3])
def test_an_elephant_is_not_put_down_to_a_few_copies(copies: int) -> None:
    flows = [3000, *[1] * 1000]
    parts = [3200, 250, 300, 250]
    assert made(parts, sizes_of(flows, same_copies=copies))[0] == Makes.ONE_FLOW


@pytest.mark.parametrize(("skew", "threads"), [(0.2, 4), (0.5, 2), (0.9, 8)])
def test_a_hash_that_is_not_fair_is_not_put_down_to_the_flows(skew: float, threads: int) -> None:
    chance = random.Random(7)
    flows = [5] * 20_000

    def unfair(_: int) -> int:
        return 0 if chance.random() < skew else chance.randrange(threads)

    makes, words = made(spread(flows, threads, unfair), sizes_of(flows))
    assert makes == Makes.NOT_THE_SIZES
    assert "20000 flows spread like 20000 equal ones" in words


@pytest.mark.parametrize("threads", [2, 4, 16])
@pytest.mark.parametrize("tail", [1.1, 1.5, 3.0])
def test_a_fair_hash_is_hardly_ever_blamed(threads: int, tail: float) -> None:
    drawn, blamed = random.Random(threads), 0
    for seed in range(200):
        flows = [round(10 * drawn.paretovariate(tail)) for _ in range(300)]
        parts = spread(flows, threads, fair(threads, seed))
        makes, _ = made(parts, sizes_of(flows))
        blamed += makes == Makes.NOT_THE_SIZES
        over = over_mean(parts)
        assert over is not None and (makes == Makes.EVEN) == (over < UNEVEN)
    assert blamed <= 2


@pytest.mark.parametrize("parts", [(30, 25, 25, 20), (38, 30, 32), (40, 20, 20, 20)])
def test_packets_that_are_not_spread_by_flow(parts: Sequence[float]) -> None:
    makes, words = made(parts, sizes_of([600, *[1] * 400]))
    assert makes == Makes.NOT_BY_FLOW
    assert "less than the largest flow (60 %)" in words


@pytest.mark.parametrize("cpu", [(0.9, 0.3), (0.5, 0.4), (0.2, 0.9)])
def test_even_packets_may_cost_unevenly(cpu: Sequence[float]) -> None:
    sizes = sizes_of([1] * 1000)
    assert made((500, 500), sizes, cpu)[0] == Makes.COST
    assert made((500, 500), sizes, (0.5, 0.5))[0] == Makes.EVEN
    assert made((), sizes, cpu)[0] in (Makes.FEW_FLOWS, Makes.NOT_THE_SIZES)


@pytest.mark.parametrize(("cpu", "share"), [((0.1, 0.9), 0.6), ((0.8, 0.1, 0.1), 0.5)])
def test_cpu_stands_for_packets_that_are_not_counted(cpu: Sequence[float], share: float) -> None:
    flows = [round(1000 * share / (1 - share)), *[1] * 1000]
    assert made((), sizes_of(flows), cpu)[0] == Makes.ONE_FLOW
    assert what_makes((), cpu[:1], sizes_of(flows)) is None
    assert what_makes((), (0, 0), sizes_of(flows)) is None


@pytest.mark.parametrize("threads", [2, 5, 64])
def test_nothing_is_beyond_one_thread_that_has_all(threads: int) -> None:
    assert by_chance(sizes_of([1]), threads) == threads - 1
    assert by_chance(sizes_of([1] * 10**6), threads) < 0.2
