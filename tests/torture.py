"""Frames that are hard to rewrite: every tunnel, option and quotation, wrong and absent checksums,
cut at every place."""

from __future__ import annotations

from pathlib import Path

from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_Redirect,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, GRE, LLC, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

A4, B4, C4, D4 = "10.1.2.3", "192.168.7.9", "8.8.4.4", "172.16.0.1"
A6, B6, C6 = "2001:db8::1", "fd00::5:1", "2a00:1450::200e"
ETHER = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}


def _ether() -> Packet:
    return Ether(**ETHER)


def _tcp(**fields: int) -> Packet:
    return TCP(sport=40000, dport=80, options=[("MSS", 1460), ("SAckOK", b"")], **fields) / b"GET /"


def _udp(**fields: int) -> Packet:
    return UDP(sport=40001, dport=53, **fields) / b"odd"


def _inner4() -> Packet:
    return IP(src=C4, dst=D4) / _tcp()


def _inner6() -> Packet:
    return IPv6(src=C6, dst=B6) / _udp()


def whole() -> list[Packet]:
    """One frame of each kind, none of them cut."""
    ip4, ip6 = IP(src=A4, dst=B4), IPv6(src=A6, dst=B6)
    plain = [top / ip / l4 for top in [_ether()] for ip in (ip4, ip6) for l4 in (_tcp(), _udp())]
    wrong = [
        _ether() / ip4 / _tcp(chksum=0x1234),
        _ether() / ip4 / _udp(chksum=0),
        _ether() / ip4 / _udp(chksum=0xFFFF),
        _ether() / ip6 / _udp(chksum=0),
        _ether() / ip6 / _udp(chksum=0xBEEF),
        _ether() / IP(src=A4, dst=B4, chksum=0xDEAD) / _tcp(),
        _ether() / IP(src=A4, dst=B4, len=0) / _tcp(),
        _ether() / IP(src=A4, dst=B4, len=4000) / _tcp(),
        _ether() / IP(src=A4, dst=B4, len=22) / _tcp(),
        _ether() / IP(src=A4, dst=A4) / _tcp(),
    ]
    tagged = [
        _ether() / Dot1Q(vlan=5) / ip4 / _tcp(),
        _ether() / Dot1AD(vlan=5) / Dot1Q(vlan=6) / ip6 / _udp(),
        _ether() / Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / ip4 / _udp(),
        _ether() / MPLS(label=7, s=0) / MPLS(label=8, s=1) / ip4 / _tcp(),
        _ether() / PPPoE() / PPP(proto=0x21) / ip4 / _tcp(),
        _ether() / PPPoE() / PPP(proto=0x57) / ip6 / _udp(),
    ]
    tunnels = [
        _ether() / ip4 / GRE() / _inner4(),
        _ether() / ip4 / GRE(chksum_present=1, key_present=1, seqnum_present=1) / _inner6(),
        _ether() / ip6 / GRE(proto=0x6558) / _ether() / _inner4(),
        _ether() / ip4 / _inner4(),
        _ether() / ip4 / _inner6(),
        _ether() / ip6 / _inner4(),
        _ether() / ip6 / _inner6(),
        _ether() / ip4 / UDP(sport=5555, dport=4789) / VXLAN(vni=9) / _ether() / _inner4(),
        _ether() / ip4 / UDP(sport=5555, dport=4789, chksum=0) / VXLAN() / _ether() / _inner6(),
        _ether() / ip6 / UDP(sport=5555, dport=6081) / GENEVE(vni=3) / _inner4(),
        _ether() / ip4 / _inner4() / IP(src=A4, dst=C4) / IP(src=D4, dst=C4) / _inner6(),
    ]
    options = [
        _ether() / IP(src=A4, dst=B4, options=IPOption_RR(routers=[C4, "0.0.0.0"])) / _tcp(),
        _ether() / IP(src=A4, dst=B4, options=IPOption_LSRR(routers=[C4, D4])) / _tcp(),
        _ether() / ip6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / _tcp(),
        _ether() / ip6 / IPv6ExtHdrRouting(addresses=[C6]) / _tcp(),
        _ether() / ip6 / IPv6ExtHdrFragment(id=9, m=1) / _udp(),
        _ether() / ip6 / IPv6ExtHdrFragment(id=9, offset=2) / Raw(b"x" * 24),
        _ether() / IP(src=A4, dst=B4, flags="MF", id=7) / UDP(sport=1, dport=2, len=99) / b"first",
        _ether() / IP(src=A4, dst=B4, frag=3, id=7, proto=17) / Raw(b"later fragment"),
        _ether() / ip4 / SCTP(sport=1, dport=2) / Raw(b"chunks"),
        _ether() / ip4 / TCP(dataofs=15) / b"short",
    ]
    control = [
        _ether() / ip4 / ICMP() / b"ping!",
        _ether() / ip6 / ICMPv6EchoRequest(data=b"ping!"),
        _ether() / ip4 / ICMP(type=3, code=1) / _inner4(),
        _ether() / ip4 / ICMP(type=11) / IP(src=C4, dst=D4) / _udp(chksum=0),
        _ether() / ip6 / ICMPv6DestUnreach() / _inner6(),
        _ether() / IPv6(src="fe80::1", dst="ff02::1:ff00:5") / ICMPv6ND_NS(tgt="fe80::5"),
        _ether() / IPv6(src="fe80::5", dst="fe80::1") / ICMPv6ND_NA(tgt="fe80::5"),
        _ether() / IPv6(src="fe80::5", dst=A6) / ICMPv6ND_Redirect(tgt="fe80::7", dst=C6),
        _ether() / ARP(op=1, psrc=A4, pdst=B4),
        _ether() / ARP(op=2, psrc=B4, pdst=A4),
    ]
    stay = [
        _ether()
        / IP(src="0.0.0.0", dst="255.255.255.255")
        / UDP(sport=68, dport=67)
        / BOOTP()
        / DHCP(options=[("message-type", "discover"), "end"]),
        _ether() / IPv6(src="::", dst="ff02::1:ff00:1") / ICMPv6ND_NS(tgt="ff02::9"),
        _ether() / IPv6(src="::1", dst="::1") / _tcp(),
        _ether() / IP(src=A4, dst="224.0.0.251") / UDP(sport=5353, dport=5353) / b"mdns",
        Dot3(**ETHER) / LLC(dsap=0x42, ssap=0x42) / b"spanning tree",
        Ether(**ETHER, type=0x88CC) / b"lldp",
    ]
    jumbo = [_ether() / ip / UDP(sport=3, dport=4) / Raw(b"j" * 8_901) for ip in (ip4, ip6)]
    return plain + wrong + tagged + tunnels + options + control + stay + jumbo


MOST_CUT_BYTES = 150
"""Every header of the deepest tunnel lies before."""


def frames() -> list[bytes]:
    """Each whole frame, with padding behind it, and cut at every place from the EtherType on."""
    made: list[bytes] = []
    for packet in whole():
        frame = bytes(packet)
        made += [frame, frame + bytes(7)]
        made += [frame[:cut] for cut in range(14, min(len(frame), MOST_CUT_BYTES))]
    return made


def write(path: Path) -> list[bytes]:
    made = frames()
    wrpcap(str(path), made, linktype=1)
    return made
