"""One stream of packets split between several receivers: instances of a SUT, or the ports of one.

By a hook at the very front of the receiving port (netdev ingress), which queues nothing:
`nft`: by the symmetric hash of a frame's flow, both directions to the same, fragments by their
addresses. `copy`: each receiver gets every frame. `trace`: each gets whole replicas of the trace,
which the sender marks by their destination address, or a trace of its own, marked when several are
made one (load/trace.py).
`bridge` (labs/bridge.py): a Linux bridge hands frames on by their destination address, as the
studies did.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from nodrop.hosts.seam import Link, Port, UndoJournal
from nodrop.labs.bridge import (
    HOP,
    TABLE,
    BridgeSplit,
    Split,
    SplitCounters,
    addresses,
    branches,
    ports,
)
from nodrop.ledger.hops import Account, Class

FINER = 256
"""Shares of each instance. The kernel scales the same hash for a fanout's sockets as for the split
(reciprocal_scale, both by its high bits): with one share each, all flows of an instance would fall
to the same of its threads."""
ENTERED = "entered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """The mechanism that shares the packets among instances or ports."""

    kind: Literal["nft", "copy", "trace", "bridge"] = "nft"
    bridge_netfilter: bool = True
    """True: a bridge hands frames to iptables (net.bridge.bridge-nf-call-*), which is what kernels
    with br_netfilter do, and drops what does not look like good IP on the way."""

    @property
    def by_address(self) -> bool:
        """The sender writes it into the frames."""
        return self.kind in ("trace", "bridge")


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
            made = _HOOKS[splitter.kind](link.rx, hands, nics)
        made.connect()
        yield made


@contextmanager
def split_to_ports(link: Link, count: int, splitter: Splitter) -> Iterator[Split]:
    with ports(link, count) as (hands, nics):
        made = _HOOKS[splitter.kind](link.rx, hands, nics)
        made.connect()
        yield made


class HookSplit(Split):
    """By flow."""

    words = "nft netdev ingress, fwd to symhash"

    def connect(self) -> None:
        self.nft(f"""
table netdev {TABLE} {{
  counter {ENTERED} {{ }}
  chain split {{
    type filter hook ingress device "{self.source.name}" priority 0; policy accept;
    {self.rules()}
  }}
}}
""")

    def rules(self) -> str:
        count = len(self.hands)
        shares = count * FINER
        ways = ", ".join(f'{i} : "{self.hands[i % count]}"' for i in range(shares))
        return f"fwd to symhash mod {shares} map {{ {ways} }}"


class TraceSplit(HookSplit):
    """By replica, or by trace."""

    words = "nft netdev ingress, fwd to the destination address of each frame"
    dst_macs_by = "replicas"

    def __init__(self, source: Port, hands: Sequence[str], nics: Sequence[Port]) -> None:
        super().__init__(source, hands, nics)
        self.dst_macs = addresses(len(nics))

    def rules(self) -> str:
        each = zip(self.dst_macs, self.hands, strict=True)
        ways = ", ".join(f'{mac} : "{hand}"' for mac, hand in each)
        return f"fwd to ether daddr map {{ {ways} }}"


class CopySplit(HookSplit):
    """Everything to each."""

    words = "nft netdev ingress, dup and fwd"

    def rules(self) -> str:
        *copies, last = self.hands
        ways = [f'counter name "{ENTERED}"', *(f'dup to "{hand}"' for hand in copies)]
        return "\n    ".join([*ways, f'fwd to "{last}"'])

    def read(self) -> SplitCounters:
        return {**super().read(), "nft": self.nft_counters()}

    def accounts(self, before: SplitCounters, after: SplitCounters) -> Sequence[Account]:
        entered = after["nft"][ENTERED] - before["nft"][ENTERED]
        return [
            Account(
                into=HOP,
                kind=Class.COPIED,
                name="split_copied",
                packets=entered * (len(self.hands) - 1),
                counter=f"nft netdev ingress of {self.source.name}, once for each further receiver",
            ),
            *super().accounts(before, after),
        ]


_HOOKS: Mapping[str, type[HookSplit]] = {"nft": HookSplit, "copy": CopySplit, "trace": TraceSplit}
