"""The books under faults that make up for each other, and under a kernel that refuses."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import Inject, xdp_drops
from tests.known_answers import frames
from tests.known_answers.frames import TAKEN_PORT, datagram

SINK = """
name = "books"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "TRACE"
pps = 20000
[measure]
repetitions = 1
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
steal_max_ratio = 1
late_burst_max_ratio = 1
"""


@pytest.fixture(scope="module")
def real_trace() -> Path:
    """No real trace is used here: every trace is made."""
    return Path()


@pytest.fixture
def sink(run: Run, tmp_path: Path) -> Callable[..., Any]:
    """One trial of these frames into the sink, with a fault as the step begins."""

    def go(
        sent: list[bytes], *settings: str, step: str = "offer", fault: Callable[[], None]
    ) -> Any:
        trace = frames.write(tmp_path / "trace.pcap", sent)
        text = SINK.replace("TRACE", str(trace))
        return only(run(*settings, text=text, progress=Inject(step, fault)))

    return go


def mixed(kept: int, taken: int, *, length: int = 1000) -> list[bytes]:
    """Frames in an order of chance, of which a fault takes so many."""
    found = [datagram(length)] * kept + [datagram(length, TAKEN_PORT)] * taken
    random.Random(kept * taken).shuffle(found)
    return found


@pytest.mark.parametrize(("taken", "put_in"), [(200, 200), (50, 300), depth(200, 150), depth(1, 1)])
def test_what_the_sender_lost_and_what_others_sent_are_never_netted(
    sink: Callable[..., Any], taken: int, put_in: int
) -> None:
    def fault() -> None:
        frames.drop_on_the_way_out()
        frames.send("snd", put_in)

    record = sink(mixed(2000, taken), fault=fault)
    assert record.outcome == "void", record.verdict
    assert "received_more_than_sent" in record.invalid_reasons
    assert (record.packets.lost_packets, record.packets.foreign_packets) == (taken, put_in)
    assert record.packets.residual_packets == 0


@pytest.mark.parametrize(("taken", "length", "put_in_length"),
                         [(200, 1000, 60), (1, 1000, 1001), depth(300, 60, 1400)])  # fmt: skip
def test_as_many_other_packets_show_in_their_bytes(
    sink: Callable[..., Any], taken: int, length: int, put_in_length: int
) -> None:
    def fault() -> None:
        frames.steal_on_the_way_out()
        frames.send("snd", taken, length=put_in_length)

    sent = mixed(2000, taken, length=length)
    record = sink(sent, "load.kind=tcpreplay", "load.flows=same", fault=fault)
    assert "residual" in record.invalid_reasons, record.verdict
    assert record.outcome == "void"
    assert record.packets.residual_packets == 0
    assert record.packets.residual_bytes == taken * (length - put_in_length)


@pytest.mark.parametrize("count", [37, depth(1), depth(500)])
def test_what_the_receiving_port_sends_is_seen_where_its_taps_are_not(
    sink: Callable[..., Any], count: int
) -> None:
    def fault() -> None:
        frames.send("rcv", count, past_the_taps=True)

    record = sink(mixed(2000, 0), fault=fault)
    assert record.outcome == "void", record.verdict
    assert record.packets.foreign_packets == count
    assert "sent packets out of ndrx0" in record.verdict


@pytest.mark.parametrize(("mtu", "long"), [(1000, 200), depth(576, 1), depth(1300, 1999)])
def test_an_mtu_of_the_receivers_is_the_receivers(
    sink: Callable[..., Any], mtu: int, long: int
) -> None:
    """Frames of 500 bytes pass, those of 1,400 do not; the sender gets ENOBUFS."""
    sent = [datagram(500)] * (2000 - long) + [datagram(1400)] * long
    random.Random(mtu).shuffle(sent)

    def fault() -> None:
        frames.inside("rcv", "ip", "link", "set", "ndrx0", "mtu", str(mtu))

    record = sink(sent, fault=fault)
    assert record.valid, record.verdict
    assert record.packets.lost_by_place == {"receiving port": long}
    assert f"MTU of ndrx0 is {mtu}, of ndtx0 9000" in record.verdict
    assert closes(record) and record.packets.residual_bytes == 0


@pytest.mark.parametrize("refused", [50, depth(1), depth(1000)])
def test_a_receiver_that_is_down_for_a_while(
    sink: Callable[..., Any], tmp_path: Path, refused: int
) -> None:
    """A packet or two may be on its way to the socket as it closes, and nothing counts them."""
    outside: list[threading.Thread] = []

    def fault() -> None:
        outside.append(threading.Thread(target=frames.receiver_down_for, args=[refused]))
        outside[0].start()

    record = sink(mixed(20_000, 0), "load.pps=10000", fault=fault)
    outside[0].join()
    packets = record.packets
    missing = record.offered.sent - packets.captured_packets
    assert packets.lost_packets + packets.residual_packets == missing
    assert 0 <= packets.residual_packets < 10
    assert record.invalid_reasons == (["residual"] if packets.residual_packets else [])
    (file,) = tmp_path.glob("results/*/runs/*/ledger.json")
    (lost,) = (a for a in json.loads(file.read_text())["accounts"] if a["kind"] == "lost")
    assert lost["place"] == "receiving port"
    assert lost["packets"] == record.packets.lost_packets >= refused
    assert "the carrier changed 2 times of ndtx0, 2 times of ndrx0" in lost["evidence"]


@pytest.mark.parametrize("program", [False, True])
def test_a_thief_is_no_xdp_program(
    sink: Callable[..., Any], program: bool, request: pytest.FixtureRequest
) -> None:
    """Half of the flows go to another member of the fanout group; the program lets all pass."""
    if program:
        request.getfixturevalue("real_root")
    sent = [frames.ip(bytes(100), source=n) for n in range(200)] * 10
    with frames.thief() as thieves, xdp_drops(2**31 - 1, "skb") as attach:

        def fault() -> None:
            frames.steal(thieves)
            if program:
                attach()

        record = sink(sent, "sut.defrag=yes", step="read counters", fault=fault)
    assert record.outcome == "void", record.verdict
    assert "residual" in record.invalid_reasons
    assert record.packets.lost_packets == 0 and record.packets.residual_packets > 0
    assert ("is attached to ndrx0 in generic mode" in record.verdict) is program


@pytest.mark.parametrize(
    ("count", "size", "limit"),
    [
        (1000, 200, 300_000),
        (4000, 1400, None),
        depth(1000, 1000, 100_000),
        depth(300, 1400, 50_000),
    ],
)
def test_reassembly_that_refuses_for_want_of_memory_loses(
    sink: Callable[..., Any], count: int, size: int, limit: int | None
) -> None:
    """All first halves, then all second ones; None: the kernel's own 4 MiB."""

    def fault() -> None:
        if limit is not None:
            frames.limit_reassembly(ipfrag_high_thresh=limit)

    first, second = frames.halves(count, size=size)
    record = sink([*first, *second], "sut.defrag=yes", fault=fault, step="read counters")
    assert record.valid, record.verdict
    # What was put together is what the sink was handed.
    assert record.packets.lost_by_place == {
        "kernel ahead of the tap": count - record.packets.decoded_packets
    }
    assert record.packets.lost_packets > 0
    assert record.packets.knob.startswith("net.ipv4.ipfrag_high_thresh")
    assert (record.packets.merged_packets, record.packets.residual_packets) == (count, 0)
    assert record.packets.residual_bytes == 0


