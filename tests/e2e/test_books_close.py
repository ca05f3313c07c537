"""The packet books close to zero on real traffic, with real Suricata and both generators."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import SURICATA, WHOLE_TRACE, Run, closes, only
from tests.real_inputs import REALMIX_PACKETS

pytestmark = pytest.mark.usefixtures("suricata")

MERGED = 1423
"""Per pass: 1,551 valid fragments enter fanout defragmentation, 128 datagrams come out."""
HELD = 51


@pytest.mark.parametrize(
    ("generator", "defrag", "merged"),
    [("replay", "no", 0), ("tcpreplay", "yes", MERGED), ("tcpreplay", "no", 0)],
)  # replay with defrag: on each lab, in ssh/test_same_on_each_lab.py
def test_at_twenty_times_the_original_timing(
    run: Run, generator: str, defrag: str, merged: int
) -> None:
    record = only(run(WHOLE_TRACE, f"load.kind={generator}", f"sut.defrag={defrag}"))
    # tcpreplay 4.4.3 sleeps per packet and drifts: on a busy machine it is late, and void.
    assert record.valid or record.invalid_reasons == ["sender_late"], record.verdict
    assert record.offered.sent == REALMIX_PACKETS
    assert record.packets.merged_packets == merged
    assert record.packets.decoded_packets == REALMIX_PACKETS - merged
    assert record.packets.lost_packets == 0
    assert closes(record)


def test_three_passes_explain_every_packet(run: Run) -> None:
    record = only(run("load.loops=3"))
    assert (record.offered.sent, record.packets.decoded_packets) == (303_513, 299_244)
    assert record.packets.merged_packets == 4_269
    assert record.packets.merged_detail.absorbed_packets == 4_500 - 384
    assert record.packets.merged_detail.held_packets == 3 * HELD
    assert closes(record)


@pytest.mark.parametrize("defrag", ["yes", "no"])
def test_four_replicas_of_distinct_flows(run: Run, defrag: str) -> None:
    record = only(run("load.multiplier=4", "load.speed=10", f"sut.defrag={defrag}"))
    assert record.offered.sent == 4 * REALMIX_PACKETS
    assert record.packets.merged_packets == (4 * MERGED if defrag == "yes" else 0)
    assert closes(record)


@pytest.mark.parametrize("generator", ["replay", "tcpreplay"])
def test_four_identical_copies(run: Run, generator: str) -> None:
    record = only(
        run("load.multiplier=4", "load.flows=same", "load.speed=10", f"load.kind={generator}")
    )
    assert record.offered.sent == 4 * REALMIX_PACKETS
    assert closes(record)


@pytest.mark.parametrize("generator", ["replay", "tcpreplay"])
@pytest.mark.parametrize("defrag", ["yes", "no"])
def test_an_overload_that_drops(run: Run, generator: str, defrag: str) -> None:
    record = only(
        run(
            "sut.ring_size=64",
            f"sut.defrag={defrag}",
            "load.top_speed=true",
            f"load.kind={generator}",
            text=SURICATA.replace("speed = 20\n", ""),
        )
    )
    assert record.valid, record.verdict
    assert record.packets.lost_packets > 0
    assert record.packets.lost_by_place == {"socket ring": record.packets.lost_packets}
    assert closes(record)
