"""Captures as people have them: what is sent of each, and what is said about it."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.testbed.load.prepared import ReadingLine
from nodrop.testbed.load.trace import facts_of, find_trace, prepared_trace

Frame = tuple[float, bytes]
ETHERNET, RAW, COOKED, USB = 1, 101, 113, 220


def capture(path: Path, frames: Sequence[Frame], *, link: int = ETHERNET, wire: int = 0) -> Path:
    """`wire` is the length that each frame had, if it is more than what was captured."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, link)]
    for at_s, frame in frames:
        seconds, micros = divmod(round(at_s * 1e6), 1_000_000)
        parts += [struct.pack("<IIII", seconds, micros, len(frame), wire or len(frame)), frame]
    path.write_bytes(b"".join(parts))
    return path


def ip(payload: bytes, protocol: int = 17) -> bytes:
    total = min(20 + len(payload), 65_535)
    head = struct.pack(">BBHHHBBH", 0x45, 0, total, 7, 0, 64, protocol, 0)
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + payload


def udp(payload: int = 60) -> bytes:
    return ip(struct.pack(">HHHH", 53, 53, 8 + payload, 0) + b"x" * payload)


def tcp(payload: int) -> bytes:
    header = struct.pack(">HHIIBBHHH", 1024, 80, 1, 1, 0x50, 0x18, 500, 0, 0)
    return ip(header + b"y" * payload, 6)


def ethernet(packet: bytes) -> bytes:
    return b"\2" * 12 + b"\x08\0" + packet


def options(path: Path, **said: Any) -> ReplayOptions:
    return check(ReplayOptions, {"trace": str(path), **said}, table="load", base=Path())


PLAIN = [(n / 100, ethernet(udp())) for n in range(20)]


def test_a_capture_that_needs_nothing_is_sent_from_its_own_file(tmp_path: Path) -> None:
    path = capture(tmp_path / "plain.pcap", PLAIN)
    found = prepared_trace(options(path))
    assert (found.path, found.changed, found.words()) == (path, False, ())
    assert find_trace(options(path)) == path


@pytest.mark.parametrize(
    ("link", "before"),
    [(RAW, b""), (COOKED, struct.pack(">HHH8sH", 0, 1, 6, b"\2\0\0\0\0\1\0\0", 0x800))],
)
def test_packets_of_another_link_get_an_ethernet_header(
    tmp_path: Path, link: int, before: bytes
) -> None:
    path = capture(tmp_path / "x.pcap", [(n, before + udp(n)) for n in range(7)], link=link)
    facts = facts_of(options(path))
    assert facts.packets == 7
    assert facts.frame_bytes == sum(14 + 28 + n for n in range(7))
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith("7 packets of ") and "got an Ethernet header" in words
    assert ("addresses of nodrop's" in words) == (link == RAW)


def test_frames_that_no_port_carries_are_refused_with_the_key_that_leaves_them_out(
    tmp_path: Path,
) -> None:
    path = capture(tmp_path / "usb.pcap", [(0, b"\0" * 64)] * 3, link=USB)
    with pytest.raises(BadInput) as refused:
        find_trace(options(path))
    said = str(refused.value)
    assert "3 packets of link type 220 (USB) on interface 0" in said
    assert "--set load.skip_link_types=[220]" in said


@pytest.mark.parametrize(("payload", "segments"), [(2_000, 2), (14_600, 10), (60_000, 42)])
def test_joined_segments_are_sent_as_the_wire_carries_them(
    tmp_path: Path, payload: int, segments: int
) -> None:
    path = capture(tmp_path / "tso.pcap", [*PLAIN, (1, ethernet(tcp(payload)))])
    facts = facts_of(options(path))
    assert (facts.packets, facts.longest_frame_bytes) == (20 + segments, 1_514)
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith(f"1 frame that offloads joined became {segments} TCP segments")
    assert facts_of(options(path, offloaded="as-is")).longest_frame_bytes == 54 + payload


