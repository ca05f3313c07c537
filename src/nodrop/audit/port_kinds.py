"""Findings about ports and interrupts: from the cable to the softirq."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodrop.audit.host_role import HostRole
from nodrop.audit.world import FindingEvidence, JudgedSnapshot, Look, Read, matters
from nodrop.config.units import count_of
from nodrop.ledger.nic_counters import Beside, counter_of
from nodrop.sensor.rx_dropped import LOSE_IN_RX_DROPPED, RxDropped, parted_by_peer, refused_frames
from nodrop.sensor.snapshot import Missing, SnapshotPort, located

MERGE = {
    "rx-gro": ("gro", "Suricata switches it off when it starts"),
    "rx-lro": ("lro", "Suricata switches it off when it starts"),
    "rx-gro-hw": ("rx-gro-hw", "Suricata leaves it as it is"),
    "rx-gro-list": ("rx-gro-list", "Suricata leaves it as it is"),
}
"""Features of the kernel that make one packet of several → as `ethtool -K` takes it, and what
Suricata does with it."""
SLOWEST_MBIT = 100
STEPS = {"i40e": 1, "ixgbe": 2, "ice": 2}
"""Drivers whose counters move in steps of about so many seconds."""
BACKLOG_DRIVERS = ("veth", "tun", "ifb", "bridge", "macvlan", "vxlan")
"""Ports whose packets go through a CPU's backlog also without RPS."""
CARRIER_CHANGES_OF_A_NEW_VETH = 2
"""Loss of its carrier as it is made, and the gain when both ends are up."""
SENT_PAUSES = re.compile(r"tx_flow_control_xoff|tx_pause(_ctrl_phy)?|tx_xoff|port\.tx_xoff.*")
GOT_PAUSES = re.compile(r"rx_flow_control_xoff|rx_pause(_ctrl_phy)?|rx_xoff|port\.rx_xoff.*")


def _arrived(port: SnapshotPort) -> int:
    return port.statistics.get("rx_packets", 0)


def _statistic(port: SnapshotPort, name: str) -> Read:
    return Read(f"{name} {port.statistics.get(name, 0)}", port.files(f"statistics/{name}"))


