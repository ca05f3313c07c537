"""What a trial that counts packets has seen so far, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.ledger.balance import Ledger
from nodrop.ledger.imbalance import FlowSizes
from nodrop.ledger.over_time import Losses
from nodrop.ledger.running import Running
from nodrop.ledger.sustained import WorkedOff
from nodrop.ledger.threads import ThreadBooks
from nodrop.measure.packets.instances import Instance
from nodrop.measure.packets.ports import PortPackets
from nodrop.measure.packets.readings import Reading
from nodrop.results.window import LoadWindow
from nodrop.suts.seam import Drained, SutCounters


@dataclass(slots=True, kw_only=True)
class PacketsSeen:
    """A field is None until its step was reached."""

    readings: tuple[Reading, Reading] | None = None
    """Before the first packet and after the drain."""
    each: Sequence[SutCounters] = ()
    """What the SUT counted in each of its places."""
    counters: SutCounters | None = None
    """All together."""
    decoded_when_offered: int | None = None
    """As the SUT last counted before the last packet had come: the counter may lag behind."""
    drained: Drained | None = None
    worked_off: WorkedOff | None = None
    losses: tuple[Losses, ...] | None = None
    """When the SUT's threads lost packets, by its own counters; None = not known."""
    threads: Sequence[ThreadBooks] | None = None
    """Of the SUT."""
    flow_sizes: FlowSizes | None = None
    """Of the load."""
    window: LoadWindow | None = None
    """Window of the trace that was sent; None if the load names none."""
    running: Running | None = None
    ledger: Ledger | None = None
    instances: Sequence[Instance] = ()
    """Each one's own part of the books, if several share the packets."""
    ports: Sequence[PortPackets] = ()
    """Of the SUT, if several share the packets."""
