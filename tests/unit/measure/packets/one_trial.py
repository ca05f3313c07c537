"""The readings of one made-up trial, and the books they make."""

from __future__ import annotations

from typing import Any

from nodrop.ledger.balance import Ledger, balance
from nodrop.measure.packets import books
from nodrop.measure.packets.readings import Readings
from nodrop.testbed.load.api import Fragments, OfferedLoad
from nodrop.testbed.suts.api import SutCounters

SENT = 101_171


SNMP = (
    "Ip.ReasmReqds",
    "Ip.ReasmOKs",
    "Ip.ReasmFails",
    "Ip.ReasmTimeout",
    "IpExt.ReasmOverlaps",
    "Ip.InDelivers",
    "Ip.InUnknownProtos",
    "IpExt.InBcastPkts",
    "IpExt.InMcastPkts",
)


FRAME_BYTES = 100


STATS = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_missed_errors")


def side(port: str, *, softnet_dropped: int = 0, **counters: Any) -> Readings:
    """Counters that rose by these amounts from a start that is not zero."""
    stats = dict.fromkeys(STATS, 0)
    snmp = {name: counters.pop(name.partition(".")[2], 0) for name in SNMP}
    xdp: dict[str, Any] | None = counters.pop("xdp", None)
    port_state = {name: counters.pop(name) for name in ("kind", "mtu") if name in counters}
    flaps = counters.pop("carrier_changes", 0)
    memory = counters.pop("reassembly", None)
    ethtool = {name: counters.pop(name) for name in list(counters) if "queue" in name}
    ethtool |= counters.pop("ethtool", {})
    stats |= counters
    stats = {f"{end}_bytes": FRAME_BYTES * stats[f"{end}_packets"] for end in ("rx", "tx")} | stats

    def reading(base: int, rise: bool) -> dict[str, Any]:
        def risen(values: dict[str, int]) -> dict[str, int]:
            return {name: base + (value if rise else 0) for name, value in values.items()}

        link = {"stats": risen(stats), "ethtool": risen(ethtool), "xdp": xdp, **port_state}
        link["carrier_changes"] = 3 + (flaps if rise else 0)
        dropped = softnet_dropped if rise else 0
        return {
            "links": {port: link},
            "snmp": risen(snmp),
            "softnet": [{"dropped": base + dropped}, {"dropped": base}],
            "reassembly": memory,
        }

    return Readings(before=reading(1000, False), after=reading(1000, True))


def observed(
    *,
    tx: dict[str, Any] | None = None,
    rx: dict[str, Any] | None = None,
    captured: int = SENT,
    dropped: int = 0,
    refused: dict[str, int] | None = None,
    fragments: Fragments | None = None,
    defrag: bool = False,
    intended: int = SENT,
    never_at_tap: int = 0,
    longest: int | None = 1514,
    answered: int | None = None,
    ignores_outgoing: bool = False,
) -> books.Observed:
    refused = refused or {}
    receiver = side("rx0", **({"rx_packets": SENT} | (rx or {})))
    return books.Observed(
        tx_ports=["tx0"],
        nic_ports=["rx0"],
        capture_ports=["rx0"],
        offered=OfferedLoad(
            intended_packets=intended,
            sent_packets=SENT - sum(refused.values()),
            sent_bytes=FRAME_BYTES * (SENT - sum(refused.values())),
            refused_packets=refused,
            duration_s=1.0,
            intended_duration_s=1.0,
            schedule_error_us=None,
            answered_packets=answered,
            cpu_s=None,
            first_sent_mono_ns=1,
            last_sent_mono_ns=2,
        ),
        tx=side("tx0", **({"tx_packets": SENT} | (tx or {}))),
        nic=receiver,
        capture=receiver,
        between=((), ()),
        sut=SutCounters(
            captured_packets=captured,
            dropped_ring_full_packets=dropped,
            decoded_packets=captured - dropped,
        ),
        defrag=defrag,
        fragments=fragments,
        never_at_tap_packets=never_at_tap,
        longest_frame_bytes=longest,
        ignores_outgoing=ignores_outgoing,
    )


def closed(seen: books.Observed) -> Ledger:
    ledger = balance(books.hops(seen), books.accounts(seen))
    assert ledger.residual_packets == 0
    return ledger


def moved(ledger: Ledger) -> dict[str, int]:
    """Every account that has packets: the others must be seen to stand still."""
    return {a.name: a.packets for a in ledger.accounts if a.packets}


REALMIX = Fragments(offered_packets=1551, absorbed_packets=1500, datagrams=128, held_packets=51)
