"""Drivers' names for the packets that a NIC or its driver threw away (`ethtool -S`).

Most drivers fill the kernel's rx_missed_errors from the same registers: added up, a packet would
count twice. So only what a counter has beyond it counts, or that has none of it (`Beside`). A
name that is not here says nothing: what a driver does not report is not visible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Beside(StrEnum):
    """The relation of a counter's packets to rx_missed_errors. None of them is in rx_packets, but
    for those of WITNESS and virtio_net's drops."""

    APART = "never in it"
    PERHAPS = "in it or not, as driver and version have it"
    WITNESS = "no loss of its own: said, not counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NicCounter:
    name: str
    """A regular expression of the whole name, without spaces around it."""
    drivers: str
    meaning: str
    source: str
    """File below drivers/net of Linux, and the register or field."""
    beside: Beside = Beside.PERHAPS
    in_rx_dropped: bool = False
    """Some versions of the driver count these packets in `rx_dropped` as well."""


INTEL, NO_BUFFER = "ethernet/intel", "the ring of the queue had no free descriptor"
NIC_COUNTERS = (
    NicCounter(
        name="rx_no_buffer_count",
        drivers="e1000e, igb, ixgbe",
        meaning="no host buffer was free when it came; it may still have waited in the NIC",
        source=f"{INTEL}/*/*ethtool.c: register RNBC",
        beside=Beside.WITNESS,
    ),
    NicCounter(
        name="rx_no_dma_resources",
        drivers="ixgbe",
        meaning=NO_BUFFER,
        source=f"{INTEL}/ixgbe/ixgbe_ethtool.c: hw_rx_no_dma_resources, register QPRDC",
        beside=Beside.APART,
    ),
    NicCounter(
        name=r"rx_queue_\d+_drops|rx\d+_drops",
        drivers="igb, virtio_net",
        meaning="igb: the ring of the queue was full; virtio_net: its driver threw it away",
        source=f"{INTEL}/igb/igb_ethtool.c: register RQDPC; virtio_net.c: rq stats drops",
        beside=Beside.APART,
    ),
    NicCounter(
        name=r"port\.rx_dropped",
        drivers="i40e",
        meaning="the port's buffer was full, as the rings were",
        source=f"{INTEL}/i40e/i40e_ethtool.c: rx_discards",
        in_rx_dropped=True,
    ),
    NicCounter(
        name=r"rx_dropped\.nic",
        drivers="ice",
        meaning="the port's buffer was full: rings, or PCIe had no room",
        source=f"{INTEL}/ice/ice_ethtool.c: rx_discards",
    ),
    NicCounter(
        name="rx_out_of_buffer",
        drivers="mlx5_core",
        meaning="the receive queue had no buffer posted",
        source="ethernet/mellanox/mlx5/core/en_stats.c: queue counter out_of_buffer",
    ),
    NicCounter(
        name="rx_discards_phy",
        drivers="mlx5_core",
        meaning="the port's buffer was full",
        source="ethernet/mellanox/mlx5/core/en_stats.c: if_in_discards of RFC 2863",
        beside=Beside.APART,
        in_rx_dropped=True,
    ),
    NicCounter(
        name=r"rx_total_discard_pkts|\[\d+\]: rx_discards|rx_stat_discard",
        drivers="bnxt_en",
        meaning="no buffer: of all rings, of one, of the port",
        source="ethernet/broadcom/bnxt/bnxt_ethtool.c",
    ),
    NicCounter(
        name="pkts rx OOB|pkts rx out of buf",
        drivers="vmxnet3",
        meaning="the host had no buffer of the guest's",
        source="vmxnet3/vmxnet3_ethtool.c: pktsRxOutOfBuf",
        beside=Beside.APART,
    ),
    NicCounter(
        name="drv dropped rx total",
        drivers="vmxnet3",
        meaning="the driver threw it away: bad, or no memory",
        source="vmxnet3/vmxnet3_ethtool.c: drop_total",
        beside=Beside.WITNESS,
    ),
)


def counter_of(name: str) -> NicCounter | None:
    """None: not one that is known to count losses."""
    found = (one for one in NIC_COUNTERS if re.fullmatch(one.name, name.strip()))
    return next(found, None)


def beyond(before: Mapping[str, int], after: Mapping[str, int], missed: int) -> int:
    """Packets that known counters say were lost, and rx_missed_errors, which rose by `missed`, has
    not."""
    rose: dict[Beside, list[int]] = {kind: [0] for kind in Beside}
    for name in after:
        if known := counter_of(name):
            rose[known.beside].append(after[name] - before.get(name, 0))
    return sum(rose[Beside.APART]) + max(0, max(rose[Beside.PERHAPS]) - missed)


def in_rx_dropped(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Packets that the NIC lost and that may be in `rx_dropped` as well."""
    return sum(
        after[name] - before.get(name, 0)
        for name in after
        if (known := counter_of(name)) and known.in_rx_dropped
    )


def witnesses(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Words about each known counter that rose."""
    return [
        f"{name.strip()} rose by {after[name] - before.get(name, 0):,} ({known.drivers}: "
        f"{known.meaning})"
        for name in after
        if (known := counter_of(name)) and after[name] > before.get(name, 0)
    ]
