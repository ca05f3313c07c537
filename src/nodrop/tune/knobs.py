"""Every knob that nodrop knows, in the order in which they are set."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

from nodrop.config.options import unknown_key
from nodrop.config.units import cpu_mask, format_cpus, parse_cpus
from nodrop.errors import BadInput
from nodrop.testbed.labs.port_settings import FLOWS, HEAD, HOST, Device, Piece, Raw
from nodrop.tune.suricata_yaml import OF_SURICATA, YamlKnob

Edit: TypeAlias = Callable[[Raw, str], Raw]
"""The raw value that stands there, and a value → the raw value to be written. ValueError in words
for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    id: str
    title: str
    at: str
    """Pattern of the names of its pieces (a regular expression; of the host a glob)."""
    of_host: bool = False
    show: Callable[[Raw], str]
    edit: Edit
    values: str
    """Values that it takes, in words."""
    why: str
    """The knob's effect for a sensor."""
    wrong_when: str = ""
    source: str
    flaps: bool = False
    """Setting it takes the link down and up on drivers of hardware."""
    command: str = ""
    """Command that sets it by hand, with {port} and {value}; without one, a file is written."""
    link: str = ""
    """Key of a systemd .link file that sets it at boot."""

    def pieces(self, device: Device, port: str) -> list[Piece]:
        if self.of_host:
            return list(device.host_pieces(self.at))
        return [piece for piece in device.pieces(port) if self.has(piece)]

    def has(self, piece: Piece) -> bool:
        if piece.port == HOST:
            return self.of_host and fnmatchcase(piece.name, self.at)
        return not self.of_host and re.fullmatch(self.at, piece.name) is not None

    def shown(self, raws: Iterable[Raw]) -> str:
        """Each value once, in order: several queues mostly have the same."""
        return ", ".join(dict.fromkeys(self.show(raw) for raw in raws))

    def by_hand(self, port: str, value: str) -> str:
        return self.command.format(port=port, value=value)


SURICATA_PAGE = "Suricata user guide, high performance configuration"
KERNEL = "kernel: Documentation/networking/scaling.rst"
SYSCTL = "kernel: Documentation/admin-guide/sysctl"
OFF = "none"
MOST = (1 << 31) - 1

# --- how values are shown and written -------------------------------------------------------------


def _as_it_is(raw: Raw) -> str:
    return raw


def _number(*, least: int = 0) -> Edit:
    def edit(_: Raw, value: str) -> Raw:
        if not re.fullmatch(r"\d{1,10}", value, re.ASCII) or not least <= int(value) <= MOST:
            raise ValueError(f"must be a number from {least} to {MOST}")
        return value

    return edit


def _one_of(*allowed: str) -> Edit:
    def edit(_: Raw, value: str) -> Raw:
        if value not in allowed:
            raise ValueError(f"must be {' or '.join(allowed)}")
        return value

    return edit


def _switch_shown(raw: Raw) -> str:
    return {"0": "off", "1": "on"}.get(raw, raw)


def _switched(number: int) -> str:
    return "on" if number else "off"


def _switch(_: Raw, value: str) -> Raw:
    return {"off": "0", "on": "1"}[_one_of("on", "off")("", value)]


def _cpus_shown(raw: Raw) -> str:
    bits = int(raw.replace(",", "") or "0", 16)
    return format_cpus(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1) or OFF


def _cpus(raw: Raw, value: str) -> Raw:
    """Mask of CPUs as wide as the kernel shows it, so that what is read back is the same text."""
    mask = cpu_mask(parse_cpus(value)) if value != OFF else "0"
    groups, given = raw.split(","), mask.split(",")
    if len(given) > len(groups):
        return mask  # the kernel has words for CPUs that are not there
    wide = ["0"] * (len(groups) - len(given)) + given
    return ",".join(one.zfill(len(old)) for one, old in zip(wide, groups, strict=True))


def _some_cpus(raw: Raw, value: str) -> Raw:
    if value == OFF:
        raise ValueError('must be a list of CPUs, such as "0-2,5"')
    return _cpus(raw, value)


