"""A split: one stream for several receivers, by nft or by a Linux bridge, where each instance is an
address that the sender writes into frames.

This is what the studies did, and a bridge is no wire: it drops frames whose source is a group
or all zeros (MAC_INVALID_SOURCE) and, if br_netfilter is on, frames whose IP header is not good.
No interface counts either. Counters of nft stand before and after each of those places.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, NotRequired, cast

from nodrop.ledger.hops import BETWEEN, SOFTNET, Account, Class, Hop, Owner, Place
from nodrop.protocol import Counters
from nodrop.testbed.hosts.api import LabPort, Link, UndoJournal, rise
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.reversal import NETNS_FOLDER
from nodrop.testbed.labs.netns import (
    ip_batch,
    local,
    namespaces,
    offloads_off,
    queue_words,
    quiet_stack,
    wait_up,
)

# The ways a stream of packets is split into: a port that hands on, and a receiver's NIC, for each.
#
# The NICs are of instances, each in a network namespace of its own, or are several ports of one
# SUT.
#
# Every frame that is handed on is counted again by the port that does it, and by the NIC.
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

    def __init__(self, source: LabPort, hands: Sequence[str], nics: Sequence[LabPort]) -> None:
        self.source = source
        self.hands = tuple(hands)
        self.nics = tuple(nics)

    @abstractmethod
    def connect(self) -> None:
        """Connects the port with those that hand on."""

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
) -> Iterator[tuple[Sequence[str], Sequence[LabPort]]]:
    """A veth pair per instance, its far end in a network namespace of the instance's own: the ports
    that hand on, and the NICs. `macs` are the NICs' addresses, if they matter."""
    receiver = local(link.rx.host)
    assert receiver.netns is not None
    hands = [f"ndsp{i}" for i in range(instances)]
    names = [f"nodrop-{journal.label}-{receiver.name}-{i}" for i in range(instances)]
    with namespaces(journal, *names), ExitStack() as looking:
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
        nics = [LabPort(host=looking.enter_context(host), name=link.rx.name) for host in hosts]
        yield hands, nics


@contextmanager
def ports(link: Link, count: int) -> Iterator[tuple[Sequence[str], Sequence[LabPort]]]:
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
    yield hands, [LabPort(host=receiver, name=name) for name in names]


def _pair(receiver: str, hand: str, netns: str, nic: str, mtu: int, queues: int) -> list[str]:
    return [
        f"netns add {netns}",
        f"netns exec {netns} {quiet_stack()}",
        *_veth(receiver, hand, netns, nic, mtu, queues),
    ]


def _veth(receiver: str, hand: str, netns: str, nic: str, mtu: int, queues: int) -> list[str]:
    """`nic` with its address, if it is given one."""
    name = nic.split()[0]
    return [
        f"link add {hand} netns {receiver} mtu {mtu} arp off {queue_words(queues)}type veth "
        f"peer name {nic} netns {netns} mtu {mtu} arp off {queue_words(queues)}",
        f"netns exec {receiver} {offloads_off(hand)}",
        f"netns exec {netns} {offloads_off(name)}",
        f"netns exec {netns} ip link set {name} promisc on up",
        f"netns exec {receiver} ip link set {hand} up",
    ]


def mtu_of(port: LabPort) -> int:
    shown = port.host.run(["ip", "-j", "link", "show", port.name])
    return int(json.loads(shown.stdout)[0]["mtu"])


BRIDGE = "ndbr0"
LINUX_BRIDGE = Place(
    name="Linux bridge",
    owner=Owner.SETUP,
    counter="counters of nft before and after its hooks; the bridge itself counts none",
    source="Linux net/bridge/br_input.c (br_handle_frame), br_netfilter_hooks.c, br_forward.c",
    knob='setup.splitter = "nft", or setup.bridge_netfilter = "no"',
)
NETFILTER = ("iptables", "ip6tables", "arptables")
BAD_SOURCE, ENTERED, CHECKED, KNOWN, FORWARDED = (
    *("bad_source", "entered", "checked", "known", "forwarded"),
)
"""Counters in the order in which a frame passes them."""