def test_reassembly_with_room_loses_nothing(sink: Callable[..., Any]) -> None:
    first, second = frames.halves(3000)
    sent = [frame for pair in zip(first, second, strict=True) for frame in pair]
    record = sink(sent, "sut.defrag=yes", fault=lambda: None)
    assert record.valid and record.packets.lost_packets == 0, record.verdict
    assert (record.packets.decoded_packets, record.packets.merged_packets) == (3000, 3000)
    assert record.packets.residual_bytes == 0


@pytest.mark.parametrize(("distance", "count"), [(64, 500), depth(1, 100), depth(10, 11)])
def test_reassembly_that_flushes_for_distance_loses(
    sink: Callable[..., Any], distance: int, count: int
) -> None:
    """All of one source, and more of its fragments in between than it allows."""

    def fault() -> None:
        frames.limit_reassembly(ipfrag_max_dist=distance)

    first, second = frames.halves(count, sources=False)
    sent = [*first, *second, *[datagram(100)] * 500]
    record = sink(sent, "sut.defrag=yes", fault=fault, step="read counters")
    assert record.valid, record.verdict
    assert record.packets.lost_by_place == {"kernel ahead of the tap": record.packets.lost_packets}
    assert record.packets.lost_packets == count + 500 - record.packets.decoded_packets > 0
    assert record.packets.knob.startswith("net.ipv4.ipfrag_max_dist")
    assert record.packets.residual_packets == 0


def test_reassembly_that_times_out_loses(run: Run, tmp_path: Path) -> None:
    """The second halves come 2.5 s after the first; the receiver waits for 1 s."""
    first, second = frames.halves(300)
    trace = frames.write(tmp_path / "trace.pcap", [*first, *second], gaps_s=[2.5])
    text = SINK.replace("TRACE", str(trace)).replace("pps = 20000", "speed = 1")
    inject = Inject("read counters", lambda: frames.limit_reassembly(ipfrag_time=1))
    record = only(run("sut.defrag=yes", text=text, progress=inject))
    assert record.valid, record.verdict
    assert record.packets.lost_by_place == {"kernel ahead of the tap": 300}
    assert record.packets.knob.startswith("net.ipv4.ipfrag_time")
    assert (record.packets.decoded_packets, record.packets.residual_packets) == (0, 0)
