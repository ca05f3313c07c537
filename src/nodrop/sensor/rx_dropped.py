"""rx_dropped of a port, parted by what became of the packets. Some drivers count there what they
lose; others count there what no protocol wanted (libpcap #1328)."""

from __future__ import annotations

from dataclasses import dataclass

LOSE_IN_RX_DROPPED = {
    "vmxnet3": "drv dropped rx total",
    "ena": "ena_admin_q",
    "cxgb4": "rx_bg0_frames_dropped",
}
"""Driver → how a counter of its own begins (`ethtool -S`), by which drops knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RxDropped:
    """Packets by what became of them, since the port is there or within one interval."""

    lost: int
    """Refused: at least so many."""
    unknown: int
    no_loss: int
    """No protocol wanted them, after every packet socket had them."""


def refused_frames(number: int, *, came: int, backlog: int, cpus: int) -> int:
    """How many of `number` a software port refused at least. It counts those in place of rx_packets
    (`came`). A backlog has a row of its own."""
    beyond = number - came - backlog
    # Each CPU may have counted a packet there that is not in rx_packets yet.
    return beyond if beyond > cpus else 0


def parted_by_peer(number: int, *, lost: int, peer: int, flapped: bool) -> RxDropped:
    """rx_dropped of a veth, at least `lost` of it refused. `peer`: tx_dropped of the other end,
    which counts each that was refused; if the link was down (`flapped`), also those that were sent
    then, which the port never had."""
    refused = max(lost, min(number, peer))
    unknown = refused - lost if flapped else 0
    return RxDropped(lost=refused - unknown, unknown=unknown, no_loss=number - refused)
