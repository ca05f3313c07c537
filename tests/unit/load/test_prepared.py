"""Captures as people have them: what is sent of each, and what is said about it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput
from nodrop.load.trace import facts_of, find_trace, prepared_trace

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
    alone = capture(tmp_path / "alone.pcap", [(0, b"")])
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