class BridgeSplit(Split):
    def __init__(
        self, source: LabPort, hands: Sequence[str], nics: Sequence[LabPort], *, netfilter: bool
    ) -> None:
        super().__init__(source, hands, nics)
        self.dst_macs = addresses(len(nics))
        self._netfilter = netfilter
        self.words = f"Linux bridge, by destination address, netfilter {_on(netfilter)}"

    def connect(self) -> None:
        """Ways are set, not learnt, and `sticky`: no source address of the trace moves them."""
        netns = local(self.source.host).netns
        assert netns is not None
        mtu, inside = mtu_of(self.source), f"netns exec {netns.name}"
        ip_batch(
            [
                f"{inside} ip link add {BRIDGE} mtu {mtu} type bridge mcast_snooping 0",
                *(
                    f"{inside} ip link set {port} master {BRIDGE}"
                    for port in (self.source.name, *self.hands)
                ),
                *(
                    f"{inside} bridge fdb replace {mac} dev {hand} master static sticky"
                    for mac, hand in zip(self.dst_macs, self.hands, strict=True)
                ),
                *(() if self._netfilter else (f"{inside} {_no_netfilter()}",)),
                f"{inside} ip link set {BRIDGE} arp off up",
            ]
        )
        self.nft(_counting(self.source.name))

    def read(self) -> SplitCounters:
        return {**super().read(), "nft": self.nft_counters()}

    def accounts(self, before: SplitCounters, after: SplitCounters) -> Sequence[Account]:
        rise = {name: packets - before["nft"][name] for name, packets in after["nft"].items()}
        refusals = _header_errors(before, after), _conntrack_drops(before, after)
        return [*self._taken(rise, *refusals), *super().accounts(before, after)]

    def _taken(self, rise: dict[str, int], header_errors: int, conntrack: int) -> Sequence[Account]:
        refused = rise[ENTERED] - rise[CHECKED] + rise[KNOWN] - rise[FORWARDED]
        return [
            _lost(
                "bridge_dropped_source_mac",
                rise[BAD_SOURCE],
                counter=f"nft netdev ingress of {self.source.name}: frames from a group or from 0",
                knob='setup.splitter = "nft": a bridge drops what has no proper source address',
            ),
            _lost(
                "bridge_dropped_netfilter",
                refused,
                counter="nft bridge: into prerouting and forward, less out of them",
                evidence=f"{refused:,} frames went into the bridge's netfilter hooks and not out "
                f"of them; IP header errors rose by {header_errors:,} (/proc/net/snmp, snmp6, "
                f"netstat), drops of connection tracking by {conntrack:,}",
                knob='setup.bridge_netfilter = "no" (net.bridge.bridge-nf-call-iptables = 0)',
            ),
            _lost(
                "bridge_dropped_no_way",
                rise[CHECKED] - rise[KNOWN],
                counter="nft bridge: out of prerouting, less into forward",
                evidence="the bridge had no port for them: such an address is its own, or lies "
                "where the frame came from",
                knob=f"bridge fdb show br {BRIDGE}",
            ),
        ]


def _lost(name: str, packets: int, *, counter: str, knob: str, evidence: str = "") -> Account:
    return Account(
        into=HOP,
        kind=Class.LOST,
        name=name,
        place=LINUX_BRIDGE,
        packets=packets,
        counter=counter,
        evidence=evidence,
        knob=knob,
    )


HEADER_ERRORS = ("Ip.InHdrErrors", "IpExt.InTruncatedPkts", "Ip6InHdrErrors", "Ip6InTruncatedPkts")


def _header_errors(before: SplitCounters, after: SplitCounters) -> int:
    return sum(
        int(after["snmp"].get(name, 0)) - int(before["snmp"].get(name, 0)) for name in HEADER_ERRORS
    )


CONNTRACK_DROPS = ("drop", "insert_failed")
"""Conntrack counters of packets; `early_drop` counts entries."""


def _conntrack_drops(before: SplitCounters, after: SplitCounters) -> int:
    then, now = before.get("conntrack") or {}, after.get("conntrack") or {}
    return sum(int(now.get(name, 0)) - int(then.get(name, 0)) for name in CONNTRACK_DROPS)


