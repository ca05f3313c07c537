"""Closing the packet books: every difference between two counters is a class, or it is a residual.

For each pair of neighbouring hops that can be read:

    in = out + Σ taken out (unsent, lost, merged, held)
         − Σ put in (foreign, copied, answered) + residual

and the same of bytes, where hops count them, with what was taken off or put on packets that went
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodrop.ledger.hops import (
    ADDING,
    BYTES_ALONE,
    LISTED,
    NO_PACKETS,
    PATH,
    PATH_FOREIGN,
    PATH_LOST,
    Account,
    Class,
    Hop,
)

# Bytes beside packets: if packets were swapped for as many others, their bytes give it away.
#
# The bytes of a hop that counts them are balanced against those of the next such hop. Where n
# packets between the two were not counted in bytes, they had at least the bytes of the trace's n
# shortest frames and at most those of its n longest; without these lengths, any frame is possible.
SHORTEST_FRAME_BYTES = 14
"""An Ethernet header: no port sends less."""
Lengths = Sequence[tuple[int, int]]
"""Frames of a load: pairs of a length and the number of frames that have it, the shortest first."""


def packets_in(lengths: Lengths) -> int:
    return sum(packets for _, packets in lengths)


def bytes_in(lengths: Lengths) -> int:
    return sum(length * packets for length, packets in lengths)


def beyond(lengths: Lengths, bytes: int) -> Lengths:
    """How much longer than that those are that are longer."""
    return [(length - bytes, packets) for length, packets in lengths if length > bytes]


def bytes_of_some(lengths: Lengths, packets: int) -> tuple[int, int]:
    """The least and the most bytes that this number of the frames has."""
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
    """Bytes that may be missing without a residual: 0 if the lengths of all packets in classes are
    known. None = no bound is known."""


def byte_steps(
    hops: Sequence[Hop],
    accounts: Sequence[Account],
    *,
    open_into: frozenset[str],
    longest_frame_bytes: int | None,
) -> tuple[ByteStep, ...]:
    """`open_into`: hops before which packets are in no class. `longest_frame_bytes`: of the trace;
    None = not known."""
    steps: list[ByteStep] = []
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
            steps.append(step)
        start, way = hop, set()
    return tuple(steps)


def _residual(
    missing: int, accounts: Sequence[Account], longest: int | None
) -> tuple[int | None, int | None]:
    """The residual in bytes, and how wide the range is in which `missing` leaves none."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HopStep:
    """The way from one readable hop to the next."""

    start: Hop
    end: Hop
    over: tuple[str, ...] = ()
    """Hops in between that could not be read: not visible from the host."""
    accounts: tuple[Account, ...] = ()
    """The classes that are balanced here, those derived from a wire included."""
    residual_packets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The balanced books of one trial."""

    hops: tuple[Hop, ...]
    accounts: tuple[Account, ...]
    """Accounts given and derived, those in no balance included."""
    steps: tuple[HopStep, ...]
    unplaced: tuple[Account, ...] = ()
    """Accounts no step could carry, because the hop they lead into cannot be read on both sides."""
    byte_steps: tuple[ByteStep, ...] = ()
    longest_frame_bytes: int | None = None
    """Bytes of the trace's longest frame; None = not known."""

    @property
    def residual_packets(self) -> int:
        """Signed sum; 0 here does not close the books if two steps are off by opposite amounts."""
        return sum(step.residual_packets for step in self.steps)

    @property
    def residual_bytes(self) -> int | None:
        """Signed sum over the steps whose bytes are known; None if no step's are."""
        known = [s.residual_bytes for s in self.byte_steps if s.residual_bytes is not None]
        return sum(known) if known else None

    @property
    def slack_bytes(self) -> int | None:
        """Bytes that could be missing without a residual, over the steps whose bytes are known;
        None if a step has no bound, or none is known."""
        known = [s.slack_bytes for s in self.byte_steps if s.residual_bytes is not None]
        slack = [bytes for bytes in known if bytes is not None]
        return sum(slack) if known and len(slack) == len(known) else None

    @property
    def invisible(self) -> tuple[str, ...]:
        return tuple(hop.name for hop in self.hops if hop.packets is None)

    @property
    def closed(self) -> bool:
        """Every step explains itself, from the first hop to the last, in packets and in bytes."""
        ends_readable = len(self.hops) > 1 and (
            self.hops[0].packets is not None and self.hops[-1].packets is not None
        )
        return (
            ends_readable
            and not self.unplaced
            and all(step.residual_packets == 0 for step in self.steps)
            and not any(step.residual_bytes for step in self.byte_steps)
        )

    def total(self, *kinds: Class) -> int:
        """Packets of these classes over the whole way."""
        return sum(account.packets for account in self.accounts if account.kind in kinds)

    @property
    def loss_ratio(self) -> float | None:
        """Lost of the packets that were to arrive: sent, copied on the way, and the receiver's own.
        None if nothing was sent, or it is not known."""
        sent = self.packets_at("sent")
        more = self.total(Class.COPIED, Class.ANSWERED)
        return self.total(Class.LOST) / (sent + more) if sent else None

    @property
    def totals(self) -> dict[Class, int]:
        return {kind: self.total(kind) for kind in Class}

    def packets_at(self, hop: str) -> int | None:
        """Packets that a hop counted; None if there is no such hop or it cannot be read."""
        return next((h.packets for h in self.hops if h.name == hop), None)


