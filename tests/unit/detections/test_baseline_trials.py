"""Trials of a baseline: what became of each that is no baseline, in its own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from nodrop.config.experiment import Measure
from nodrop.detections import Baseline, FoundDetections
from nodrop.errors import TrialFailed
from nodrop.ledger.outcome import Outcome
from nodrop.ledger.verdict import Verdict
from nodrop.measure.baselines import Baselines
from nodrop.measure.cells import Cell
from nodrop.measure.worlds import Worlds
from nodrop.testbed.setups.api import Limits

LOST = "12.40 % lost (620 of 5,000), socket ring"
LATE = "void: the sender was late (p99 9.1 ms)"
OPEN = "void: 3 packets are in no class"
FOUND = FoundDetections(units=frozenset({("1:7", "tcp 10.0.0.1:1 10.0.0.2:80")}), alerts=1)


class Standing:
    """Trials of these verdicts, in turn; "" lost nothing."""

    def __init__(self, verdicts: list[str], *, stays: bool = False) -> None:
        self._verdicts = verdicts
        self.worn = "" if stays else "it ended"
        self.starts: list[int] = []
        """Trials of each start."""

    @contextmanager
    def stand(self, *_: object) -> Iterator[Standing]:
        self.starts.append(0)
        yield self

    def spent(self, *_: object) -> str:
        return ""

    def measure(self, *_: object) -> Any:
        self.starts[-1] += 1
        words = self._verdicts.pop(0)
        if words.startswith("raises"):
            raise TrialFailed(words)
        void = words.startswith("void")
        outcome = Outcome.VOID if void else Outcome.MEASURED
        ledger = SimpleNamespace(closed=words != OPEN, total=lambda _: 620 if words == LOST else 0)
        return SimpleNamespace(
            packets=SimpleNamespace(ledger=None if words == LATE else ledger),
            verdict=Verdict(outcome=outcome, words=words),
            found=FOUND,
            no_ratio="",
        )


@pytest.mark.parametrize(
    ("sut", "verdicts", "live", "starts", "said"),
    [
        ("fresh", ["", ""], 2, [1, 1], ""),
        ("fresh", [LOST, "", ""], 2, [1, 1, 1], ""),
        ("fresh", [LOST] * 3, 0, [1] * 3, f"no lossless trial: at 5,000 packets/s: {LOST}; at 2,5"),
        ("fresh", [LATE] * 3, 0, [1] * 3, f"no lossless trial: at 5,000 packets/s: {LATE}; at 2,5"),
        (
            "fresh",
            [OPEN, "", LATE],
            1,
            [1] * 3,
            f"1 lossless trial: at 5,000 packets/s: {OPEN}; at",
        ),
        ("fresh", ["", "raises: it died"], 1, [1, 1], "1 lossless trial: raises: it died"),
        ("standing", ["", "", ""], 3, [2, 1], ""),
        ("standing", [LOST, "", "", ""], 3, [1, 2, 1], ""),
        ("standing", ["", "raises: it died"], 1, [2], "1 lossless trial: raises: it died"),
    ],
)
def test_each_trial_that_is_no_baseline_has_its_own_words(
    sut: Literal["fresh", "standing"],
    verdicts: list[str],
    live: int,
    starts: list[int],
    said: str,
) -> None:
    """Seen: "trials at 5,000 packets/s and at the half lost packets" of void ones."""
    facts = SimpleNamespace(
        planned=SimpleNamespace(packets=100_000), duration_s=20.0, path=Path("a.pcap"), sha256="a"
    )
    parts: Any = SimpleNamespace(
        load=lambda _: SimpleNamespace(trace_facts=lambda: facts), bits=lambda _: None
    )
    detecting: Any = SimpleNamespace(roomy={})
    cell = Cell(factors={}, setup={}, sut={}, load={}, limits=Limits())
    measurer: Any = Standing(list(verdicts), stays=sut == "standing")
    worlds = Worlds(measurer, lambda _: None)
    baselines = Baselines(parts, Measure(sut=sut, outcome=("alerts",)), worlds, lambda _: None)
    found = baselines.found_by(cell, detecting, {}, offline=FOUND)
    assert len(found.live) == live and measurer.starts == starts
    assert found.why.startswith(said) and (found.why == "") == (said == "")
    assert "lost packets" not in found.why
    assert found.words.endswith(found.why)


@pytest.mark.parametrize("differs", [False, True])
def test_a_search_by_replicas_expects_what_the_sut_reads_of_them(differs: bool) -> None:
    """Trials of one replica say which rules its reading tells, whatever their number is."""
    others = frozenset({("1:8", "tcp 10.0.0.3:1 10.0.0.4:80")})
    offline = FoundDetections(units=FOUND.units | others, alerts=2) if differs else FOUND
    many = FoundDetections(units=frozenset((sid, f"{where}{n}") for sid, where in offline.units
                                 for n in range(4)), alerts=8)  # fmt: skip

    class Held(Baselines):
        def of(self, cell: Cell, load: Any, phase: Any) -> Baseline:
            assert load["multiplier"] == 1
            return Baseline(offline=offline, live=[FOUND, FOUND])

    nothing: Any = None
    cell = Cell(factors={}, setup={}, sut={}, load={}, limits=Limits())
    held = Held(nothing, Measure(outcome=("alerts",)), nothing, lambda _: None, replicas=True)
    found = held._of_replicas(cell, {"multiplier": 4}, many)
    assert found.expected == {unit for unit in many.units if unit[0] == "1:7"}
    assert len(found.expected) == 4 and "2 lossless trials" in found.words
