"""The books of a made-up trial: the real trace realmix.pcap, `n` replicas of it, on a full ring."""

from __future__ import annotations

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.testbed.suts.suricata.sut import RING

PACKETS, ABSORBED_FRAGMENTS, DATAGRAMS, HELD = 101_171, 1_500, 128, 51


def books(
    n: int,
    *,
    defrag: bool,
    ring_full_ratio: float,
    path_lost: int = 0,
    foreign: int = 0,
    residual: int = 0,
) -> Ledger:
    sent = PACKETS * n
    rx = sent - path_lost + foreign
    absorbed = (ABSORBED_FRAGMENTS - DATAGRAMS) * n if defrag else 0
    held = HELD * n if defrag else 0
    socket = rx - absorbed - held
    ring_full = int(socket * ring_full_ratio)
    hops = [
        Hop(name="intended", packets=sent, counter="packets of the trace x loops x multiplier"),
        Hop(name="sent", packets=sent, counter="send() results of nodrop-node replay"),
        Hop(name="tx_nic", packets=sent, counter="tx_packets of ndtx0 (rtnl_link_stats64)"),
        Hop(
            name="rx_nic",
            packets=rx,
            counter="rx_packets of ndrx0 (rtnl_link_stats64)",
            wire=True,
        ),
        Hop(name="socket", packets=socket, counter="stats.capture.kernel_packets (eve.json)"),
        Hop(
            name="decoded",
            packets=socket - ring_full - residual,
            counter="stats.decoder.pkts (eve.json)",
        ),
    ]
    accounts = [
        Account(
            into="rx_nic",
            kind=Class.NOT_FOR_US,
            name="rx_dropped_unhandled_protocol",
            packets=340 * n,
            counter="rx_dropped of ndrx0",
            evidence="counted after the tap has seen them",
        ),
        Account(
            into="socket",
            kind=Class.MERGED,
            name="rx_merged_fanout_defrag",
            packets=absorbed,
            counter="Ip: ReasmReqds, ReasmOKs (/proc/net/snmp)",
            evidence=f"{ABSORBED_FRAGMENTS * n} fragments became {DATAGRAMS * n} datagrams",
            knob="sut.defrag",
            details=(("fragments", ABSORBED_FRAGMENTS * n), ("datagrams", DATAGRAMS * n)),
        ),
        Account(
            into="socket",
            kind=Class.HELD,
            name="rx_held_incomplete_datagram",
            packets=held,
            counter="Ip: ReasmReqds, ReasmTimeout (/proc/net/snmp) and the trace",
            evidence="fragments of datagrams whose other parts are not in the trace",
            knob="sut.defrag",
        ),
        Account(
            into="decoded",
            kind=Class.LOST,
            name="rx_dropped_ring_full",
            packets=ring_full,
            counter="stats.capture.kernel_drops (eve.json)",
            evidence=f"tp_drops {ring_full}",
            place=RING,
        ),
    ]
    return balance(hops, accounts)
