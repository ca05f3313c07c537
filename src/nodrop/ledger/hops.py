"""The words of the packet books: places that count, and classes that explain a difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from nodrop.ledger.places import Place


class Class(StrEnum):
    """Why packets counted at one hop are not counted at the next."""

    UNSENT = "unsent"
    """Intended but never given to the wire: the generator's matter, not the SUT's."""
    LOST = "lost"
    MERGED = "merged"
    """Fragments taken out of the stream by fanout defragmentation and put back as one datagram."""
    HELD = "held"
    """Fragments of datagrams that never became whole: kept, then thrown away, by the kernel."""
    FOREIGN = "foreign"
    """Packets that the generator did not send."""
    COPIED = "copied"
    """Packets that a split handed on once more, to another receiver: it was asked to."""
    ANSWERED = "answered"
    """Packets of the load that the receiving host itself sent: a capture socket sees both ways."""
    NOT_FOR_US = "not-for-us"
    """Counted as dropped after the tap has already seen them: no loss, never in the balance."""
    SHORTENED = "shortened"
    """Went on with fewer bytes: in the balance of bytes alone."""
    PADDED = "padded"
    """Went on with more bytes: in the balance of bytes alone."""
    INVALID = "invalid"
    """Broken headers, says the decoder, which has them all the same: never in the balance."""


ADDING = frozenset({Class.FOREIGN, Class.COPIED, Class.ANSWERED})
"""Classes that put packets into the stream; every other balanced class takes them out."""
BYTES_ALONE = frozenset({Class.SHORTENED, Class.PADDED})
"""Classes of packets that came and went on, with other bytes."""
LISTED = frozenset({Class.NOT_FOR_US, Class.INVALID})
"""Classes in no balance."""
NO_PACKETS = BYTES_ALONE | LISTED
"""Classes in no balance of packets."""

CUT = "rx_cut_ring_slot"
"""The account of frames that a ring had no room for: the SUT has their beginnings."""
PATH_LOST = "path_lost"
PATH_FOREIGN = "path_foreign"
"""The two accounts a `wire` hop derives from its counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A place that counted packets during one trial."""

    name: str
    """intended, sent, tx_nic, rx_nic, socket, decoded; setups add theirs (macvtap, guest_nic …)."""
    packets: int | None
    """None = nothing there can be read ("not visible from the host")."""
    counter: str
    """The counter that was read, e.g. "rx_packets of ndrx0 (rtnl_link_stats64)"."""
    wire: bool = False
    """The way to this hop is a cable: what is missing here was lost on it, by definition."""
    bytes: int | None = None
    """Bytes of whole Ethernet frames without their check sequence; None = the hop counts other
    bytes, or none. Where packets are sent: bytes of the frames that the kernel took."""
    look_at: str = ""
    """Stages that may take packets on the way to this hop and count none: named beside a
    difference, and never in place of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One class of packets on the way to a hop."""

    into: str
    """Name of the hop before which they went."""
    kind: Class
    name: str
    """<direction>_<event>_<reason>, as in docs/reference/counters.md."""
    packets: int
    """Always >= 0; `ADDING` classes put packets into the next hop, the others take them out."""
    counter: str
    evidence: str = ""
    knob: str = ""
    """The setting with which a user can change `packets`."""
    place: Place | None = None
    """Where they died; None = on the way into the hop."""
    bytes: int | None = None
    """Bytes of these packets, among the bytes of the hop before; None = not counted. In
    `BYTES_ALONE` classes: the bytes that were taken off or put on."""
    bytes_between: tuple[int, int] | None = None
    """The least and the most that `bytes` can be by the lengths of the trace's frames; None =
    nothing is known of them, or `bytes` is."""
    details: tuple[tuple[str, int], ...] = field(default=())
    """Numbers that make up `packets`, e.g. fragments absorbed and datagrams given back."""
