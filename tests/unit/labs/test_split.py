"""Copies of a split are no packets of the sender's, and losses are a part of all that was due."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Class, Hop
from nodrop.testbed.hosts.api import LabPort
from nodrop.testbed.labs.split import CopySplit, HookSplit, TraceSplit
from nodrop.testing.fakes import FakeHost, FakeWorld

HANDS = ("ndsp0", "ndsp1", "ndsp2")


def made(kind: type[HookSplit]) -> Any:
    nic = LabPort(host=FakeHost(FakeWorld(), "rx"), name="ndrx0")
    return kind(nic, HANDS, [nic] * 3)


def reading(entered: int, handed: tuple[int, int, int], dropped: int = 0) -> Any:
    links = {
        hand: {"stats": {"tx_packets": n, "tx_dropped": dropped}}
        for hand, n in zip(HANDS, handed, strict=True)
    }
    return {"links": links, "softnet": [{"dropped": 3 * dropped}], "nft": {"entered": entered}}


@pytest.mark.parametrize(
    ("handed", "dropped", "residual"),
    [((100, 100, 100), 0, 0), ((96, 96, 96), 4, 0), ((100, 100, 99), 0, 1)],
    ids=["all", "lost", "one-was-not-copied"],
)
def test_copies_stand_in_the_books(
    handed: tuple[int, int, int], dropped: int, residual: int
) -> None:
    before, after = reading(7, (0, 0, 0)), reading(107, handed, dropped)
    split = made(CopySplit)
    accounts = split.accounts(before, after)
    ledger = balance(
        [Hop(name="sent", packets=100, counter=""), split.hop(before, after)], accounts
    )
    assert (ledger.total(Class.COPIED), ledger.residual_packets) == (200, residual)
    assert ledger.loss_ratio == 3 * dropped / 300


def test_replicas_go_by_an_address_of_each_receiver() -> None:
    split = made(TraceSplit)
    assert split.dst_macs_by == "replicas" and len(set(split.dst_macs)) == 3
    rules = split.rules()
    assert all(f'{mac} : "{h}"' in rules for mac, h in zip(split.dst_macs, HANDS, strict=True))
