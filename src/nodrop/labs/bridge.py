"""A Linux bridge as the splitter: each instance is an address, which the sender writes into frames.

This is what the studies did, and a bridge is no wire: it drops frames whose source is a group
or all zeros (MAC_INVALID_SOURCE) and, if br_netfilter is on, frames whose IP header is not good.
No interface counts either. Counters of nft stand before and after each of those places.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.hosts.seam import Port
from nodrop.labs.branches import HOP, TABLE, Split, SplitCounters, addresses, mtu_of
from nodrop.labs.netns import ip_batch
from nodrop.labs.wiring import local
from nodrop.ledger.hops import Account, Class
from nodrop.ledger.places import Owner, Place

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
"""In the order in which a frame passes them."""


class BridgeSplit(Split):
    def __init__(
        self, source: Port, hands: Sequence[str], nics: Sequence[Port], *, netfilter: bool
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
                evidence=f"{refused} frames went into the bridge's netfilter hooks and not out of "
                f"them; IP header errors rose by {header_errors} (/proc/net/snmp, snmp6, netstat), "
                f"drops of connection tracking by {conntrack}",
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
