"""Names of drivers' loss counters: known ones are witnesses, others say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.ledger.nic_counters import NIC_COUNTERS, counter_of, witnesses


@pytest.mark.parametrize(
    ("name", "drivers"),
    [
        ("rx_no_buffer_count", "e1000e, igb, ixgbe"),
        ("rx_no_dma_resources", "ixgbe"),
        ("rx_queue_0_drops", "igb, virtio_net"),
        ("rx_queue_17_drops", "igb, virtio_net"),
        ("rx3_drops", "igb, virtio_net"),
        ("port.rx_dropped", "i40e"),
        ("rx_dropped.nic", "ice"),
        ("rx_out_of_buffer", "mlx5_core"),
        ("rx_discards_phy", "mlx5_core"),
        ("rx_total_discard_pkts", "bnxt_en"),
        ("[3]: rx_discards", "bnxt_en"),
        ("  pkts rx OOB", "vmxnet3"),
        ("  drv dropped rx total", "vmxnet3"),
    ],
)
def test_a_name_that_is_known(name: str, drivers: str) -> None:
    found = counter_of(name)
    assert found is not None
    assert found.drivers == drivers
    assert [one for one in NIC_COUNTERS if counter_of(name) is one] == [found], "of one entry"


@pytest.mark.parametrize(
    "name",
    ["rx_packets", "tx_queue_0_drops", "rx_queue_0_xdp_drops", "rx_drops", "port_rx_dropped"],
)
def test_a_name_that_is_not(name: str) -> None:
    assert counter_of(name) is None


def test_only_what_rose_is_said() -> None:
    before = {"rx_out_of_buffer": 7, "rx_discards_phy": 3, "rx_packets": 1}
    after = {"rx_out_of_buffer": 819, "rx_discards_phy": 3, "rx_packets": 9000}
    assert witnesses(before, after) == [
        "rx_out_of_buffer rose by 812 (mlx5_core: the receive queue had no buffer posted)"
    ]
    assert witnesses({}, {"rx_no_dma_resources": 5})[0].startswith("rx_no_dma_resources rose by 5")
    assert witnesses(after, before) == []


def test_each_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/counters.md").read_text()
    for one in NIC_COUNTERS:
        assert f"| {one.drivers} | {one.meaning} | {one.source} |" in page, one.name
