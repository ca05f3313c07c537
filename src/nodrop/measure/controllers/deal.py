"""Which pair of a fleet measures which cell. The records decide, so a resumed run deals as before.

A cell stays on the pair that began it, as long as that stands. The others are dealt so that all
pairs end at about the same time, the longest cells first, equal ones in random order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from nodrop.measure.controllers.seam import Factors


class Deal:
    def __init__(self, cells: Sequence[Factors], lasts_s: Sequence[float], *, seed: int) -> None:
        """`lasts_s`: of each cell, a trial of it as intended."""
        dealt = list(zip(map(cell_key, cells), lasts_s, strict=True))
        Random(f"{seed} deal").shuffle(dealt)
        self._dealt = sorted(dealt, key=lambda cell: -cell[1])

    def owners(
        self, pairs: Sequence[str], begun: Iterable[tuple[Factors, str]]
    ) -> Mapping[str, str]:
        """Key of the cell → pair. `pairs` stand; `begun`: cells, each with a pair that measured a
        trial of it, in their order."""
        first: dict[str, str] = {}
        for cell, pair in begun:
            if pair in pairs:
                first.setdefault(cell_key(cell), pair)
        has_s = dict.fromkeys(pairs, 0.0)
        found: dict[str, str] = {}
        for key, lasts_s in self._dealt:
            owner = first.get(key) or min(pairs, key=lambda pair: has_s[pair])
            has_s[owner] += lasts_s
            found[key] = owner
        return found


def cell_key(cell: Factors) -> str:
    return json.dumps(cell, sort_keys=True, default=str)
