"""The books of a load multiplier that is no whole number close as those of any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.testbed.load.replay import Replay
from tests.depth import depth
from tests.e2e.conftest import SURICATA, Run, closes
from tests.e2e.one_world import STANDING, loads_of_one_world


@pytest.mark.usefixtures("suricata")
@pytest.mark.parametrize("multipliers", [(0.4, 1.5), depth((2.7,))])
def test_books_of_a_part_close(
    run: Run, real_trace: Path, multipliers: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fragments of a real trace are put together as it was forecast for the part sent."""
    loads_of_one_world(monkeypatch, *({"multiplier": times} for times in multipliers))
    records = run(STANDING, "load.speed=40").records
    assert len(records) == len(multipliers)
    for record, multiplier in zip(records, multipliers, strict=True):
        table = {"trace": str(real_trace), "speed": 40, "multiplier": multiplier}
        facts = Replay(table, base=Path()).trace_facts()
        assert record.offered.sent == facts.planned.packets
        assert record.packets.merged_packets == facts.fragments.missing_packets > 0
        assert closes(record)


def test_a_matrix_of_fractions_names_its_cells(run: Run) -> None:
    sink = SURICATA.replace('kind = "suricata"\nring_size = 30000', 'kind = "sink"\n')
    outcome = run("matrix.load.multiplier=[1, 1.5, 2]", "load.speed=60", text=sink)
    names = sorted(record.run.split("-")[1] for record in outcome.records)
    assert names == ["1.5x", "1x", "2x"]
    assert all(closes(record) for record in outcome.records)
