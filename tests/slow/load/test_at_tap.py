"""Frames of a load that capture sockets are handed, one by one, as the node reads a trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.replay import ReplayOptions
from nodrop.testbed.load.trace import facts_of
from tests.known_answers.frames import MORE, datagram, ip, write


def tagged(frame: bytes, *tags: bytes) -> bytes:
    return frame[:12] + b"".join(tag + b"\x00\x07" for tag in tags) + frame[12:]


VLAN, QINQ = b"\x81\x00", b"\x88\xa8"
PLAIN = [datagram(60)] * 3 + [datagram(9_000)]
TAGS = [tagged(datagram(100), VLAN), tagged(datagram(60), QINQ, VLAN)]
# A whole datagram in three fragments, of which one has a tag and one is padded; a first one alone.
FIRST, SECOND = ip(bytes(1000), id=1, field=MORE), ip(bytes(400), id=1, field=MORE | 1000 // 8)
LAST = ip(bytes(8), id=1, field=1400 // 8) + bytes(18)
FRAGMENTS = [tagged(FIRST, VLAN), SECOND, LAST, ip(bytes(640), id=2, field=MORE)]
WHOLE = 14 + 20 + 1408


def read(path: Path, frames: list[bytes], **options: Any) -> Any:
    trace = str(write(path / "trace.pcap", frames))
    given = {"trace": trace, "pps": 1000, "offloaded": "as-is", **options}
    return facts_of(ReplayOptions.model_validate(given))


@pytest.mark.parametrize(("options", "times"), [({}, 1), ({"loops": 3}, 3), ({"multiplier": 4}, 4)])
def test_the_kernel_takes_one_tag_off(tmp_path: Path, options: dict[str, Any], times: int) -> None:
    found = read(tmp_path, PLAIN + TAGS, **options).at_tap
    assert dict(found.arriving) == {
        60: 3 * times, 64: times, 100: times, 9_000: times
    }  # fmt: skip
    assert (found.defragmented, found.tagged_packets) == (None, 2 * times)
    assert (found.joined, found.cut_packets) == (True, 0)


@pytest.mark.parametrize("passes", [1, 2])
def test_datagrams_stand_for_their_fragments(tmp_path: Path, passes: int) -> None:
    facts = read(tmp_path, PLAIN + FRAGMENTS, loops=passes)
    found, fragments = facts.at_tap, facts.fragments
    absorbed = [len(FIRST), len(SECOND), len(LAST)]
    # Of the second datagram only first fragments come, the later ones duplicates of the first.
    arriving = Counter([60, 60, 60, 9_000, *absorbed, len(FRAGMENTS[3])])
    assert dict(found.arriving) == {n: count * passes for n, count in arriving.items()}
    assert dict(found.defragmented) == {60: 3 * passes, WHOLE: passes, 9_000: passes}
    assert fragments.merged_bytes == passes * (sum(absorbed) - WHOLE)
    assert fragments.held_bytes == passes * len(FRAGMENTS[3])


def test_a_load_that_ends_before_its_trace_has_less(tmp_path: Path) -> None:
    found = read(tmp_path, [datagram(60)] * 10 + [datagram(70)] * 10, duration_s=0.015).at_tap
    lengths = dict(found.arriving)
    assert lengths[60] == 10 and 0 < lengths[70] < 10