@pytest.mark.parametrize(("captured", "wire"), [(54, 1_514), (100, 600)])
def test_cut_frames_have_the_length_they_had(tmp_path: Path, captured: int, wire: int) -> None:
    frames = [(n, ethernet(tcp(wire - 54))[:captured]) for n in range(5)]
    path = capture(tmp_path / "cut.pcap", frames, wire=wire)
    assert facts_of(options(path)).frame_bytes == 5 * wire
    (words,) = prepared_trace(options(path)).words()
    assert f"{5 * (wire - captured):,} bytes of zeros" in words
    as_is = options(path, cut="as-is")
    assert facts_of(as_is).frame_bytes == 5 * captured
    (words,) = prepared_trace(as_is).words()
    assert "sent so" in words


def test_packets_are_sent_in_the_order_of_their_time(tmp_path: Path) -> None:
    times = [10, 11, 12, 0, 1]
    path = capture(tmp_path / "x.pcap", [(at, ethernet(udp(at))) for at in times])
    facts = facts_of(options(path))
    assert (facts.duration_s, facts.raw["backwards"]["packets"]) == (12, 0)
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith("2 packets stood behind one of a later time")
    (words,) = prepared_trace(options(path, order="file")).words()
    assert words.startswith("2 packets (40.00 %) stand behind one of a later time")


@pytest.mark.parametrize(("gap_s", "said"), [(86_400, "24 h"), (61, "61 s")])
def test_a_clock_that_was_set_is_named_and_its_gap_shortened(
    tmp_path: Path, gap_s: int, said: str
) -> None:
    frames = [(at, ethernet(udp())) for at in (0, 1, 1 + gap_s, 2 + gap_s)]
    path = capture(tmp_path / "clock.pcap", frames)
    (words,) = prepared_trace(options(path)).words()
    assert "after packet 2 (load.longest_gap_s" in words
    assert facts_of(options(path)).duration_s == 2 + gap_s
    assert facts_of(options(path, longest_gap_s=3.0)).duration_s == 5


def test_runts_are_left_out_and_counted(tmp_path: Path) -> None:
    path = capture(tmp_path / "runts.pcap", [(0, b""), *PLAIN, (1, b"\2" * 13)])
    assert facts_of(options(path)).packets == 20
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith("2 packets left out: shorter than an Ethernet header (the first is")
    alone = capture(tmp_path / "alone.pcap", [(1, b"")])
    with pytest.raises(BadInput, match="no packet of 1 can be sent"):
        find_trace(options(alone))


def test_what_was_prepared_is_made_anew_if_the_file_is_another(tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", [(0, udp(1))], link=RAW)
    first = find_trace(options(path))
    assert find_trace(options(path)) == first
    first.unlink()
    capture(path, [(0, udp(1)), (1, udp(2))], link=RAW)
    again = find_trace(options(path))
    assert again != first
    assert facts_of(options(path)).packets == 2


@pytest.mark.parametrize(("fractions", "odd"), [((0, 500_000_000), 1), ((7, 40_000_000, 9e8), 2)])
def test_nanoseconds_under_the_magic_of_microseconds_are_named_and_read_so(
    tmp_path: Path, fractions: Sequence[float], odd: int
) -> None:
    path = capture(tmp_path / "ns.pcap", [(5 + part / 1e6, ethernet(udp())) for part in fractions])
    whole = bytearray(path.read_bytes())
    at = 24
    for part in fractions:
        whole[at : at + 8] = struct.pack("<II", 5, int(part))
        at += 16 + struct.unpack_from("<I", whole, at + 8)[0]
    path.write_bytes(whole)
    said = " ".join(prepared_trace(options(path)).words())
    assert f"{odd} packet" in said and "load.nanoseconds = true" in said
    assert facts_of(options(path)).duration_s == pytest.approx((fractions[-1] - fractions[0]) / 1e6)
    found = prepared_trace(options(path, nanoseconds=True))
    assert found.changed and found.words()[0].startswith("fractions of a second are taken")
    facts = facts_of(options(path, nanoseconds=True))
    assert facts.duration_s == pytest.approx((fractions[-1] - fractions[0]) / 1e9)


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (lzma.compress, "xz")])
def test_what_is_whole_of_a_cut_packed_file_is_sent_if_that_is_tolerated(
    tmp_path: Path, pack: Callable[[bytes], bytes], kind: str
) -> None:
    noise = random.Random(3)
    frames = [(n / 100, ethernet(udp(40)) + noise.randbytes(60)) for n in range(6_000)]
    whole = pack(capture(tmp_path / "x.pcap", frames).read_bytes())
    path = tmp_path / "cut.pcap"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(BadInput, match=f"the {kind} file is cut.*tolerate-truncated"):
        facts_of(options(path))
    facts = facts_of(options(path, tolerate_truncated=True))
    assert 3_600 < facts.packets < 4_530
    assert f"the {kind} file is cut" in str(facts.raw["bad_record"]) or facts.captured is not None


