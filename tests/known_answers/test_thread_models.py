"""Run modes and threads: what runs is what was asked for, and every thread's own books close."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.results.trial import TrialRecord
from nodrop.testbed.images.image_cache import list_images
from tests.depth import depth
from tests.e2e.conftest import SURICATA, WHOLE_TRACE, Run, closes

CELLS = """
[matrix.cells.single]
sut.runmode = "single"
[matrix.cells.workers-2]
sut.runmode = "workers"
sut.threads = 2
[matrix.cells.autofp-2x3]
sut.runmode = "autofp"
sut.threads = 2
sut.detect_threads = 3
sut.autofp_scheduler = "ippair"
sut.capture_cpus = "0"
sut.worker_cpus = "1"
"""
MORE_CELLS = """
[matrix.cells.autofp-3x1]
sut.runmode = "autofp"
sut.threads = 3
sut.detect_threads = 1
[matrix.cells.autofp-1x1]
sut.runmode = "autofp"
sut.threads = 1
sut.detect_threads = 1
[matrix.cells.autofp-4x4]
sut.runmode = "autofp"
sut.threads = 4
sut.detect_threads = 4
"""
ROLES = {
    "single": ["worker"],
    "workers-2": ["worker"] * 2,
    "autofp-1x1": ["receive", "worker"],
    "autofp-3x1": ["receive"] * 3 + ["worker"],
    "autofp-4x4": ["receive"] * 4 + ["worker"] * 4,
    "autofp-2x3": ["receive"] * 2 + ["worker"] * 3,
}
ASKED = ("runmode", "threads", "detect_threads")


def names(cells: str) -> list[str]:
    return sorted(name for name in ROLES if f".{name}]" in cells)


@pytest.mark.usefixtures("suricata")
@pytest.mark.parametrize("cells", [CELLS, depth(MORE_CELLS)])
def test_every_thread_model_closes_by_thread_and_in_sum(run: Run, cells: str) -> None:
    records = run("load.speed=60", WHOLE_TRACE, text=SURICATA + cells).records
    assert sorted(str(record.cell["cell"]) for record in records) == names(cells)
    for record in records:
        _closes_by_thread(record)


def test_suricata_8_has_the_same_books_and_roles(run: Run) -> None:
    """Its rings are TPACKET_V3, and its table of CPU sets is another."""
    made = [image for image in list_images("suricata") if image.version.startswith("8.")]
    if not made:
        pytest.skip("no image of Suricata 8: nodrop image build suricata --release NAME")
    records = run(f"sut.image={made[0].sha256}", text=SURICATA + CELLS + MORE_CELLS).records
    assert sorted(str(record.cell["cell"]) for record in records) == sorted(ROLES)
    for record in records:
        _closes_by_thread(record)


def _closes_by_thread(record: TrialRecord) -> None:
    assert record.valid and closes(record), record.verdict
    assert record.threads_unexplained_packets == 0
    assert record.not_as_asked == [] or "defrag" in record.not_as_asked[0]
    asked: dict[str, Any] = {k: v for k in ASKED if (v := record.cell.get(f"sut.{k}")) is not None}
    assert asked.items() <= record.effective.items()
    counting = [t for t in record.threads if t.decoded_packets is not None]
    assert [thread.role for thread in counting] == ROLES[str(record.cell["cell"])]
    decoded = sum(thread.decoded_packets or 0 for thread in counting)
    assert decoded == record.packets.decoded_packets
    flows = [thread.flows for thread in counting if thread.role == "worker"]
    assert all(flows) and sum(filter(None, flows)) > 1000
    assert all(thread.cpu_ratio is not None for thread in counting)
