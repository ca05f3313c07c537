"""A frame by scapy, a parser that shares no line with ours: every field of every layer, and how
wrong each checksum is."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

logging.getLogger("scapy").setLevel(logging.ERROR)

import scapy.contrib.geneve  # noqa: E402
import scapy.contrib.gtp  # noqa: E402, F401
from scapy.fields import FieldLenField, StrFixedLenField, StrLenField  # noqa: E402
from scapy.layers.inet import ICMP, IP, TCP, UDP, in4_chksum  # noqa: E402
from scapy.layers.inet6 import IPv6, in6_chksum  # noqa: E402
from scapy.layers.l2 import GRE, Ether  # noqa: E402
from scapy.layers.sctp import SCTP  # noqa: E402
from scapy.packet import Packet, Raw, bind_bottom_up, bind_layers  # noqa: E402
from scapy.utils import checksum  # noqa: E402


class Teredo(Packet):  # type: ignore[misc]
    """An origin indication, if there is one, before IPv6 (RFC 4380), which scapy does not know."""

    name = "Teredo"
    fields_desc: ClassVar[list[Any]] = [StrFixedLenField("origin", b"", 8)]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *_: Any, **__: Any) -> type[Packet]:
        if _pkt[:2] == b"\0\1":
            return TeredoAuthentication
        return cls if _pkt[:2] == bytes(2) else IPv6 if _pkt[:1] == b"\x60" else Raw


class TeredoAuthentication(Packet):  # type: ignore[misc]
    """Authentication before an origin indication or IPv6 (RFC 4380, section 5.1.1)."""

    name = "Teredo authentication"
    fields_desc: ClassVar[list[Any]] = [
        StrFixedLenField("indicator", b"\0\1", 2),
        FieldLenField("id_length", None, fmt="B", length_of="client_id"),
        FieldLenField("value_length", None, fmt="B", length_of="value"),
        StrLenField("client_id", b"", length_from=lambda packet: packet.id_length),
        StrLenField("value", b"", length_from=lambda packet: packet.value_length),
        StrFixedLenField("nonce", bytes(8), 8),
        StrFixedLenField("confirmation", b"\0", 1),
    ]


class FabricPath(Packet):  # type: ignore[misc]
    """Cisco's tag before an Ethernet frame, which scapy does not know either."""

    name = "FabricPath"
    fields_desc: ClassVar[list[Any]] = [StrFixedLenField("tag", bytes(2), 2)]


bind_layers(Ether, FabricPath, type=0x8903)
bind_layers(FabricPath, Ether)
bind_layers(Teredo, IPv6)
bind_layers(TeredoAuthentication, Teredo)
for port in ({"sport": 3544}, {"dport": 3544}):
    bind_bottom_up(UDP, Teredo, **port)

ADDRESSES = frozenset({"src", "dst", "psrc", "pdst", "tgt"})
"""Fields with an address in IP, IPv6 (and those quoted), ARP, neighbour discovery."""
CHECKSUMS = frozenset({"chksum", "cksum"})
LINK_LAYERS = frozenset({"Ethernet", "802.3"})


@dataclass(slots=True, kw_only=True)
class View:
    fixed: list[tuple[str, str, Any]] = field(default_factory=list)
    """Layer, field and value, of all that a rewriting may not change."""
    addresses: list[tuple[str, str, str]] = field(default_factory=list)
    errors: list[tuple[str, int]] = field(default_factory=list)
    """Layer and error of each checksum; an error of 0 is right."""


def view(frame: bytes) -> View:
    seen = View()
    layer: Any = Ether(frame)
    ip: Any = None
    while layer is not None and layer.name != "NoPayload":
        _fields(layer, seen)
        if isinstance(layer, IP | IPv6):
            ip = layer
        _checksum(layer, ip, seen)
        layer = layer.payload
    return seen


def _fields(layer: Any, seen: View) -> None:
    for name, value in layer.fields.items():
        if name in ADDRESSES and layer.name not in LINK_LAYERS:
            seen.addresses.append((layer.name, name, str(value)))
        elif name not in CHECKSUMS:
            seen.fixed.append((layer.name, name, repr(value)))


def _checksum(layer: Any, ip: Any, seen: View) -> None:
    # SCTP has a CRC of its own, over no address.
    if not CHECKSUMS & layer.fields.keys() or isinstance(layer, SCTP):
        return
    raw = bytes(layer.original)
    if isinstance(layer, IP):
        off = checksum(raw[: 4 * (layer.ihl or 5)])
    elif isinstance(layer, ICMP | GRE):
        off = checksum(raw)
    elif isinstance(layer, UDP) and layer.chksum == 0:
        seen.errors.append(("no checksum", 0))
        return
    elif isinstance(ip, IP):
        off = in4_chksum(ip.proto, ip, raw)
    elif isinstance(ip, IPv6):
        number = 6 if isinstance(layer, TCP) else 17 if isinstance(layer, UDP) else 58
        off = in6_chksum(number, ip, raw)
    else:
        return
    # 0xffff is the other zero of ones' complement.
    seen.errors.append((layer.name, off % 0xFFFF))
