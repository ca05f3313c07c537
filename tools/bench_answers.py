"""Searches over simulated SUTs that change, spike or are disturbed: how often the answer is false.

python tools/bench_answers.py [SEARCHES] of each world. An answer "without loss" is false if its
load, tried again after the search, loses packets in more than half of the trials; then it is also
counted apart whether the answer says that the SUT changes. Each search has its seed, which is
printed if its answer is false.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulated_worlds import WORLDS, Found, searched_world

ALLOWED = 0.02
CHANGE = {"capacity-changed", "capacity-rounds-differ"}


def rows(searches: int, first_seed: int = 1) -> Iterator[tuple[str, list[Found]]]:
    for name, world in WORLDS.items():
        seeds = range(first_seed, first_seed + searches)
        yield name, [searched_world(world, seed) for seed in seeds]


def line(name: str, found: list[Found]) -> str:
    false = [one for one in found if one.is_false]
    thrice = [(1 - one.lossy) ** 3 for one in found if one.lossy is not None] or [0.0]
    again = [one.too_much**3 for one in found if one.too_much is not None] or [0.0]
    said = sum(bool(one.rules & CHANGE) for one in found)
    trials, seconds = (
        fmean(one.ndr.trials for one in found),
        fmean(one.ndr.trial_seconds for one in found),
    )
    seeds = ", ".join(str(one.seed) for one in false[:8])
    return (
        f"| {name} | {len(false) / len(found):.1%} | {fmean(thrice):.0%} | {fmean(again):.0%} "
        f"| {sum(o.inverted for o in found)} | {sum(o.ndr.lower is None for o in found)} | {said} "
        f"| {sum(one.low for one in found)} | {trials:.1f} | {seconds:.0f} | {seeds} |"
    )


def main() -> int:
    searches = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(
        "| world | false | no loss in 3 more | too much loses in 3 more | NDR > PDR | no load "
        "| change said | below 80 % | trials | s | seeds |"
    )
    print("|---" * 11 + "|")
    every: list[Found] = []
    for name, found in rows(searches):
        print(line(name, found), flush=True)
        every += found
    claimed = [one for one in every if one.lossy is not None]
    false = sum(one.is_false for one in claimed) / max(1, len(claimed))
    inverted = sum(one.inverted for one in every)
    print(f"false of all {len(claimed)} answers without loss: {false:.2%}; inverted: {inverted}")
    return int(false > ALLOWED or inverted > 0)


if __name__ == "__main__":
    sys.exit(main())