def _merging(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    on = [name for name in MERGE if name in port.features and port.features[name]["on"]]
    if not on:
        return
    says = "; ".join(f"{MERGE[name][0]} is on: {MERGE[name][1]}" for name in on)
    switches = [MERGE[name][0] for name in on if not port.features[name]["fixed"]]
    change = f"{port.enter}ethtool -K {port} {' '.join(f'{name} off' for name in switches)}"
    yield FindingEvidence(
        says=says,
        read=tuple(Read(f"{name}: on", f"ethtool -k {port}") for name in on),
        change=change if switches else "the driver lets nobody change it",
    )


def _nic_lost(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    missed = port.statistics.get("rx_missed_errors", 0)
    known = _driver_lost(port)
    lost = max(missed, *known.values()) if known else missed
    if not matters(lost, _arrived(port)):
        return
    read = [_statistic(port, "rx_missed_errors")]
    read += [Read(f"{name} {value:,}", f"ethtool -S {port}") for name, value in known.items()]
    change = f"spread the queues of {port} over more CPUs"
    if port.ring and port.ring[0] < port.ring[1]:
        read.append(Read(f"ring {port.ring[0]} of {port.ring[1]}", f"ethtool -g {port}"))
        change = f"{port.enter}ethtool -G {port} rx {port.ring[1]}; else more queues or CPUs"
    yield FindingEvidence(
        says=f"at least {count_of(lost, 'packet')} died in the NIC since it came up: no "
        "capture program counts those",
        read=tuple(read),
        change=change,
    )


def _driver_lost(port: SnapshotPort) -> dict[str, int]:
    return {
        name: value
        for name, value in port.driver_counters.items()
        if value and (counter := counter_of(name)) and counter.beside is not Beside.WITNESS
    }


def _backlog(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    lost = {cpu: number for cpu, number in world.softnet_dropped.items() if number}
    through = [port for port in world.ports if port.rps or port.driver in BACKLOG_DRIVERS]
    if lost and through:
        cpus = ", ".join(f"CPU {cpu}: {number:,}" for cpu, number in lost.items())
        yield FindingEvidence(
            where=", ".join(port.where for port in through),
            says=f"{count_of(sum(lost.values()), 'packet')} of some port died since boot in the "
            "backlog that its packets go through",
            read=(Read(cpus, "/proc/net/softnet_stat, second column"),),
            change="sysctl -w net.core.netdev_max_backlog=10000; or no RPS on the port",
        )


def _too_long(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    lost = port.statistics.get("rx_length_errors", 0)
    if matters(lost, _arrived(port)):
        yield FindingEvidence(
            says=f"{count_of(lost, 'frame')} thrown away for the length: the port takes what "
            f"its MTU of {port.mtu} allows",
            read=(
                _statistic(port, "rx_length_errors"),
                Read(f"mtu {port.mtu}", port.files("mtu")),
            ),
            change=f"{port.enter}ip link set {port} mtu 9000 (as long as the link's longest), "
            "then restart Suricata",
        )


def _damaged(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    for name in ("rx_crc_errors", "rx_frame_errors"):
        lost = port.statistics.get(name, 0)
        if matters(lost, _arrived(port)):
            yield FindingEvidence(
                says=f"{count_of(lost, 'frame')} came damaged and were thrown away",
                read=(_statistic(port, name),),
                change="change the cable, the transceiver or the TAP",
            )


def _slow(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    half = port.duplex == "half"
    if port.node is not None and (half or (port.speed_mbit or SLOWEST_MBIT + 1) <= SLOWEST_MBIT):
        duplex = f", {port.duplex} duplex" if port.duplex else ""
        yield FindingEvidence(
            says=f"its link runs at {port.speed_mbit} Mbit/s{duplex}",
            read=(
                Read(f"{port.speed_mbit} Mbit/s", port.files("speed")),
                Read(str(port.duplex), port.files("duplex")),
            ),
            change=f"{port.enter}ethtool -s {port} autoneg on; tuned: dynamic_tuning = 0",
        )


def _narrow(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    for what in ("width", "speed") if not world.hypervisor else ():
        now, most = (port.pcie.get(f"{when}_link_{what}") for when in ("current", "max"))
        values = [re.match(r"[\d.]+", one or "") for one in (now, most)]
        if all(values) and float(values[0][0]) < float(values[1][0]):  # type: ignore[index]
            yield FindingEvidence(
                says=f"its slot gives a link {what} of {now}, and the NIC has {most}",
                read=tuple(
                    Read(
                        str(port.pcie[f"{when}_link_{what}"]),
                        f"{port.files('device')}/{when}_link_{what}",
                    )
                    for when in ("current", "max")
                ),
                change="put it into another slot, or look in the firmware",
            )


def _pauses(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    sensor = world.role is HostRole.SENSOR
    names, says = (
        (SENT_PAUSES, "it told its switch to wait {}: losses happen there, where nobody counts")
        if sensor
        else (GOT_PAUSES, "its switch told it to wait {}: it sends later than it is asked to")
    )
    found = {n: v for n, v in port.driver_counters.items() if v and names.fullmatch(n)}
    if found:
        yield FindingEvidence(
            says=says.format(count_of(max(found.values()), "time")),
            read=tuple(Read(f"{n} {v}", f"ethtool -S {port}") for n, v in found.items()),
            change=f"{port.enter}ethtool -A {port} autoneg off rx off tx off",
        )


def _only_its_own(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    watched = any(capture.program.watches for capture in world.captures() if capture.port is port)
    if watched and port.promiscuous is False:
        yield FindingEvidence(
            says="it is not promiscuous: frames to other addresses do not reach the sensor",
            read=(Read("promiscuity 0", port.state_at),),
            change=f"{port.enter}ip link set {port} promisc on; suricata.yaml: no disable-promisc",
        )


def _refused(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    if lost := port.statistics.get("tx_dropped", 0):
        yield FindingEvidence(
            says=f"{count_of(lost, 'packet')} that a program sent did not leave",
            read=(_statistic(port, "tx_dropped"),),
            change=f"{port.enter}ip link set {port} txqueuelen 10000, or a lower load",
        )


def rx_dropped(world: JudgedSnapshot, port: SnapshotPort) -> RxDropped:
    """Since the port is there. Those that no protocol wanted are in rx_packets as well."""
    number = port.statistics.get("rx_dropped", 0)
    backlog = sum(world.softnet_dropped.values())
    lost = refused_frames(
        number,
        came=_arrived(port),
        backlog=backlog,
        cpus=len(world.softnet_dropped),
    )
    if port.peer is not None:
        sent = port.peer["tx_dropped"]
        return parted_by_peer(number, lost=lost, peer=sent, flapped=_flapped(port))
    through_backlog = port.driver in BACKLOG_DRIVERS or (port.rps and backlog)
    if through_backlog or port.driver in (None, *LOSE_IN_RX_DROPPED):
        return RxDropped(lost=lost, unknown=number - lost, no_loss=0)
    if port.statistics.get("rx_missed_errors") or _driver_lost(port):
        return RxDropped(lost=0, unknown=number, no_loss=0)
    return RxDropped(lost=lost, unknown=0, no_loss=number - lost)


def _flapped(port: SnapshotPort) -> bool:
    """Whether the link of a veth was down after it came up for the first time."""
    return port.statistics.get("carrier_changes", 0) > CARRIER_CHANGES_OF_A_NEW_VETH


def _refused_frames(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    parted, peer = rx_dropped(world, port), port.peer
    too_long = bool(peer and port.mtu and peer["mtu"] > port.mtu)
    most = parted.lost + parted.unknown if too_long else parted.lost
    if not matters(most, _arrived(port)):
        return
    read = [_statistic(port, name) for name in ("rx_dropped", "rx_packets")]
    read.append(Read(f"mtu {port.mtu}", port.files("mtu")))
    why = "frames longer than its MTU, a full backlog, or it was down"
    change = f"{port.enter}ip link set {port} mtu 9000 (as long as the sender's)"
    if peer is not None:
        where, mtu = located(peer["name"], peer["pid"]), peer["mtu"]
        read.append(Read(f"tx_dropped {peer['tx_dropped']}, mtu {mtu}", f"its peer {where}"))
        if too_long:
            why = f"its MTU is {port.mtu}, and its peer {where} sends up to {mtu}"
            change = f"{port.enter}ip link set {port} mtu {mtu}"
    number = f"{'at most ' if most > parted.lost else ''}{count_of(most, 'packet')}"
    yield FindingEvidence(
        says=f"it refused {number} that no capture program had: {why}",
        read=tuple(read),
        change=f"{change}; then restart what captures there",
    )


def not_parted(world: JudgedSnapshot) -> Iterator[Missing]:
    """Packets in rx_dropped that may be lost or not: no counter parts them."""
    for port in world.captured() if world.role is HostRole.SENSOR else ():
        if unknown := rx_dropped(world, port).unknown:
            needs = "a counter that parts those it refused from those that no protocol wanted"
            if port.peer is not None:
                needs += ": its peer counts those too that were sent while the link was down"
            elif port.driver == "veth":
                needs = "tx_dropped of its peer, whose namespace no process is in that may be read"
            packets = count_of(unknown, "packet")
            what = f"how many of {packets} in rx_dropped of {port.where} were lost"
            yield Missing(what, needs)


def _not_for_us(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    if number := rx_dropped(world, port).no_loss:
        yield FindingEvidence(
            says=f"rx_dropped {number:,} is no loss of the sensor: it had these packets "
            "before the stack found nobody else for them",
            read=(_statistic(port, "rx_dropped"),),
            change="nothing to change; do not alarm on it",
        )


def _driver(_: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    if port.driver in LOSE_IN_RX_DROPPED:
        says = f"{port.driver} counts what it lost in rx_dropped: libpcap shows none of it"
    elif port.driver in STEPS:
        says = (
            f"{port.driver} renews its counters every {STEPS[port.driver]} s or so: a rate "
            "over less is wrong"
        )
    else:
        return
    yield FindingEvidence(
        says=says,
        read=(Read(f"driver {port.driver}", f"ethtool -i {port}"),),
        change="nothing to change; read it so",
    )


LOOKS: Mapping[str, Look] = {
    "merged-frames": _merging,
    "nic-drops": _nic_lost,
    "frames-refused": _refused_frames,
    "frame-length": _too_long,
    "cable-errors": _damaged,
    "link-slow": _slow,
    "link-narrow": _narrow,
    "not-promiscuous": _only_its_own,
    "tx-drops": _refused,
    "pause-frames": _pauses,
    "softnet-drops": _backlog,
    "rx-dropped": _not_for_us,
    "driver-counters": _driver,
}