def pcapng_at(path: Path, times_s: list[int]) -> Path:
    """A pcapng file holds times that a pcap file, or nanoseconds, do not."""
    parts = [struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)]
    parts.append(struct.pack("<IIHHII", 1, 20, RAW, 0, 0, 20))
    packet = udp(60)
    for at_s in times_s:
        ticks = at_s * 1_000_000
        body = struct.pack("<IIIII", 0, ticks >> 32, ticks & (2**32 - 1), len(packet), len(packet))
        body += packet + bytes(-len(packet) % 4)
        parts.append(
            struct.pack("<II", 6, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))
        )
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize("later_s", [0, 500_000_000])
def test_times_after_2106_are_moved_and_say_so(tmp_path: Path, later_s: int) -> None:
    path = pcapng_at(tmp_path / "late.pcapng", [2**32 + later_s + at_s for at_s in (3, 5)])
    assert facts_of(options(path)).duration_s == 2
    assert any("no time after 2106" in words for words in prepared_trace(options(path)).words())


@pytest.mark.parametrize("year", [2600, 9000])
def test_times_after_2554_are_one_time_and_say_so(tmp_path: Path, year: int) -> None:
    begins = (year - 1970) * 31_557_600
    path = pcapng_at(tmp_path / "late.pcapng", [begins, begins + 2])
    (said,) = [w for w in prepared_trace(options(path)).words() if "after the year 2554" in w]
    assert said.startswith("2 packets have a time") and "all have one time" in said


def test_a_reading_line_is_for_terminals(tmp_path: Path) -> None:
    for is_terminal in (True, False):
        out = io.StringIO()
        out.isatty = lambda is_terminal=is_terminal: is_terminal  # type: ignore[method-assign]
        line = ReadingLine(tmp_path / "large.pcap", out)
        line.at(0.01)
        line.at(0.431)
        line.clear()
        said = out.getvalue()
        assert ("large.pcap: 43 %, about" in said and "1 %, about" not in said) is is_terminal
        assert (said[-4:] if is_terminal else said) == ("\r\x1b[K" if is_terminal else "")


@pytest.mark.parametrize(
    ("number", "said"), [(1, "1 packet"), (0, "0 packets"), (2072, "2,072 packets")]
)
def test_one_is_no_plural(number: int, said: str) -> None:
    assert count_of(number, "packet") == said


@pytest.mark.parametrize(("taken", "share"), [(4, "100.00 %"), (11, "100.00 %")])
def test_frames_shorter_than_their_datagram_are_named_with_what_to_do(
    tmp_path: Path, taken: int, share: str
) -> None:
    frames = [(n / 10, ethernet(udp())[:-taken]) for n in range(32)]
    path = capture(tmp_path / "short.pcap", frames)
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith(f"32 frames ({share}) end before the length in their own IP header")
    assert 'load.cut = "pad-ip"' in words
    filled = options(path, cut="pad-ip")
    assert facts_of(filled).frame_bytes == 32 * len(ethernet(udp()))
    assert f"{32 * taken} bytes of zeros" in prepared_trace(filled).words()[0]


