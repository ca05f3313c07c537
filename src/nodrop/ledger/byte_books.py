"""Bytes beside packets: if packets were swapped for as many others, their bytes give it away.

If a hop counts the bytes of whole frames, they are balanced against the next hop that does. If the
bytes of packets on the way were not counted, those packets may have had any length that a frame of
the trace can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.ledger.hops import ADDING, Account, Class, Hop

SHORTEST_FRAME_BYTES = 14
"""An Ethernet header: no port sends less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteStep:
    """The way from one hop that counts bytes of frames to the next one that does."""

    start: Hop
    end: Hop
    residual_bytes: int | None
    """Signed: missing at the end, beyond what the packets in classes can have had. None = not
    known: packets of unknown length came in on the way, or some are in no class."""


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
            moved = [a for a in accounts if a.into in way and a.kind is not Class.NOT_FOR_US]
            residual = None
            if not way & open_into:
                residual = _residual(start.bytes - hop.bytes, moved, longest_frame_bytes)
            found.append(ByteStep(start=start, end=hop, residual_bytes=residual))
        start, way = hop, set()
    return tuple(found)


def _residual(missing: int, accounts: Sequence[Account], longest: int | None) -> int | None:
    taken_out = 0
    for account in accounts:
        if account.bytes is not None:
            missing += account.bytes if account.kind in ADDING else -account.bytes
        elif account.packets and account.kind in ADDING:
            return None
        else:
            taken_out += account.packets
    least = taken_out * SHORTEST_FRAME_BYTES
    if missing < least:
        return missing - least
    if not taken_out:
        return missing
    return 0 if longest is None else max(0, missing - taken_out * longest)
