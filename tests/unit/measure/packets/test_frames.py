"""Bytes as far as the decoder: what the kernel takes off frames, and what the ring cuts off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nodrop.ledger.balance import Ledger, Lengths, balance, bytes_in, packets_in
from nodrop.ledger.hops import CUT, Account, Class, Hop
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import Verdict, judge
from nodrop.measure.packets import books
from nodrop.measure.packets.reassembly import Room
from nodrop.results.ledger_file import ledger_from_json, ledger_to_json
from nodrop.results.packet_books import PacketBooks
from nodrop.testbed.load.api import AtTap, Fragments, OfferedLoad
from nodrop.testbed.suts.api import SutCounters
from tests.unit.measure.packets.one_trial import side

ROOM = Room(bytes=1000, knob="sut.longest")
BLOCKS = Room(bytes=3966, knob="sut.block_size", beside_bytes=130, multiple_bytes=4096)


def trial(
    lengths: Lengths,
    *,
    decoded_bytes: int,
    tagged: int = 0,
    lost: int = 0,
    room: Room | None = ROOM,
    said: int | None = None,
    wire: bool = False,
    defragmented: Lengths | None = None,
    fragments: Fragments | None = None,
    invalid: int | None = None,
    checksum: int | None = None,
    stubs: int = 0,
    joined: bool = False,
    kind: str = "veth",
    path_lost: int = 0,
    refused: int = 0,
    between: Sequence[Hop] = (),
    split: bool = False,
    split_keeps_frames: bool = False,
    taken_out: Sequence[Account] = (),
) -> tuple[Ledger, Verdict]:
    """Frames of these lengths at the tap, on the way from the sender to a SUT."""
    sent, sent_bytes = packets_in(lengths), bytes_in(lengths) + 4 * tagged
    arrived, arrived_bytes = sent - path_lost, sent_bytes - path_lost * lengths[0][0]
    handed = arrived - (fragments.missing_packets if fragments else 0) - refused
    handed -= sum(account.packets for account in taken_out)
    reassembled = {
        "ReasmReqds": fragments.offered_packets if fragments else 0,
        "ReasmOKs": fragments.datagrams - refused if fragments else 0,
        "ReasmFails": refused,
    }
    receiver = side(
        "rx0", kind=kind, rx_packets=arrived, rx_bytes=arrived_bytes, **reassembled
    )  # fmt: skip
    seen = books.Observed(
        tx_ports=["tx0"],
        nic_ports=["rx0"],
        capture_ports=["rx0"],
        offered=OfferedLoad(
            intended_packets=sent,
            sent_packets=sent,
            sent_bytes=sent_bytes,
            duration_s=1.0,
            intended_duration_s=1.0,
            schedule_error_us=None,
            cpu_s=None,
            first_sent_mono_ns=1,
            last_sent_mono_ns=2,
        ),
        tx=side("tx0", kind=kind, tx_packets=sent, tx_bytes=sent_bytes),
        nic=receiver,
        capture=receiver,
        between=(between, taken_out),
        split=split,
        split_keeps_frames=split_keeps_frames,
        sut=SutCounters(
            captured_packets=handed,
            dropped_ring_full_packets=lost,
            decoded_packets=handed - lost,
            decoded_bytes=decoded_bytes,
            counts_wire_bytes=wire,
            cut_packets=said,
            invalid_packets=invalid,
            checksum_packets=checksum,
            checksum_knob="sut.checks = false",
            invalid_by={} if invalid is None else {"ipv4.trunc_pkt": invalid, "ipv4.opt": 1},
        ),
        defrag=fragments is not None,
        fragments=fragments,
        longest_frame_bytes=lengths[-1][0] + 4,
        at_tap=AtTap(
            arriving=lengths,
            defragmented=defragmented,
            tagged_packets=tagged,
            cut_packets=stubs,
            joined=joined,
        ),
        room=room,
    )
    ledger = balance(
        books.hops(seen), books.accounts(seen), longest_frame_bytes=seen.longest_frame_bytes
    )
    kept = ledger_to_json(ledger)
    assert ledger_to_json(ledger_from_json(kept)) == kept
    return ledger, judge(ledger, Sending(intended_packets=sent, sent_packets=sent))


SMALL = [(60, 500), (900, 30)]
LONG = [*SMALL, (1500, 40), (65_000, 30)]


@pytest.mark.parametrize("off", [0, 1, -1, 4, -64_000])
@pytest.mark.parametrize(("tagged", "said"), [(0, None), (7, None), (0, 70), (530, 70)])
def test_cut_frames_are_a_class_and_their_bytes_close(
    tagged: int, said: int | None, off: int
) -> None:
    cut_off = 40 * 500 + 30 * 64_000
    ledger, verdict = trial(
        LONG, tagged=tagged, said=said, decoded_bytes=bytes_in(LONG) - cut_off - off
    )
    cut = next(a for a in ledger.accounts if a.name == CUT)
    assert (cut.packets, cut.bytes, cut.kind) == (70, cut_off, Class.SHORTENED)
    assert (ledger.residual_packets, ledger.residual_bytes, ledger.slack_bytes) == (0, off, 0)
    found = PacketBooks.of(ledger, verdict)
    assert (found.cut_packets, found.cut_bytes) == (70, cut_off)
    assert found.loss_ratio == (0 if not off else None)
    (remark,) = verdict.remarks
    assert remark.knob == "sut.longest = 65000 takes them whole"
    assert "70 of 600 decoded packets (11.67 %) were cut" in remark.words
    assert remark.words in verdict.words
    assert verdict.valid is (off == 0)


@pytest.mark.parametrize(("lengths", "room", "knob"), [
    (SMALL, ROOM, None),
    (SMALL, replace(ROOM, bytes=899), "sut.longest = 900"),
    ([(60, 1), (3966, 2)], BLOCKS, None),
    ([(60, 1), (3967, 2)], BLOCKS, "sut.block_size = 8192"),
    ([(60, 1), (8062, 2)], BLOCKS, "sut.block_size = 8192"),
    ([(60, 1), (8063, 2)], BLOCKS, "sut.block_size = 12288"),
])  # fmt: skip
def test_the_knob_is_the_least_that_takes_the_longest_frame(
    lengths: Lengths, room: Room, knob: str | None
) -> None:
    whole = sum(min(n, room.bytes) * packets for n, packets in lengths)
    ledger, verdict = trial(lengths, room=room, decoded_bytes=whole)
    assert ledger.closed and verdict.loss_ratio == 0
    assert [remark.knob for remark in verdict.remarks] == (
        [] if knob is None else [f"{knob} takes them whole"]
    )
    if knob is None:
        assert verdict.words == "no loss"
        assert PacketBooks.of(ledger, verdict).cut_packets == 0
    _, verdict = trial(lengths, room=room, decoded_bytes=whole, joined=True)
    assert all('load.offloaded = "split"' in remark.knob for remark in verdict.remarks)


@pytest.mark.parametrize("lost", [5, 70, 100])
@pytest.mark.parametrize("beyond", [0, 1])
def test_bytes_of_lost_packets_are_bounded_by_the_lengths_there_are(lost: int, beyond: int) -> None:
    """Which packets were lost no counter says: all short ones, or the longest."""
    whole = sum(min(n, 1000) * packets for n, packets in LONG)
    shortest, longest = 60 * lost, 1000 * min(lost, 70) + 900 * max(0, lost - 70)
    # Only short ones were lost: every cut frame came.
    ledger, verdict = trial(LONG, lost=lost, said=70, decoded_bytes=whole - shortest + beyond)
    assert ledger.residual_bytes == -beyond and ledger.closed is (beyond == 0)
    cut = next(a for a in ledger.accounts if a.name == CUT)
    assert cut.packets == 70 and cut.bytes == 40 * 500 + 30 * 64_000
    # The longest were lost, as many as there were: that many fewer were cut.
    came = 70 - min(lost, 70)
    assert trial(LONG, lost=lost, said=came, decoded_bytes=whole - longest)[0].closed
    # No SUT's word on it: at least, and at the most.
    ledger, verdict = trial(LONG, lost=lost, decoded_bytes=whole - shortest)
    cut = next(a for a in ledger.accounts if a.name == CUT)
    assert cut.packets == max(0, 70 - lost) and cut.bytes is None
    assert cut.bytes_between is not None and cut.bytes_between[1] == 40 * 500 + 30 * 64_000
    assert ledger.residual_bytes == 0 and ledger.slack_bytes
    assert verdict.loss_ratio == lost / 600


@pytest.mark.parametrize("tagged", [0, 3, 500])
@pytest.mark.parametrize("off", [0, 1, -1])
def test_tags_are_taken_off_ahead_of_a_capture(tagged: int, off: int) -> None:
    ledger, _ = trial(SMALL, tagged=tagged, decoded_bytes=bytes_in(SMALL) - off)
    assert ledger.residual_bytes == off
    # A SUT that counts the bytes of the wire has put them back.
    ledger, _ = trial(SMALL, tagged=tagged, decoded_bytes=bytes_in(SMALL) + 4 * tagged, wire=True)
    assert ledger.residual_bytes == 0 and not any(a.kind is Class.SHORTENED and a.packets
                                                  for a in ledger.accounts)  # fmt: skip


def test_tags_of_frames_that_never_came_were_not_taken_off() -> None:
    for decoded in (bytes_in(SMALL) - 10 * 60, bytes_in(SMALL) - 10 * 60 + 40):
        ledger, _ = trial(SMALL, tagged=20, path_lost=10, decoded_bytes=decoded)
        tags = next(a for a in ledger.accounts if a.name == "rx_vlan_tag")
        assert tags.bytes_between == (40, 80)
        assert ledger.residual_bytes == 0
    ledger, _ = trial(SMALL, tagged=20, path_lost=10, decoded_bytes=bytes_in(SMALL) - 559)
    assert ledger.residual_bytes == -1


FRAGMENTS = Fragments(
    offered_packets=9,
    absorbed_packets=7,
    datagrams=2,
    held_packets=2,
    merged_bytes=7 * 60 - 2 * 310,
    held_bytes=120,
)
NO_FRAGMENTS = Fragments(offered_packets=0, absorbed_packets=0, datagrams=0, held_packets=0)


@pytest.mark.parametrize("off", [0, 1, -1])
@pytest.mark.parametrize("wire", [True, False])
def test_fragments_leave_their_headers_behind(off: int, wire: bool) -> None:
    """Seven fragments of 60 bytes, padding and all, became two datagrams of 310."""
    whole = [(60, 491), (310, 2), (900, 30)]
    ledger, _ = trial(
        SMALL,
        fragments=FRAGMENTS,
        defragmented=whole,
        decoded_bytes=bytes_in(whole) - off,
        wire=wire,
    )
    assert (ledger.residual_bytes, ledger.slack_bytes) == (off, 0)
    # A datagram may be longer than the ring has room for, though no frame of the wire is.
    ledger, verdict = trial(
        SMALL,
        room=replace(ROOM, bytes=300),
        fragments=FRAGMENTS,
        defragmented=whole,
        decoded_bytes=491 * 60 + 32 * 300 - off,
    )
    cut = next(a for a in ledger.accounts if a.name == CUT)
    assert (cut.packets, cut.bytes, ledger.residual_bytes) == (32, 20 + 30 * 600, off)
    assert verdict.remarks[0].knob.startswith("sut.longest = 900")


@pytest.mark.parametrize("off", [0, 1, -1])
def test_a_datagram_that_was_not_put_together_has_its_whole_length(off: int) -> None:
    """It is longer than each frame of the wire, and none of its fragments came out."""
    whole = [(60, 491), (900, 30), (1310, 2)]
    less = replace(FRAGMENTS, merged_bytes=7 * 60 - 2 * 1310)
    for refused, longest in ((1, 1310), (2, 2620)):
        ledger, verdict = trial(
            SMALL,
            room=None,
            fragments=less,
            refused=refused,
            defragmented=whole,
            decoded_bytes=bytes_in(whole) - longest - off,
        )
        assert ledger.total(Class.LOST) == refused and ledger.residual_packets == 0
        assert ledger.residual_bytes == max(off, 0)
        assert ledger.slack_bytes == longest - 60 * refused
        assert verdict.valid is (off < 1)


@pytest.mark.parametrize(("tagged", "lengths"), [(7, SMALL), (40, [(90, 300), (1514, 55)])])
def test_bytes_go_on_behind_a_split_that_hands_on_each_frame(tagged: int, lengths: Lengths) -> None:
    ways = [Hop(name="split", packets=packets_in(lengths), counter="nft")]
    for keeps, off, found in ((True, 0, 0), (True, 9, 9), (True, -4, -4), (False, 9, 0)):
        ledger, verdict = trial(
            lengths,
            tagged=tagged,
            decoded_bytes=bytes_in(lengths) - off,
            between=ways,
            split=True,
            split_keeps_frames=keeps,
            room=None,
        )
        assert ledger.residual_bytes == found and verdict.valid is not bool(found)
        assert (ledger.hops[-1].bytes is None) is not keeps, "not known"


@pytest.mark.parametrize("lengths", [SMALL, [(90, 300), (1514, 55)]])
@pytest.mark.parametrize(
    ("split", "merged", "fragments", "known"),
    [
        (False, 0, None, True),
        (False, 3, None, False),
        (True, 0, NO_FRAGMENTS, True),
        (True, 0, None, False),
        (True, 0, replace(NO_FRAGMENTS, offered_packets=8, datagrams=8), False),
    ],
    ids=["macvtap", "macvtap-merged", "bridge", "bridge-unknown", "bridge-of-fragments"],
)
def test_bytes_go_on_where_no_fragment_was_put_together(
    lengths: Lengths, split: bool, merged: int, fragments: Fragments | None, known: bool
) -> None:
    """A macvtap, a guest and a bridge hand on frames as they came, else."""
    packets = packets_in(lengths) - merged
    for off in (0, 9):
        ledger, verdict = trial(
            lengths,
            decoded_bytes=bytes_in(lengths) - off,
            between=[Hop(name="between", packets=packets, counter="rx_packets")],
            taken_out=[
                Account(
                    into="between", kind=Class.MERGED, name="merged", packets=merged, counter="snmp"
                )
            ],
            split=split,
            fragments=fragments,
            room=None,
        )
        assert (ledger.hops[-1].bytes is None) is not known
        assert ledger.residual_bytes == (off if known else 0)
        assert verdict.valid is not (known and off > 0)


def test_ports_that_pad_may_have_padded() -> None:
    short = [(42, 10), (60, 5), (900, 5)]
    most = 10 * 22 + 5 * 4
    for padded in (0, 10 * 18, most):
        ledger, _ = trial(short, kind="ixgbe", decoded_bytes=bytes_in(short) + padded)
        assert ledger.residual_bytes == 0 and ledger.slack_bytes == most
    assert trial(short, kind="ixgbe", decoded_bytes=bytes_in(short) + most + 1)[0].residual_bytes
    assert trial(short, decoded_bytes=bytes_in(short) + 1)[0].residual_bytes == -1


@pytest.mark.parametrize(("invalid", "stubs"), [(530, 530), (3, 0), (0, 0), (None, 0)])
def test_what_the_decoder_calls_invalid_is_said_beside_no_loss(
    invalid: int | None, stubs: int
) -> None:
    ledger, verdict = trial(SMALL, invalid=invalid, stubs=stubs, decoded_bytes=bytes_in(SMALL))
    assert ledger.closed and verdict.loss_ratio == 0
    assert PacketBooks.of(ledger, verdict).invalid_packets == invalid
    if not invalid:
        assert verdict.words == "no loss" and not verdict.remarks
        return
    (remark,) = verdict.remarks
    assert f"the decoder calls {invalid} of 530 decoded packets" in remark.words
    assert f"ipv4.trunc_pkt {invalid}" in remark.words
    assert (remark.words in verdict.words) == (invalid == 530), "few are said once, in the answer"
    of_capture = "the capture cut 530 of the frames that were sent" in remark.words
    assert of_capture is bool(stubs) is ('load.cut = "pad"' in remark.knob)


@pytest.mark.parametrize(("wrong", "said"), [(140, True), (6, True), (5, False), (0, False)])
def test_wrong_checksums_from_a_hundredth_on_are_said_beside_no_loss(
    wrong: int, said: bool
) -> None:
    ledger, verdict = trial(SMALL, checksum=wrong, decoded_bytes=bytes_in(SMALL))
    assert ledger.closed and verdict.loss_ratio == 0
    found = PacketBooks.of(ledger, verdict)
    assert (found.checksum_packets, found.invalid_packets) == (wrong, None)
    assert [remark.knob for remark in verdict.remarks] == ["sut.checks = false"] * said
    words = f"{wrong} of 530 decoded packets ({100 * wrong / 530:.2f} %) had a wrong TCP checksum"
    assert [remark.words for remark in verdict.remarks] == [words] * said
    assert verdict.words == "no loss", "the answer says it once"


def test_a_sut_that_says_nothing_of_checksums_has_none_known() -> None:
    assert PacketBooks.of(*trial(SMALL, decoded_bytes=bytes_in(SMALL))).checksum_packets is None
