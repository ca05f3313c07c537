"""One stream of packets split between several receivers: by flow, both directions to the same one.

A hook at the very front of the receiving port (nft, netdev ingress) hands each frame on by the
symmetric hash of its flow, fragments by their addresses. Nothing is copied and nothing is queued:
every frame is counted again by the port that hands it on, and by the receiver's own NIC.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nodrop.lab.host import LocalHost
from nodrop.lab.journal import NETNS_FOLDER
from nodrop.lab.netns import OFFLOADS, ip_batch, quiet_stack, wait_up
from nodrop.lab.seam import Json, Link, Port, UndoJournal
from nodrop.lab.wiring import local

TABLE = "nodrop"
NFT_TIMEOUT_S = 10.0


def split_problems() -> Sequence[str]:
    if shutil.which("nft") is None:
        return ["program nft is missing, which splits packets between instances; install nftables"]
    return []


class Split:
    """The ports that hand packets on, and the NIC each leads to."""

    def __init__(self, source: Port, hands: Sequence[str], nics: Sequence[Port]) -> None:
        self._source = source
        self._hands = tuple(hands)
        self.nics = tuple(nics)

    def read(self) -> Json:
        found: Json = self._source.host.probe("counters", ports=list(self._hands))["counters"]
        return found

    def rise(self, before: Json, after: Json, counter: str) -> int:
        """Of the ports that hand on, together."""

        def total(side: Json) -> int:
            return sum(int(side["links"][port]["stats"][counter]) for port in self._hands)

        return total(after) - total(before)


@contextmanager
def split(link: Link, instances: int, journal: UndoJournal) -> Iterator[Split]:
    """A veth pair per instance, its far end in a network namespace of the instance's own."""
    receiver = local(link.rx.host)
    assert receiver.netns is not None
    hands = [f"ndsp{i}" for i in range(instances)]
    names = [f"nodrop-{journal.label}-{receiver.name}-{i}" for i in range(instances)]
    for name in names:
        journal.push(what=f"network namespace {name}", argv=["ip", "netns", "del", name])
    try:
        mtu = _mtu(link.rx)
        for hand, name in zip(hands, names, strict=True):
            ip_batch(_pair(receiver.netns.name, hand, name, link.rx.name, mtu))
        for name in names:
            wait_up(name, link.rx.name)
        rules = _rules(link.rx.name, hands)
        link.rx.host.run(["nft", "-f", "-"], stdin=rules, timeout_s=NFT_TIMEOUT_S)
        nics = [
            Port(
                host=LocalHost(
                    name=f"{receiver.name}-{i}",
                    node=receiver.node,
                    label=receiver.label,
                    netns=NETNS_FOLDER / name,
                ),
                name=link.rx.name,
            )
            for i, name in enumerate(names)
        ]
        yield Split(link.rx, hands, nics)
    finally:
        standing = [name for name in names if (NETNS_FOLDER / name).exists()]
        ip_batch([f"netns del {name}" for name in standing])


def _pair(receiver: str, hand: str, netns: str, nic: str, mtu: int) -> list[str]:
    off = " ".join(f"{feature} off" for feature in OFFLOADS)
    return [
        f"netns add {netns}",
        f"netns exec {netns} {quiet_stack()}",
        f"link add {hand} netns {receiver} mtu {mtu} arp off type veth "
        f"peer name {nic} netns {netns} mtu {mtu} arp off",
        f"netns exec {receiver} ethtool -K {hand} {off}",
        f"netns exec {netns} ethtool -K {nic} {off}",
        f"netns exec {netns} ip link set {nic} promisc on up",
        f"netns exec {receiver} ip link set {hand} up",
    ]


def _rules(nic: str, hands: Sequence[str]) -> str:
    ways = ", ".join(f'{i} : "{hand}"' for i, hand in enumerate(hands))
    return f"""
table netdev {TABLE} {{
  chain split {{
    type filter hook ingress device "{nic}" priority 0; policy accept;
    fwd to symhash mod {len(hands)} map {{ {ways} }}
  }}
}}
"""


def _mtu(port: Port) -> int:
    shown = port.host.run(["ip", "-j", "link", "show", port.name])
    return int(json.loads(shown.stdout)[0]["mtu"])