def balance(
    hops: Sequence[Hop], accounts: Sequence[Account], *, longest_frame_bytes: int | None = None
) -> Ledger:
    """Balances the books hop by hop. Pure; ValueError only if the books make no sense."""
    _check(hops, accounts)
    steps: list[HopStep] = []
    derived: list[Account] = []
    carried: set[str] = set()
    start: Hop | None = None
    over: list[Hop] = []
    for hop in hops:
        if hop.packets is None:
            over.append(hop)
            continue
        if start is not None:
            between = {h.name for h in [*over, hop]}
            carried |= between
            taken = [a for a in accounts if a.into in between and a.kind not in NO_PACKETS]
            step, extra = _step(start, hop, over, taken)
            steps.append(step)
            derived.extend(extra)
        start, over = hop, []
    unplaced = tuple(
        a for a in accounts if a.into not in carried and a.kind not in NO_PACKETS and a.packets
    )
    return Ledger(
        hops=tuple(hops),
        accounts=(*accounts, *derived),
        steps=tuple(steps),
        unplaced=unplaced,
        byte_steps=byte_steps(
            hops,
            [*accounts, *derived],
            open_into=frozenset(step.end.name for step in steps if step.residual_packets),
            longest_frame_bytes=longest_frame_bytes,
        ),
        longest_frame_bytes=longest_frame_bytes,
    )


def _check(hops: Sequence[Hop], accounts: Sequence[Account]) -> None:
    names = [hop.name for hop in hops]
    if len(set(names)) != len(names):
        raise ValueError(f"two hops have the same name: {names}")
    for hop in hops:
        if hop.packets is not None and hop.packets < 0:
            raise ValueError(f"hop {hop.name} counted {hop.packets:,} packets")
    for account in accounts:
        if account.into not in names:
            raise ValueError(f"account {account.name} leads into no hop: {account.into}")
        if account.packets < 0:
            raise ValueError(f"account {account.name} has {account.packets:,} packets")


def _step(
    start: Hop, end: Hop, over: Sequence[Hop], accounts: Sequence[Account]
) -> tuple[HopStep, list[Account]]:
    assert start.packets is not None and end.packets is not None
    signed = sum(-a.packets if a.kind in ADDING else a.packets for a in accounts)
    missing = start.packets - end.packets - signed
    derived: list[Account] = []
    if missing and (end.wire or any(hop.wire for hop in over)):
        derived.append(_of_the_wire(start, end, missing))
        missing = 0
    step = HopStep(
        start=start,
        end=end,
        over=tuple(hop.name for hop in over),
        accounts=(*accounts, *derived),
        residual_packets=missing,
    )
    return step, derived


def _of_the_wire(start: Hop, end: Hop, missing: int) -> Account:
    """The difference of two ends of a cable: both count, so it happened on the cable."""
    lost = missing > 0
    return Account(
        into=end.name,
        kind=Class.LOST if lost else Class.FOREIGN,
        name=PATH_LOST if lost else PATH_FOREIGN,
        packets=abs(missing),
        counter=f"{start.counter} − {end.counter}",
        evidence="; ".join(
            filter(
                None, (f"{start.name} {start.packets:,}, {end.name} {end.packets:,}", end.look_at)
            )
        ),
        place=PATH,
    )
