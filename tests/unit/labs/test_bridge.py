"""The bridge as a splitter: which difference between which counters is which loss."""

from __future__ import annotations

from typing import Any

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Hop
from nodrop.testbed.hosts.api import LabPort
from nodrop.testbed.labs.split import BridgeSplit
from nodrop.testing.fakes import FakeHost, FakeWorld

BEFORE = {"bad_source": 5, "entered": 10, "checked": 20, "known": 30, "forwarded": 40}
HANDS = ("ndsp0", "ndsp1")


def made(*, netfilter: bool = True) -> BridgeSplit:
    nic = LabPort(host=FakeHost(FakeWorld(), "rx"), name="ndrx0")
    return BridgeSplit(nic, HANDS, [nic, nic], netfilter=netfilter)


def reading(rise: dict[str, int], *, sent: int, dropped: int, header_errors: int) -> Any:
    stats = {"tx_packets": 7 + sent, "tx_dropped": 3 + dropped}
    still = {"tx_packets": 7, "tx_dropped": 3}
    return {
        "links": {HANDS[0]: {"stats": stats}, HANDS[1]: {"stats": still}},
        "snmp": {"Ip.InHdrErrors": 100 + header_errors},
        "softnet": [{"dropped": 9 + dropped}, {"dropped": 5}],
        "conntrack": {"drop": 50 + 3 * header_errors, "found": 9 * header_errors},
        "nft": {name: start + rise.get(name, 0) for name, start in BEFORE.items()},
    }


def test_each_place_of_the_bridge_has_its_class_and_the_books_close() -> None:
    rise = {"bad_source": 10, "entered": 990, "checked": 890, "known": 885, "forwarded": 884}
    before = reading({}, sent=0, dropped=0, header_errors=0)
    after = reading(rise, sent=880, dropped=4, header_errors=101)
    split = made()
    accounts = split.accounts(before, after)
    assert {a.name: a.packets for a in accounts} == {
        "bridge_dropped_source_mac": 10,
        "bridge_dropped_netfilter": 100 + 1,
        "bridge_dropped_no_way": 5,
        "split_dropped_backlog": 4,
    }
    arrived = Hop(name="rx_nic", packets=1000, counter="rx_packets")
    assert balance([arrived, split.hop(before, after)], accounts).closed
    (netfilter,) = (a for a in accounts if a.name == "bridge_dropped_netfilter")
    assert "header errors rose by 101" in netfilter.evidence
    assert "drops of connection tracking by 303" in netfilter.evidence
    assert "bridge_netfilter" in netfilter.knob


def test_every_instance_has_an_address_of_its_own() -> None:
    split = made()
    assert len(set(split.dst_macs)) == len(split.nics)
    assert all(mac.startswith("02:") for mac in split.dst_macs), "locally administered, no group"
    assert "netfilter off" in made(netfilter=False).words
