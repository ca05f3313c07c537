"""Several instances of Suricata share the packets: none lost, none twice, books for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodrop.errors import BadInput
from tests.e2e.conftest import Run, closes, only

pytestmark = pytest.mark.usefixtures("suricata")
LATE = "measure.late_p99_us=1e6"  # a busy machine is late; the books are the question


def details(outcome: Any) -> Any:
    (file,) = outcome.directory.glob("runs/*/trial.json")
    return json.loads(file.read_text())["details"]


@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize("defrag", ["yes", "no"])
def test_the_split_loses_nothing(run: Run, instances: int, defrag: str) -> None:
    outcome = run(f"setup.instances={instances}", f"sut.defrag={defrag}", "sut.threads=2",
                  "load.speed=10", LATE)  # fmt: skip
    record = only(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    parts = details(outcome)["instances"]
    assert len(parts) == instances
    assert all(part["closed"] and part["residual_packets"] == 0 for part in parts)
    assert sum(part["received_packets"] for part in parts) == record.offered_packets
    assert sum(part["decoded_packets"] for part in parts) == record.decoded_packets
    assert record.merged_packets == (0 if defrag == "no" else 1423)


def test_the_same_flows_go_the_same_way_every_time(run: Run) -> None:
    once, again = (details(run("setup.instances=2", "load.speed=20", LATE)) for _ in range(2))
    shares = [[part["received_packets"] for part in one["instances"]] for one in (once, again)]
    assert shares[0] == shares[1]
    assert once["imbalance_ratio"] == pytest.approx(2 * max(shares[0]) / sum(shares[0]) - 1)


@pytest.mark.parametrize("number", ["0", "true", "65", '"two"'])
def test_a_number_of_instances_that_makes_no_sense(run: Run, number: str) -> None:
    with pytest.raises(BadInput, match="must be a whole number from 1 to 64"):
        run(f"setup.instances={number}")
