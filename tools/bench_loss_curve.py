"""How often the interval of the loss curve holds the truth: SUTs whose loss curve is known.

python tools/bench_loss_curve.py [SEEDS]: prints the table of docs/methodology.md. What is refused
(too few trials that lost packets, or none that did not) is counted apart.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from statistics import median

from scipy.special import ndtri

sys.path.insert(0, str(Path(__file__).parents[1]))

from nodrop.stats.loss_curve import LossCurve, loss_curve
from tests.lossy_trials import LossySut

SUTS = [
    *((f"{noise:.1%}", LossySut(noise=noise), 1) for noise in (0, 0.005, 0.02, 0.05)),
    ("2.0%, one-sided", LossySut(noise=0.02, one_sided=True), 1),
    ("2.0%, one-sided, 5% stalls", LossySut(noise=0.02, one_sided=True, stalls=0.05), 1),
    ("2.0%, starts 2.0%", LossySut(noise=0.02, between_starts=0.02), 3),
    ("2.0%, starts 6.0%", LossySut(noise=0.02, between_starts=0.06), 3),
]


def truth(sut: LossySut) -> float:
    """What the median trial takes."""
    if not sut.one_sided:
        return 1.0
    rest = (0.5 - sut.stalls) / (1 - sut.stalls)
    return 1 - sut.noise * float(ndtri(1 - rest / 2))


def row(name: str, sut: LossySut, starts: int, n: int, seeds: int) -> str:
    found = [loss_curve(sut.trials(n, Random(f"{s} {n}"), starts=starts)) for s in range(seeds)]
    curves = [one for one in found if isinstance(one, LossCurve)]
    wide = median(one.high_pps / one.low_pps - 1 for one in curves)
    held = sum(one.low_pps <= truth(sut) * 10_000 <= one.high_pps for one in curves)
    return (
        f"| {name} | {n} | {starts} | {held / len(curves):.1%} | {wide:.2%} "
        f"| {1 - len(curves) / seeds:.0%} |"
    )


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| noise | trials | starts | covers | width | refused |\n|---|---|---|---|---|---|")
    for name, sut, starts in SUTS:
        for n in (6, 15, 30) if starts > 1 else (5, 8, 15, 30):
            print(row(name, sut, starts, n, seeds), flush=True)


if __name__ == "__main__":
    main()
