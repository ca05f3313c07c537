"""Bytes beside packets: if packets were swapped for as many others, their bytes give it away.

If a hop counts the bytes of frames, they are balanced against the next hop that does. Packets on
the way whose bytes nobody counted may have had what the trace's frames allow: from so many of its
shortest to so many of its longest frames or, without those lengths, any length of a frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodrop.ledger.hops import ADDING, BYTES_ALONE, LISTED, Account, Class, Hop

SHORTEST_FRAME_BYTES = 14
"""An Ethernet header: no port sends less."""
Lengths = Sequence[tuple[int, int]]
"""Frames of a load: pairs of a length and how many are so long, the shortest first."""


def packets_in(lengths: Lengths) -> int:
    return sum(packets for _, packets in lengths)


def bytes_in(lengths: Lengths) -> int:
    return sum(length * packets for length, packets in lengths)


def beyond(lengths: Lengths, bytes: int) -> Lengths:
    """How much longer than that those are that are longer."""
    return [(length - bytes, packets) for length, packets in lengths if length > bytes]


def bytes_of_some(lengths: Lengths, packets: int) -> tuple[int, int]:
    """The least and the most bytes that so many of them have."""
    return _of_the_first(lengths, packets), _of_the_first(reversed(lengths), packets)


def _of_the_first(lengths: Iterable[tuple[int, int]], packets: int) -> int:
    found = 0
    for length, there in lengths:
        taken = min(there, packets)
        found += length * taken
        packets -= taken
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteStep:
    """The way from one hop that counts bytes of frames to the next one that does."""

    start: Hop
    end: Hop
    residual_bytes: int | None
    """Signed: missing at the end, beyond what the packets in classes can have had. None = not
    known: packets of unknown length came in on the way, or some are in no class."""
    slack_bytes: int | None = 0
    """So many bytes could be missing, or not, without a residual: 0 if the lengths of all packets
    in classes are known. None = no bound is known."""


def byte_steps(
    hops: Sequence[Hop],
    accounts: Sequence[Account],
    *,
    open_into: frozenset[str],
    longest_frame_bytes: int | None,
) -> tuple[ByteStep, ...]:
    """`open_into`: hops before which packets are in no class. `longest_frame_bytes`: of the trace;
    None = not known."""
    found: list[ByteStep] = []
    start: Hop | None = None
    way: set[str] = set()
    for hop in hops:
        way.add(hop.name)
        if hop.bytes is None:
            continue
        if start is not None and start.bytes is not None:
            moved = [a for a in accounts if a.into in way and a.kind not in LISTED]
            residual, slack = None, None
            if not way & open_into:
                residual, slack = _residual(start.bytes - hop.bytes, moved, longest_frame_bytes)
            step = ByteStep(start=start, end=hop, residual_bytes=residual, slack_bytes=slack)
            found.append(step)
        start, way = hop, set()
    return tuple(found)


def _residual(
    missing: int, accounts: Sequence[Account], longest: int | None
) -> tuple[int | None, int | None]:
    """And how wide the range is in which `missing` leaves none."""
    least, most = 0, 0
    bounded = True
    for account in accounts:
        low, high = _bytes(account, longest)
        if account.kind in ADDING or account.kind is Class.PADDED:
            if high is None:
                return None, None
            least, most = least - high, most - low
        else:
            bounded = bounded and high is not None
            least, most = least + low, most + (high or 0)
    slack = most - least if bounded else None
    if missing < least:
        return missing - least, slack
    return max(0, missing - most) if bounded else 0, slack


def _bytes(account: Account, longest: int | None) -> tuple[int, int | None]:
    """The least and the most; None = no bound from above."""
    if account.bytes is not None:
        return account.bytes, account.bytes
    if account.bytes_between is not None:
        return account.bytes_between
    if not account.packets:
        return 0, 0
    if account.kind in BYTES_ALONE:
        return 0, None
    if account.kind in ADDING:
        return account.packets * SHORTEST_FRAME_BYTES, None
    least = account.packets * SHORTEST_FRAME_BYTES
    return least, None if longest is None else account.packets * longest
