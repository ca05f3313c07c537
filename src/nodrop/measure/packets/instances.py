"""The packets of several instances or ports: what each was given, and its own part of the books.

Each part is balanced as well as the sum, because a sum can hide two errors that make up for each
other, and because how unevenly the work fell is half of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from nodrop.hosts.seam import rise
from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Account, Class, Hop, Place
from nodrop.load.seam import OfferedLoad, TraceFacts
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Branched, Reading, Readings
from nodrop.measure.places import Places
from nodrop.protocol.events import Counters
from nodrop.suts.seam import SutCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPackets:
    """None = the SUT does not say it of each port."""

    port: str
    trace: str | None
    """Path of the trace that came in at this port; None if the ports share one."""
    received_packets: int
    captured_packets: int | None
    dropped_packets: int | None
    """Captured packets that found no room in a ring of this port."""


def ports_hop(places: Places, before: Reading, after: Reading) -> Hop:
    names = [port.name for port in places.ports]
    return Hop(
        name="ports",
        packets=sum(_received(name, before, after) for name in names),
        counter=f"rx_packets of {', '.join(names)} (rtnl_link_stats64)",
        wire=True,
    )


def each_port(
    places: Places,
    before: Reading,
    after: Reading,
    counters: SutCounters,
    traces: Sequence[TraceFacts] = (),
) -> Sequence[PortPackets]:
    """Empty if one port gets all packets. `traces`: of each port, if they share none."""
    found = []
    for number, name in enumerate(port.name for port in places.ports):
        said = counters.per_port.get(name, {})
        found.append(
            PortPackets(
                port=name,
                trace=str(traces[number].path) if traces else None,
                received_packets=_received(name, before, after),
                captured_packets=said.get("captured_packets"),
                dropped_packets=said.get("dropped_ring_full_packets"),
            )
        )
    return found


def _received(port: str, before: Reading, after: Reading) -> int:
    return rise(before.capture, after.capture, port, "rx_packets")


_NOTHING_OFFERED = OfferedLoad(
    intended_packets=0,
    sent_packets=0,
    sent_bytes=0,
    duration_s=0,
    intended_duration_s=None,
    schedule_error_us=None,
    cpu_s=None,
    first_sent_mono_ns=None,
    last_sent_mono_ns=None,
)
_NOT_READ = Readings(before=cast(Counters, {}), after=cast(Counters, {}))
"""No sender is aimed at one instance alone."""
NOTHING_SAID = SutCounters(
    captured_packets=None, dropped_ring_full_packets=None, decoded_packets=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One's own part of the books, where several share the packets."""

    received_packets: int | None
    captured_packets: int | None
    decoded_packets: int | None
    lost_packets: int
    residual_packets: int | None
    closed: bool


def between(
    places: Places, before: Reading, after: Reading, each: Sequence[SutCounters], *, ring: Place
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """Hops and accounts of what the places put between the NIC and the sockets. With several
    instances: the split, the instances' NICs, what their places put in between, and what is taken
    out before each one's sockets, as sums. With several ports: the split and the SUT's ports.
    `each`: the instances' own counters, once known."""
    then, now = before.branched, after.branched
    if places.split is None or then is None or now is None:
        return places.envs[0].hops(before.place, after.place)
    if places.ports:
        hops = [places.split.hop(then.split, now.split), ports_hop(places, before, after)]
        return hops, places.split.accounts(then.split, now.split)
    found = parts(places, then, now, each, ring=ring)
    hops = [
        places.split.hop(then.split, now.split),
        Hop(
            name="instance_nic",
            packets=sum(part.nic.link(part.nic_ports, "rx_packets") for part in found),
            counter="rx_packets of the instances' NICs",
            wire=True,
        ),
        *_summed_hops([part.between[0] for part in found]),
    ]
    accounts = [*places.split.accounts(then.split, now.split)]
    for part in found:
        accounts += [*part.between[1], *books.into_socket(part)]
    return hops, _summed(a for a in accounts if a.packets)


def parts(
    places: Places, before: Branched, after: Branched, each: Sequence[SutCounters], *, ring: Place
) -> list[books.Observed]:
    """Counts of each instance; without its SUT's own counters while it is measured."""
    found = []
    for i, env in enumerate(places.envs):
        then, now = before.instances[i], after.instances[i]
        found.append(
            books.Observed(
                tx_ports=(),
                nic_ports=(env.nic.name,),
                capture_ports=env.capture_interfaces[:1],
                offered=_NOTHING_OFFERED,
                tx=_NOT_READ,
                nic=Readings(before=then.nic, after=now.nic),
                capture=Readings(before=then.capture, after=now.capture),
                between=env.hops(then.place, now.place),
                sut=each[i] if each else NOTHING_SAID,
                defrag=True,  # if the kernel does none, it has counted none
                fragments=None,
                ring=ring,
            )
        )
    return found


def instance_books(
    places: Places, before: Reading, after: Reading, each: Sequence[SutCounters], *, ring: Place
) -> list[Instance]:
    """Each instance's own part of the way, balanced; [] if there is but one."""
    if before.branched is None or after.branched is None or places.ports:
        return []
    found = []
    for part in parts(places, before.branched, after.branched, each, ring=ring):
        hops = books.received_hops(part)
        accounts = [*part.between[1], *books.into_socket(part), *books.into_decoded(part)]
        ledger = balance(hops, accounts)
        found.append(
            Instance(
                received_packets=hops[0].packets,
                captured_packets=part.sut.captured_packets,
                decoded_packets=part.sut.decoded_packets,
                lost_packets=ledger.total(Class.LOST),
                residual_packets=ledger.residual_packets,
                closed=ledger.closed,
            )
        )
    return found


def imbalance_ratio(parts: Sequence[Instance]) -> float | None:
    """How much more than its share the busiest instance received: 0 = all the same."""
    received = [part.received_packets or 0 for part in parts]
    if not received or not sum(received):
        return None
    return max(received) * len(received) / sum(received) - 1


def _summed_hops(each: Sequence[Sequence[Hop]]) -> list[Hop]:
    found = []
    for together in zip(*each, strict=True):
        packets = [hop.packets for hop in together]
        known = [p for p in packets if p is not None]
        found.append(
            replace(together[0], packets=sum(known) if len(known) == len(packets) else None)
        )
    return found


def _summed(accounts: Iterator[Account]) -> list[Account]:
    """One account per class and counter, whichever instance it was counted at."""
    found: dict[tuple[str, str], Account] = {}
    for account in accounts:
        key = (account.into, account.name)
        earlier = found.get(key)
        if earlier is not None:
            account = replace(
                account, packets=earlier.packets + account.packets, evidence="", details=()
            )
        found[key] = account
    return list(found.values())