def _counting(port: str) -> str:
    """br_netfilter works at priority 0 of prerouting and at -1 of forward."""
    chains = [
        ("prerouting", -300, ENTERED),
        ("prerouting", 300, CHECKED),
        ("forward", -300, KNOWN),
        ("forward", 300, FORWARDED),
    ]
    group = "01:00:00:00:00:00"
    return (
        f"""
table netdev {TABLE} {{
  counter {BAD_SOURCE} {{ }}
  chain arriving {{
    type filter hook ingress device "{port}" priority 0; policy accept;
    ether saddr & {group} == {group} counter name "{BAD_SOURCE}"
    ether saddr 00:00:00:00:00:00 counter name "{BAD_SOURCE}"
  }}
}}
table bridge {TABLE} {{
"""
        + "".join(
            f"""  counter {name} {{ }}
  chain after_{name} {{
    type filter hook {hook} priority {priority}; policy accept;
    iifname "{port}" counter name "{name}"
  }}
"""
            for hook, priority, name in chains
        )
        + "}\n"
    )


def _no_netfilter() -> str:
    return "sysctl -qw " + " ".join(f"net.bridge.bridge-nf-call-{kind}=0" for kind in NETFILTER)


def _on(yes: bool) -> str:
    return "on" if yes else "off"


# One stream of packets split between several receivers: instances of a SUT, or the ports of one.
#
# By a hook at the very front of the receiving port (netdev ingress), which queues nothing: `nft`:
# by the symmetric hash of a frame's flow, both directions to the same, fragments by their
# addresses. `copy`: each receiver gets every frame. `trace`: each gets whole replicas of the trace,
# which the sender marks by their destination address, or a trace of its own, marked when several
# are made one (load/trace.py). `bridge` (labs/split.py): a Linux bridge hands frames on by their
# destination address, as the studies did.

FINER = 256
"""Shares of each instance. The kernel scales the same hash for a fanout's sockets as for the split
(reciprocal_scale, both by its high bits): with one share each, all flows of an instance would fall
to the same of its threads."""
INTO_SPLIT = "entered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """The mechanism that shares the packets among instances or ports."""

    kind: Literal["nft", "copy", "trace", "bridge"] = "nft"
    bridge_netfilter: bool = True
    """True: a bridge hands frames to iptables (net.bridge.bridge-nf-call-*), which is what kernels
    with br_netfilter do, and drops what does not look like good IP on the way."""

    @property
    def by_address(self) -> bool:
        """The sender writes the receiver's address into the frames."""
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
    """A split by flow."""

    words = "nft netdev ingress, fwd to symhash"

    def connect(self) -> None:
        self.nft(f"""
table netdev {TABLE} {{
  counter {INTO_SPLIT} {{ }}
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
    """A split by replica, or by trace."""

    words = "nft netdev ingress, fwd to the destination address of each frame"
    dst_macs_by = "replicas"

    def __init__(self, source: LabPort, hands: Sequence[str], nics: Sequence[LabPort]) -> None:
        super().__init__(source, hands, nics)
        self.dst_macs = addresses(len(nics))

    def rules(self) -> str:
        each = zip(self.dst_macs, self.hands, strict=True)
        ways = ", ".join(f'{mac} : "{hand}"' for mac, hand in each)
        return f"fwd to ether daddr map {{ {ways} }}"


class CopySplit(HookSplit):
    """A split that copies: each receiver gets everything."""

    words = "nft netdev ingress, dup and fwd"

    def rules(self) -> str:
        *copies, last = self.hands
        ways = [f'counter name "{INTO_SPLIT}"', *(f'dup to "{hand}"' for hand in copies)]
        return "\n    ".join([*ways, f'fwd to "{last}"'])

    def read(self) -> SplitCounters:
        return {**super().read(), "nft": self.nft_counters()}

    def accounts(self, before: SplitCounters, after: SplitCounters) -> Sequence[Account]:
        entered = after["nft"][INTO_SPLIT] - before["nft"][INTO_SPLIT]
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
