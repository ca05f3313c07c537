"""The ways a stream of packets is split into: a port that hands on, and a receiver's NIC, for each.

The NICs are of instances, each in a network namespace of its own, or are several ports of one SUT.

Every frame that is handed on is counted again by the port that does it, and by the NIC.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, NotRequired, cast

from nodrop.hosts.local import LocalHost
from nodrop.hosts.reversal import NETNS_FOLDER
from nodrop.hosts.seam import Action, Link, Port, UndoJournal, rise
from nodrop.labs.netns import OFFLOADS, ip_batch, queue_words, quiet_stack, wait_up
from nodrop.labs.wiring import local
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.places import BETWEEN, SOFTNET
from nodrop.protocol.events import Counters

TABLE = "nodrop"
NFT_TIMEOUT_S = 10.0
HOP = "split"


class SplitCounters(Counters):
    """Counters of the ports of a split that hand packets on."""

    nft: NotRequired[dict[str, int]]
    """Packets by the name of a counter of nft, if the split has any."""


class Split(ABC):
    """The ports that hand packets on, and the NIC each leads to."""

    words: str
    """How, for the facts of a trial."""
    dst_macs: Sequence[str] = ()
    """The address that leads to each, if the sender has to write it into the frames."""
    dst_macs_by: Literal["flows", "replicas"] = "flows"

    def __init__(self, source: Port, hands: Sequence[str], nics: Sequence[Port]) -> None:
        self.source = source
        self.hands = tuple(hands)
        self.nics = tuple(nics)

    @abstractmethod
    def connect(self) -> None:
        """The port to those that hand on."""

    def read(self) -> SplitCounters:
        found = self.source.host.probe("counters", ports=self.hands)["counters"]
        return cast(SplitCounters, found)

    def hop(self, before: SplitCounters, after: SplitCounters) -> Hop:
        handed = self._rise(before, after, "tx_packets")
        return Hop(name=HOP, packets=handed, counter="tx_packets of the split's ports")

    def accounts(self, before: SplitCounters, after: SplitCounters) -> Sequence[Account]:
        """Packets lost between the receiving port and the ports that hand on. The backlog's counter
        is the whole machine's: it names the place only if it rose by as much."""
        dropped, backlog = self._rise(before, after, "tx_dropped"), _backlog(before, after)
        in_backlog = backlog >= dropped
        return [
            Account(
                into=HOP,
                kind=Class.LOST,
                name="split_dropped_backlog",
                place=SOFTNET if in_backlog else BETWEEN,
                packets=dropped,
                counter="tx_dropped of the split's ports (rtnl_link_stats64)",
                knob="net.core.netdev_max_backlog" if in_backlog else BETWEEN.knob,
            )
        ]

    def _rise(self, before: SplitCounters, after: SplitCounters, counter: str) -> int:
        """Increase of a counter, summed over the ports that hand on."""

        return sum(rise(before, after, port, counter) for port in self.hands)

    def nft_counters(self) -> dict[str, int]:
        said = self.source.host.run(["nft", "-j", "list", "counters"]).stdout
        found = (entry["counter"] for entry in json.loads(said)["nftables"] if "counter" in entry)
        return {one["name"]: one["packets"] for one in found}

    def nft(self, rules: str) -> None:
        self.source.host.run(["nft", "-f", "-"], stdin=rules, timeout_s=NFT_TIMEOUT_S)


def addresses(receivers: int) -> Sequence[str]:
    """Locally administered: no frame of a trace should come from one of them."""
    return [f"02:6e:64:72:70:{i:02x}" for i in range(receivers)]


def _backlog(before: SplitCounters, after: SplitCounters) -> int:
    then, now = (sum(int(row["dropped"]) for row in side["softnet"]) for side in (before, after))
    return now - then


@contextmanager
def branches(
    link: Link, instances: int, macs: Sequence[str], journal: UndoJournal
) -> Iterator[tuple[Sequence[str], Sequence[Port]]]:
    """A veth pair per instance, its far end in a network namespace of the instance's own: the ports
    that hand on, and the NICs. `macs` are the NICs' addresses, if they matter."""
    receiver = local(link.rx.host)
    assert receiver.netns is not None
    hands = [f"ndsp{i}" for i in range(instances)]
    names = [f"nodrop-{journal.label}-{receiver.name}-{i}" for i in range(instances)]
    for name in names:
        journal.push(what=f"network namespace {name}", action=Action.DELETE_NETNS, arguments=[name])
    try:
        mtu = mtu_of(link.rx)
        for i, (hand, name) in enumerate(zip(hands, names, strict=True)):
            address = f"address {macs[i]} " if macs else ""
            nic = f"{link.rx.name} {address}"
            ip_batch(_pair(receiver.netns.name, hand, name, nic, mtu, link.queues))
        for name in names:
            wait_up(name, link.rx.name)
        hosts = [
            LocalHost(
                name=f"{receiver.name}-{i}",
                node=receiver.node,
                label=receiver.label,
                netns=NETNS_FOLDER / name,
            )
            for i, name in enumerate(names)
        ]
        with ExitStack() as looking:
            for host in hosts:
                looking.enter_context(host)
            yield hands, [Port(host=host, name=link.rx.name) for host in hosts]
    finally:
        standing = [name for name in names if (NETNS_FOLDER / name).exists()]
        ip_batch([f"netns del {name}" for name in standing])


@contextmanager
def ports(link: Link, count: int) -> Iterator[tuple[Sequence[str], Sequence[Port]]]:
    """The ports that hand on, and the NICs, like `branches`. All ends lie in the receiver's own
    namespace, and go with it."""
    receiver = local(link.rx.host)
    assert receiver.netns is not None
    hands = [f"ndsp{i}" for i in range(count)]
    names = [f"ndrxp{i}" for i in range(count)]
    within, mtu = receiver.netns.name, mtu_of(link.rx)
    for hand, name in zip(hands, names, strict=True):
        ip_batch(_veth(within, hand, within, name, mtu, link.queues))
        wait_up(within, name)
    yield hands, [Port(host=receiver, name=name) for name in names]


def _pair(receiver: str, hand: str, netns: str, nic: str, mtu: int, queues: int) -> list[str]:
    return [
        f"netns add {netns}",
        f"netns exec {netns} {quiet_stack()}",
        *_veth(receiver, hand, netns, nic, mtu, queues),
    ]


def _veth(receiver: str, hand: str, netns: str, nic: str, mtu: int, queues: int) -> list[str]:
    """`nic` with its address, if it is given one."""
    off = " ".join(f"{feature} off" for feature in OFFLOADS)
    name = nic.split()[0]
    return [
        f"link add {hand} netns {receiver} mtu {mtu} arp off {queue_words(queues)}type veth "
        f"peer name {nic} netns {netns} mtu {mtu} arp off {queue_words(queues)}",
        f"netns exec {receiver} ethtool -K {hand} {off}",
        f"netns exec {netns} ethtool -K {name} {off}",
        f"netns exec {netns} ip link set {name} promisc on up",
        f"netns exec {receiver} ip link set {hand} up",
    ]


def mtu_of(port: Port) -> int:
    shown = port.host.run(["ip", "-j", "link", "show", port.name])
    return int(json.loads(shown.stdout)[0]["mtu"])