def _word_at(raw: bytes | bytearray, place: int) -> int:
    """A u32 of a struct, `place` of them behind the command."""
    return int(struct.unpack_from("=I", raw, 4 + 4 * place)[0])


def _word(place: int, edit: Edit, *, most_at: int | None = None) -> Edit:
    """`most_at`: place of the driver's maximum in the same struct."""

    def edited(raw: Raw, value: str) -> Raw:
        saved = bytearray.fromhex(raw)
        number = int(edit("", value))
        if most_at is not None and number > (most := _word_at(saved, most_at)):
            raise ValueError(f"the driver takes at most {most}")
        struct.pack_into("=I", saved, 4 + 4 * place, number)
        return saved.hex()

    return edited


def _feature_shown(raw: Raw) -> str:
    return _switched(int(raw[1]))


def _feature(_: Raw, value: str) -> Raw:
    return 2 * _switch("", value)


def _key_shown(raw: Raw) -> str:
    key = _rss_parts(raw)[2]
    if not key:
        return OFF
    if len(key) > 2 and key[2:] == key[:-2]:
        return f"{key[:2].hex(':')} repeated"
    return key.hex(":")


def _key(raw: Raw, value: str) -> Raw:
    head, table, key = _rss_parts(raw)
    if not key:
        raise ValueError("the driver has no key that can be set")
    try:
        part = bytes.fromhex("6d5a" if value == "symmetric" else value.replace(":", ""))
    except ValueError:
        part = b""
    if len(part) not in (2, len(key)):
        raise ValueError(f"must be symmetric, or 2 or {len(key)} bytes in hex")
    return (head + table + part * (len(key) // len(part))).hex()


def _table_shown(raw: Raw) -> str:
    table = memoryview(_rss_parts(raw)[1]).cast("I")
    queues = sorted(set(table))
    even = len(table) > 0 and queues == list(range(len(queues)))
    even = even and all(queue == place % len(queues) for place, queue in enumerate(table))
    return f"equal {len(queues)}" if even else f"{len(table)} entries, queues {queues}"


def _table(raw: Raw, value: str) -> Raw:
    head, table, key = _rss_parts(raw)
    count = value.removeprefix("equal").strip()
    if not re.fullmatch(r"[1-9]\d{0,3}", count, re.ASCII) or not table:
        raise ValueError("must be a number of queues, on a port that has a table")
    places = range(len(table) // 4)
    return (head + struct.pack(f"={len(places)}I", *(n % int(count) for n in places)) + key).hex()


def _rss_parts(raw: Raw) -> tuple[bytes, bytes, bytes]:
    saved = bytes.fromhex(raw)
    entries = HEAD.unpack_from(saved)[2]
    end = HEAD.size + 4 * entries
    return saved[: HEAD.size], saved[HEAD.size : end], saved[end:]


FIELD_LETTERS = {"m": 0x2, "v": 0x4, "t": 0x8, "s": 0x10, "d": 0x20, "f": 0x40, "n": 0x80}
"""Letters of hashed fields, as ethtool names them: s and d addresses, f and n ports."""


def _fields_shown(raw: Raw) -> str:
    bits = struct.unpack_from("=Q", bytes.fromhex(raw), 8)[0]
    return "".join(letter for letter, bit in FIELD_LETTERS.items() if bits & bit) or OFF


def _fields(raw: Raw, value: str) -> Raw:
    if not value or set(value) - set(FIELD_LETTERS):
        raise ValueError(f"must be letters of {''.join(FIELD_LETTERS)}, such as sdfn")
    saved = bytearray.fromhex(raw)
    struct.pack_into("=Q", saved, 8, sum(FIELD_LETTERS[one] for one in set(value)))
    return saved.hex()


# --- the knobs ------------------------------------------------------------------------------------


def _of_struct(
    name: str,
    knob: str,
    title: str,
    place: int,
    *,
    most_at: int | None = None,
    switch: bool = False,
    **more: Any,
) -> Knob:
    shown: Callable[[int], str] = _switched if switch else str
    return Knob(
        id=knob,
        title=title,
        at=name,
        show=lambda raw: shown(_word_at(bytes.fromhex(raw), place)),
        edit=_word(place, _switch if switch else _number(), most_at=most_at),
        values="on, off" if switch else "a number",
        **more,
    )


def _offload(knob: str, title: str, *names: str, **more: Any) -> Knob:
    return Knob(
        id=knob,
        title=title,
        at=f"feature/({'|'.join(names)})",
        show=_feature_shown,
        edit=_feature,
        values="on, off",
        command=f"ethtool -K {{port}} {knob} {{value}}",
        **more,
    )


MERGES = (
    "on makes one packet of several: sizes, sequence numbers and frames above the MTU are not the "
    "wire's"
)
ITS_OWN = "Suricata switches it off when it starts, and back on when it ends"
SENDING = "does nothing to what is received"
QUEUES = r"queues/rx-\d+/"

PORT: tuple[Knob, ...] = (
    _of_struct(
        "channels", "channels", "combined queues", 7, most_at=3, flaps=True,
        command="ethtool -L {port} combined {value}", link="CombinedChannels",
        why="one queue with cluster_flow, or as many as workers with a symmetric hash",
        wrong_when="one queue: above what one core's softirq takes; several: without a symmetric "
        "hash. It resets the hash table, affinities and RPS", source=f"SEPTun; {SURICATA_PAGE}",
    ),
    _of_struct(
        "channels", "rx-channels", "receive queues of a port without combined ones", 4, most_at=0,
        flaps=True, command="ethtool -L {port} rx {value}", link="RxChannels",
        why="as channels: one with cluster_flow, or as many as workers", source="SEPTun",
    ),
    _of_struct(
        "channels", "tx-channels", "send queues of a port without combined ones", 5, most_at=1,
        flaps=True, command="ethtool -L {port} tx {value}", link="TxChannels",
        why="of a generator", source="kernel: scaling.rst",
    ),
    _of_struct(
        "rings", "rx-ring", "descriptors of a receive ring", 4, most_at=0, flaps=True,
        command="ethtool -G {port} rx {value}", link="RxBufferSize",
        why="more if the NIC's missed counter rises; fewer if the IRQ core misses its cache",
        wrong_when="in virtual machines, where a forced 4096 broke capture (Security Onion #1508)",
        source="SEPTun: 512 for DDIO; Suricata user guide: 1024",
    ),
    _of_struct(
        "rings", "tx-ring", "descriptors of a send ring", 7, most_at=3, flaps=True,
        command="ethtool -G {port} tx {value}", link="TxBufferSize",
        why="of a generator", source="as rx-ring",
    ),
    Knob(
        id="mtu", title="largest frame", at="mtu", show=_as_it_is, edit=_number(least=68),
        values="a number", flaps=True, command="ip link set {port} mtu {value}", link="MTUBytes",
        why="not below the largest frame on the link",
        wrong_when="jumbo to be safe: Suricata sizes its frames by it (six times the ring memory "
        "at 9000)", source=SURICATA_PAGE,
    ),
    Knob(
        id="tx-queue-len", title="length of the send queue", at="tx_queue_len", show=_as_it_is,
        edit=_number(), values="a number", command="ip link set {port} txqueuelen {value}",
        link="TransmitQueueLength",
        why="a macvtap's is the receive queue of its reader; of other ports it does nothing to "
        "reception", source="isolation study: 20,544 → 0 drops at 10,000",
    ),
    _offload("gro", "generic receive offload", "rx-gro", link="GenericReceiveOffload",
             why=f"{MERGES}; {ITS_OWN}", source="SEPTun; Suricata user guide"),
    _offload("lro", "large receive offload", "rx-lro", link="LargeReceiveOffload",
             why=f"{MERGES}; {ITS_OWN}", source="SEPTun; Suricata user guide"),
    _offload("rx-gro-hw", "GRO by the NIC", "rx-gro-hw", link="GenericReceiveOffloadHardware",
             why=f"{MERGES}; Suricata leaves it on (virtio: on by default)",
             source="seen on Suricata 7.0.10"),
    _offload("rx-gro-list", "GRO by lists", "rx-gro-list",
             why=f"{MERGES}; Suricata leaves it as it is", source="Security Onion"),
    _offload("rx-udp-gro-forwarding", "GRO of UDP", "rx-udp-gro-forwarding", why=MERGES,
             source="Security Onion"),
    _offload("gso", "generic segmentation offload", "tx-generic-segmentation",
             link="GenericSegmentationOffload", why=f"{SENDING}; {ITS_OWN}", source="SEPTun"),
    _offload("tso", "TCP segmentation offload", "tx-tcp-segmentation", "tx-tcp-ecn-segmentation",
             "tx-tcp6-segmentation", link="TCPSegmentationOffload",
             why=f"{SENDING}; {ITS_OWN}", source="SEPTun"),
    _offload("sg", "scatter-gather", "tx-scatter-gather", "tx-scatter-gather-fraglist",
             why=f"{SENDING}; {ITS_OWN}", source="SEPTun"),
    _offload("rx", "receive checksums", "rx-checksum", flaps=True,
             why="leave it on: Suricata trusts it (checksum-checks)",
             wrong_when="off takes LRO with it on vmxnet3",
             source="Suricata user guide: except the rx/tx csum; SEPTun switches it off"),
    _offload("tx", "send checksums", "tx-checksum-ip-generic", "tx-checksum-ipv4",
             "tx-checksum-ipv6", "tx-checksum-sctp", why=SENDING, source="SEPTun"),
    _offload("rxvlan", "removing of VLAN tags", "rx-vlan-hw-parse", flaps=True,
             link="ReceiveVLANCTAGHardwareAcceleration",
             why="the same before and after Suricata, whose exit can switch it off",
             source="Suricata 7.0.10, src/util-ioctl.c:508"),
    _offload("rxhash", "hash of received packets", "rx-hashing", flaps=True,
             link="ReceivePacketHashing" , why="on for several queues and for tpacket-v3",
             source="SEPTun: off; later guides: on"),
    _offload("ntuple", "flow rules", "rx-ntuple-filter", link="NTupleFilter",
             why="off unless the sensor sets rules itself: ATR steers by what the host sends",
             source="SEPTun; Suricata user guide: on"),
    Knob(
        id="rss-key", title="key of the queues' hash", at="rss", show=_key_shown, edit=_key,
        values="symmetric, or bytes in hex", command="ethtool -X {port} hkey {value}",
        why="6d:5a repeated sends both directions of a flow to one queue",
        wrong_when="one queue; a device that refuses it", source=SURICATA_PAGE,
    ),
    Knob(
        id="rss-table", title="queues of the hash table", at="rss", show=_table_shown, edit=_table,
        values="equal N", command="ethtool -X {port} equal {value}",
        why="even over the queues that workers read", source=SURICATA_PAGE,
    ),
    *(
        Knob(
            id=f"hash-{flow}", title=f"fields that are hashed of {flow}", at=flow,
            show=_fields_shown, edit=_fields, values="letters of mvtsdfn, such as sdfn",
            command=f"ethtool -N {{port}} rx-flow-hash {flow} {{value}}",
            why="sdfn spreads best; sd keeps a datagram's fragments with their flow",
            source=SURICATA_PAGE,
        )
        for flow in FLOWS if flow[:2] != "ip"
    ),
    _of_struct(
        "coalesce", "rx-usecs", "wait before an interrupt, in µs", 0,
        command="ethtool -C {port} rx-usecs {value}", link="RxCoalesceSec",
        why="guides disagree (SEPTun 100, then 20; Suricata 125): prove it",
        source="SEPTun; Suricata user guide",
    ),
    _of_struct(
        "coalesce", "adaptive-rx", "the NIC chooses that wait", 9, switch=True,
        command="ethtool -C {port} adaptive-rx {value}", link="UseAdaptiveRxCoalesce",
        why="guides disagree (SEPTun on, Suricata off): prove it",
        source="SEPTun; Suricata user guide",
    ),
    _of_struct(
        "pause", "pause-autoneg", "pause frames as negotiated", 0, switch=True, flaps=True,
        command="ethtool -A {port} autoneg {value}", link="AutoNegotiationFlowControl",
        why="off first: with it, the next two change nothing, silently", source="seen on e1000e",
    ),
    _of_struct(
        "pause", "pause-rx", "obeys pause frames", 1, switch=True, flaps=True,
        command="ethtool -A {port} rx {value}", link="RxFlowControl",
        why="pauses move losses into the switch, where nobody counts them",
        wrong_when="inline", source="SEPTun",
    ),
    _of_struct(
        "pause", "pause-tx", "sends pause frames", 2, switch=True, flaps=True,
        command="ethtool -A {port} tx {value}", link="TxFlowControl",
        why="as pause-rx", wrong_when="inline", source="SEPTun",
    ),
    Knob(
        id="threaded-napi", title="softirq in threads", at="threaded", show=_switch_shown,
        edit=_switch, values="on, off",
        why="softirq work can be pinned, and the scheduler sees it", source="kernel: napi.rst",
    ),
    Knob(
        id="gro-flush-timeout", title="wait of the softirq, in ns", at="gro_flush_timeout",
        show=_as_it_is, edit=_number(), values="a number; 20000 with napi-defer-hard-irqs 2",
        why="fewer interrupts under constant load",
        wrong_when="latency matters; with GRO on it merges more",
        source="kernel: commit 6f8b12d",
    ),
    Knob(
        id="napi-defer-hard-irqs", title="polls before the interrupt is back",
        at="napi_defer_hard_irqs", show=_as_it_is, edit=_number(), values="a number",
        why="as gro-flush-timeout", source="kernel: commit 6f8b12d",
    ),
    Knob(
        id="rps", title="CPUs that receive for the queue's CPU", at=QUEUES + "rps_cpus",
        show=_cpus_shown, edit=_cpus, values=f"a CPU list such as 2-3, or {OFF}",
        why="off, or exactly one other core if one queue is more than its core takes",
        wrong_when="several queues with affinities: it reorders, and adds a backlog to die in",
        source=f"SEPTun; {KERNEL}",
    ),
    Knob(
        id="rfs-flows", title="flows that RFS remembers in each queue", at=QUEUES + "rps_flow_cnt",
        show=_as_it_is, edit=_number(), values="a number", why="0: capture has no local socket",
        source=KERNEL,
    ),
    Knob(
        id="xps", title="CPUs that use a send queue", at=r"queues/tx-\d+/xps_cpus",
        show=_cpus_shown, edit=_cpus, values=f"a CPU list, or {OFF}",
        why=f"{SENDING}; of a generator", source=KERNEL,
    ),
    Knob(
        id="irq-cpus", title="CPUs of the port's interrupt lines", at=r"irq/\d+/smp_affinity",
        show=_cpus_shown, edit=_some_cpus, values="a CPU list",
        why="a core of the NIC's node that no worker uses; it shows at the next interrupt",
        wrong_when="irqbalance moves lines: stop it, or ban them",
        source=f"SEPTun; {SURICATA_PAGE}",
    ),
)  # fmt: skip


def _sysctl(knob: str, path: str, title: str, *, source: str = SYSCTL, why: str) -> Knob:
    key = path.removeprefix("proc/sys/").replace("/", ".")
    return Knob(
        id=knob,
        title=title,
        at=path,
        of_host=True,
        show=_as_it_is,
        edit=_number(),
        values="a number",
        command=f"sysctl -w {key}={{value}}",
        source=source,
        why=why,
    )


OF_HOST: tuple[Knob, ...] = (
    _sysctl("netdev-budget", "proc/sys/net/core/netdev_budget", "packets of one softirq",
            why="more if time_squeeze rises with losses; raise netdev-budget-usecs with it",
            source="SEPTun: 3000, later 300"),
    _sysctl("netdev-budget-usecs", "proc/sys/net/core/netdev_budget_usecs",
            "time of one softirq, in µs", why="as netdev-budget"),
    _sysctl("netdev-max-backlog", "proc/sys/net/core/netdev_max_backlog",
            "packets that wait for a CPU",
            why="matters with RPS, veth and tunnels, not on a NIC without RPS",
            source=f"{SYSCTL}; moby #44973"),
    _sysctl("dev-weight", "proc/sys/net/core/dev_weight", "packets of one poll of the backlog",
            why="leave it at 64"),
    _sysctl("rps-sock-flow-entries", "proc/sys/net/core/rps_sock_flow_entries",
            "flows that RFS remembers", why="0: capture has no local socket"),
    _sysctl("numa-balancing", "proc/sys/kernel/numa_balancing", "moving of memory between nodes",
            why="0: workers and rings are pinned already", source="tuned: network-latency"),
    _sysctl("timer-migration", "proc/sys/kernel/timer_migration", "moving of timers",
            why="0 keeps timers of others off the workers' CPUs",
            source="tuned: network-latency"),
    _sysctl("stat-interval", "proc/sys/vm/stat_interval", "seconds between sums of memory",
            why="10 wakes isolated CPUs less often", source="tuned: cpu-partitioning"),
    Knob(
        id="default-irq-cpus", title="CPUs of interrupt lines that come later",
        at="proc/irq/default_smp_affinity", of_host=True, show=_cpus_shown, edit=_some_cpus,
        values="a CPU list", why="housekeeping CPUs: isolcpus keeps no interrupt away",
        source="kernel: irq-affinity.rst",
    ),
    Knob(
        id="workqueue-cpus", title="CPUs of kernel work",
        at="sys/devices/virtual/workqueue/cpumask", of_host=True, show=_cpus_shown,
        edit=_some_cpus, values="a CPU list", why="housekeeping CPUs, not those of workers",
        source="SEPTun",
    ),
    Knob(
        id="governor", title="frequency governor of each CPU",
        at="sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", of_host=True, show=_as_it_is,
        edit=_one_of("performance", "powersave", "schedutil", "ondemand", "conservative"),
        values="performance, …", why="performance; a virtual machine has none", source="SEPTun",
    ),
    Knob(
        id="huge-pages", title="transparent huge pages",
        at="sys/kernel/mm/transparent_hugepage/enabled", of_host=True, show=_as_it_is,
        edit=_one_of("always", "madvise", "never"), values="always, madvise, never",
        why="never or madvise", source="tuned: network-latency",
    ),
)  # fmt: skip
KNOBS: tuple[Knob, ...] = (*PORT, *OF_HOST)
AnyKnob = TypeVar("AnyKnob", Knob, YamlKnob)


def find(name: str, knobs: Sequence[AnyKnob], *, value: str = "VALUE") -> AnyKnob:
    """BadInput with the nearest name, of Suricata's knobs too."""
    known: dict[str, AnyKnob] = {knob.id: knob for knob in knobs}
    if name in known:
        return known[name]
    of_suricata: list[str] = [knob.id for knob in OF_SURICATA]
    if name in of_suricata:
        raise BadInput(
            f"{name}: is a knob of Suricata's yaml: `nodrop tune plan --config FILE {name}={value}`"
            f" shows the change, `nodrop tune prove {name}={value} TRACE` what it does"
        )
    if name in (knob.id for knob in KNOBS):
        raise BadInput(f"{name}: is no knob of Suricata's yaml: leave --config FILE out")
    lists = "; `nodrop tune plan` lists them"
    near = unknown_key(name, [*known, *of_suricata], otherwise=lists)
    raise BadInput(f"{name}: no such knob{near}")
