"""Drivers that count in rx_dropped what they lose; others count there what no protocol wanted
(libpcap #1328)."""

LOSE_IN_RX_DROPPED = {
    "vmxnet3": "drv dropped rx total",
    "ena": "ena_admin_q",
    "cxgb4": "rx_bg0_frames_dropped",
}
"""Driver → how a counter of its own begins (`ethtool -S`), by which drops knows it."""
