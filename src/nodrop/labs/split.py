"""One stream of packets split between several receivers: by flow, both directions to the same one.

The receivers are instances of a SUT, or the ports of one.

`nft`: a hook at the very front of the receiving port (netdev ingress) hands each frame on by the
symmetric hash of its flow, fragments by their addresses. Nothing is copied and nothing is queued.
`bridge` (labs/bridge.py): a Linux bridge hands it on by its destination address, as the studies
did.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from nodrop.hosts.seam import Link, UndoJournal
from nodrop.labs.branches import TABLE, Split, branches, ports
from nodrop.labs.bridge import BridgeSplit, addresses

FINER = 256
"""Shares of each instance. The kernel scales the same hash for a fanout's sockets as for the split
(reciprocal_scale, both by its high bits): with one share each, all flows of an instance would fall
to the same of its threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """What shares the packets among instances."""

    kind: Literal["nft", "bridge"] = "nft"
    bridge_netfilter: bool = True
    """Of a bridge: it hands frames to iptables (net.bridge.bridge-nf-call-*), which is what kernels
    with br_netfilter do, and drops what does not look like good IP on the way."""


def split_problems(splitter: Splitter) -> Sequence[str]:
    programs = {"nft": "nftables"} | ({"bridge": "iproute2"} if splitter.kind == "bridge" else {})
    return [
        f"program {program} is missing, which splits packets between instances; install {package}"
        for program, package in programs.items()
        if shutil.which(program) is None
    ]


@contextmanager
def split(link: Link, instances: int, splitter: Splitter, journal: UndoJournal) -> Iterator[Split]:
    macs = addresses(instances) if splitter.kind == "bridge" else ()
    with branches(link, instances, macs, journal) as (hands, nics):
        made: Split
        if splitter.kind == "bridge":
            made = BridgeSplit(link.rx, hands, nics, netfilter=splitter.bridge_netfilter)
        else:
            made = NftSplit(link.rx, hands, nics)
        made.connect()
        yield made


@contextmanager
def split_to_ports(link: Link, count: int) -> Iterator[Split]:
    with ports(link, count) as (hands, nics):
        made = NftSplit(link.rx, hands, nics)
        made.connect()
        yield made


class NftSplit(Split):
    words = "nft netdev ingress, fwd to symhash"

    def connect(self) -> None:
        count = len(self.hands)
        shares = count * FINER
        ways = ", ".join(f'{i} : "{self.hands[i % count]}"' for i in range(shares))
        self.nft(f"""
table netdev {TABLE} {{
  chain split {{
    type filter hook ingress device "{self.source.name}" priority 0; policy accept;
    fwd to symhash mod {shares} map {{ {ways} }}
  }}
}}
""")