@pytest.mark.parametrize("copies", [2, 3])
def test_packets_that_a_mirror_copied_are_named_and_left_out_where_asked(
    tmp_path: Path, copies: int
) -> None:
    frames = [
        (n / 100 + copy * 2e-5, bytes([2 + copy]) * 12 + b"\x08\0" + udp(n))
        for n in range(30)
        for copy in range(copies)
    ]
    path = capture(tmp_path / "span.pcap", frames)
    extra = 30 * (copies - 1)
    (words,) = prepared_trace(options(path)).words()
    assert words.startswith(f"{extra} packets (")
    assert 'load.duplicates = "drop"' in words
    dropped = options(path, duplicates="drop")
    assert facts_of(dropped).packets == 30
    assert prepared_trace(dropped).words()[0].startswith(f"{extra} packets left out: equal to one")


@pytest.mark.parametrize("back_s", [3_600, 120])
def test_a_clock_that_was_set_back_is_named(tmp_path: Path, back_s: int) -> None:
    times = [8_000 + n / 10 for n in range(20)]
    times += [8_002 - back_s + n / 10 for n in range(20)]
    path = capture(tmp_path / "back.pcap", [(at, ethernet(udp(n))) for n, at in enumerate(times)])
    said = prepared_trace(options(path)).words()
    assert any("the clock goes back by" in words and "after packet 20" in words for words in said)
    facts = facts_of(options(path, order="file"))
    assert (facts.packets, round(facts.duration_s, 3)) == (40, 3.8)


def test_pieces_of_a_rotation_are_one_capture(tmp_path: Path) -> None:
    pieces = [
        capture(
            tmp_path / f"a.pcap{piece}",
            [(2 * piece + n / 10, ethernet(udp(20 * piece + n))) for n in range(20)],
        )
        for piece in range(3)
    ]
    empty = capture(tmp_path / "a.pcap3", [])
    table = {"trace": [str(one) for one in (*pieces, empty)], "joined": True}
    joined = check(ReplayOptions, table, table="load", base=Path())
    facts = facts_of(joined)
    assert (facts.packets, round(facts.duration_s, 3), facts.parts) == (60, 5.9, ())
    assert facts.captured is not None
    assert facts.captured.words == (
        "4 pieces were joined in the order of time: a.pcap0, a.pcap1, a.pcap2, a.pcap3",
    )
    with pytest.raises(BadInput, match="joined: is for a list of capture files"):
        check(ReplayOptions, {**table, "trace": str(pieces[0])}, table="load", base=Path())


def erf(path: Path, frames: Sequence[Frame]) -> Path:
    """Records with a check sequence, filled up to eight bytes, like those of TRex and Endace."""
    parts = []
    for at_s, frame in frames:
        seconds, part = divmod(at_s, 1)
        held = frame + b"\0" * 4
        length = -(-(18 + len(held)) // 8) * 8
        head = struct.pack("<II", round(part * 2**32), int(seconds))
        head += struct.pack(">BBHHHH", 2, 4, length, 0, len(held), 0)
        parts.append((head + held).ljust(length, b"\0"))
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_erf_is_read(tmp_path: Path, packed: bool) -> None:
    frames = [(1_700_000_000 + n / 4, ethernet(udp(n))) for n in range(9)]
    path = erf(tmp_path / "x.erf", frames)
    if packed:
        path = path.with_suffix(".erf.gz")
        path.write_bytes(gzip.compress((tmp_path / "x.erf").read_bytes()))
    facts = facts_of(options(path))
    assert (facts.packets, facts.duration_s) == (9, 2)
    assert facts.frame_bytes == sum(len(frame) for _, frame in frames)
    assert prepared_trace(options(path)).words()[0].startswith("the frame check sequence")
