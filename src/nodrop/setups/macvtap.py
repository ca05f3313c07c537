"""Docker with a macvtap: the receiving NIC stays outside, and a macvtap on it goes inside.

This is the studies' DockerV: the way of the packets is the one into a virtual machine, up to the
queue that its emulator would read. Nothing reads that queue here: the SUT captures on the macvtap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nodrop.config.options import Options, check
from nodrop.hosts.local import LocalHost
from nodrop.hosts.seam import Json, Link, Port, rise
from nodrop.labs.wiring import MACVTAP, add_macvtap
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.places import Owner, Place, WaitsFor
from nodrop.machines.docker_engine import DockerEngine
from nodrop.setups.docker import Docker, DockerEnv
from nodrop.setups.seam import PlaceReading

HOP = "macvtap"
MACVLAN = Place(
    name="macvtap",
    owner=Owner.SETUP,
    counter="rx_dropped of the receiving NIC (rtnl_link_stats64), of frames to a group",
    source="Linux drivers/net/macvlan.c (macvlan_broadcast_enqueue)",
    knob="bcqueuelen of the macvtap: frames to a group wait there for a kernel worker",
    waits_for=WaitsFor.CPU,
)


class MacvtapOptions(Options):
    txqueuelen: Annotated[int, Field(ge=1)] | None = None
    """Queue length of the macvtap; it matters if something reads the queue. Without it, the
    kernel's 500."""


class DockerMacvtap(Docker):
    """A Setup (setups/seam.py)."""

    name = "docker-macvtap"
    places: Sequence[Place] = (MACVLAN,)

    def __init__(self, options: Mapping[str, Any] | None = None, *, base: Path = Path()) -> None:
        self._options = check(MacvtapOptions, options or {}, table="setup", base=base)

    def _env(self, engine: DockerEngine, link: Link, **given: Any) -> DockerMacvtapEnv:
        env = DockerMacvtapEnv(self.name, engine, link, **given)
        env.txqueuelen = self._options.txqueuelen
        env.capture_interfaces = (MACVTAP,)  # the NIC stays where it is
        return env


class DockerMacvtapEnv(DockerEnv):
    """An Env (setups/seam.py)."""

    delivers_at_once = False  # frames to a group wait for a worker of the kernel
    txqueuelen: int | None = None
    _macvtap: Port | None = None

    def read(self) -> PlaceReading:
        if self._macvtap is None:
            return {}
        return {
            "nic": self.nic.counters(),
            HOP: self._macvtap.counters(),
        }

    def hops(
        self, before: PlaceReading, after: PlaceReading
    ) -> tuple[Sequence[Hop], Sequence[Account]]:
        return macvtap_books(self.nic.name, MACVTAP, before, after)

    def facts(self) -> Json:
        return {**super().facts(), "macvtap_mode": "passthru", "txqueuelen": self.txqueuelen}

    def _wire(self, inside: LocalHost) -> None:
        self._macvtap = add_macvtap(self.nic, inside, queue=self.txqueuelen)
        self.host = inside


def macvtap_books(
    nic: str, macvtap: str, before: PlaceReading, after: PlaceReading
) -> tuple[Sequence[Hop], Sequence[Account]]:
    """From the NIC to the macvtap's own receive counter.

    Unicast frames are handed over at once and cannot be lost. Frames to a group take another way:
    their fragments are put together first (IP_DEFRAG_MACVLAN), then a queue of `bcqueuelen` frames
    carries them to a worker of the kernel; if it is full they are counted in the NIC's
    rx_dropped, together with group frames that the host itself has no protocol for. What did not
    arrive at the macvtap separates the two.
    """
    arrived = rise(before[HOP], after[HOP], macvtap, "rx_packets")
    missing = rise(before["nic"], after["nic"], nic, "rx_packets") - arrived
    accounts = []
    merged = min(missing, _reassembled(before, after))
    if merged > 0:
        accounts.append(
            Account(
                into=HOP,
                kind=Class.MERGED,
                name="rx_merged_macvlan_defrag",
                packets=merged,
                counter=f"Ip ReasmReqds - ReasmOKs (/proc/net/snmp where {nic} is)",
                evidence="macvlan puts fragments to broadcast and multicast addresses together",
            )
        )
    dropped = min(missing - max(0, merged), rise(before["nic"], after["nic"], nic, "rx_dropped"))
    if dropped > 0:
        accounts.append(
            Account(
                into=HOP,
                kind=Class.LOST,
                name="rx_dropped_macvlan_queue",
                place=MACVLAN,
                packets=dropped,
                counter=f"rx_dropped of {nic} (rtnl_link_stats64)",
                evidence=f"{nic} handed on {missing} packets that {macvtap} never counted; its "
                "rx_dropped counts such frames, and those to a group that no protocol takes",
                knob=MACVLAN.knob,
            )
        )
    hop = Hop(name=HOP, packets=arrived, counter=f"rx_packets of {macvtap} (rtnl_link_stats64)")
    return (hop,), tuple(accounts)


def _reassembled(before: PlaceReading, after: PlaceReading) -> int:
    def total(side: PlaceReading) -> int:
        snmp = side["nic"]["snmp"]
        return int(snmp["Ip.ReasmReqds"]) - int(snmp["Ip.ReasmOKs"])

    return total(after) - total(before)
