"""Suricata's capture by DPDK: its yaml, and what must be there before it starts.

DPDK's driver af-packet (drivers/net/af_packet, 22.11) maps a ring of TPACKET_V2 and is polled. It
opens one socket, which joins a fan-out group of its own with PACKET_FANOUT_FLAG_DEFRAG, so the
kernel puts IPv4 fragments together before the ring. It never reads the socket's counters: of what
the ring had no room for, ethdev's `imissed` says 0, and so does Suricata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from nodrop.config.units import parse_cpus
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.suts.suricata.own_yaml import Yaml
from nodrop.testbed.suts.suricata.sut_options import SuricataOptions

DEVICE = "net_af_packet0"
"""Driver and number: the name by which Suricata knows the port."""
VFIO = Path("/dev/vfio")
"""Files of the groups of devices that are bound to vfio-pci."""
SETUP = "bare-vfio"
"""Setup in which it drives a NIC of its own."""
VARIANT = "dpdk"
"""Name in the image's recipe."""
NEEDS = ("NET_ADMIN", "IPC_LOCK")
"""The driver sets the port's MTU and its promiscuous mode, and locks the memory of its ring."""
DRIVERS = ("net_af_packet", "mempool_ring")
"""Plugins that it loads by name: the driver, and the rings that its packets' memory is kept in."""
PLUGINS = "usr/lib/*/dpdk/pmds-*"
"""Plugin folder of Debian's and Ubuntu's DPDK, in a root filesystem."""
RING_FRAMES = 2048
MTU = 1500
"""The most that the driver takes, as it says of itself (max_rx_pktlen)."""
BLOCK_BYTES = 4096
FRAME_BYTES = 2048
"""A larger slot does not fit into a packet's memory for that MTU, and the driver refuses it."""
BEFORE_FRAME_BYTES = 66
"""Ahead of a frame in its slot: header and address of TPACKET_V2; the driver reserves nothing."""
MEMORY_MIB = 512
"""Memory for 8,191 packets of up to 2,048 bytes with their heads, and for EAL."""
OWN = (
    "checksum-checks",
    "checksum-checks-offload",
    "mempool-cache-size",
    "mempool-size",
    "rx-descriptors",
    "tx-descriptors",
)
"""Keys of a user's first entry of `dpdk.interfaces` that hold for another port, too."""


def section(options: SuricataOptions, base: Yaml, interface: str) -> Yaml:
    """The table `dpdk:` of the yaml. In memory of its own, without hugepages and files below /run:
    several at once do not meet. Which port a user's own names, and where its memory is, is that of
    a sensor at work."""
    entry: Yaml = {
        "interface": device(interface),
        "threads": 1,
        "promisc": True,
        # The driver refuses it, and Suricata calls that an error.
        "multicast": False,
        "checksum-checks": True,
        "checksum-checks-offload": False,
        "mtu": MTU,
        "mempool-size": 8191,
        "mempool-cache-size": 250,
        "rx-descriptors": 1024,
        # None are needed by a sensor that listens, and Suricata refuses 0.
        "tx-descriptors": 1024,
        "copy-mode": "none",
        "copy-iface": "none",
    }
    if options.config is not None:
        entry |= {key: value for key, value in _first(base).items() if key in OWN}
    return {
        "eal-params": {
            "proc-type": "primary",
            "no-huge": None,
            "no-shconf": None,
            "no-telemetry": None,
            "m": MEMORY_MIB,
            **_port(options, interface),
        },
        "interfaces": [entry],
    }


def _port(options: SuricataOptions, interface: str) -> Yaml:
    """A PCI device that no driver of the kernel has, or a port of the kernel."""
    if is_pci(interface):
        return {"a": interface, "iova-mode": "va"}
    frames = RING_FRAMES if options.ring_size is None else options.ring_size
    frames += frames % (BLOCK_BYTES // FRAME_BYTES)
    vdev = f"{DEVICE},iface={interface},blocksz={BLOCK_BYTES},framesz={FRAME_BYTES}"
    return {"no-pci": None, "vdev": [f"{vdev},framecnt={frames}"]}


def is_pci(interface: str) -> bool:
    """No port of the kernel has a colon in its name."""
    return ":" in interface


def device(interface: str) -> str:
    """Name by which Suricata knows the port."""
    return interface if is_pci(interface) else DEVICE


def affinity(options: SuricataOptions, cpus: AbstractSet[int]) -> Yaml:
    """Suricata gives a DPDK worker a CPU of its own, or does not start. The threads beside it get
    the other CPUs, if there are others."""
    may = sorted(parse_cpus(options.pinned_to) if options.pinned_to else cpus)
    if not may:
        may = sorted(os.sched_getaffinity(0))
    worker = sorted(parse_cpus(options.worker_cpus)) if options.worker_cpus else may[-1:]
    others = sorted(parse_cpus(options.management_cpus)) if options.management_cpus else []
    others = others or [cpu for cpu in may if cpu not in worker] or worker
    sets = {
        "management-cpu-set": {"cpu": others},
        "worker-cpu-set": {"cpu": worker, "mode": "exclusive"},
    }
    return {
        "set-cpu-affinity": True,
        "cpu-affinity": [{name: said} for name, said in sets.items()],
    }


def _first(base: Yaml) -> Mapping[str, Any]:
    table = base.get("dpdk")
    entries = table.get("interfaces") if isinstance(table, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


# Before it starts.


def lacking_drivers(bits: Bits, root: Path = Path("/")) -> Sequence[str]:
    """Drivers that are not in its plugin folder. Of a program of the host without such a folder
    nothing is known: they may be built into it."""
    folders = [*(bits.path if bits.kind == "image" else root).glob(PLUGINS)]
    if not folders and bits.kind == "binary":
        return ()
    return [
        driver
        for driver in DRIVERS
        if not any([*folder.glob(f"librte_{driver}.so*")] for folder in folders)
    ]


def lacking_libraries(bits: Bits, root: Path = Path("/")) -> Mapping[str, str]:
    """Libraries of DPDK that are not there → a plugin that needs it. EAL loads every plugin of the
    folder, and ends at the first that it cannot load."""
    root = bits.path if bits.kind == "image" else root
    plugins = sorted(root.glob(f"{PLUGINS}/librte_*.so*"))
    there = {path.name for path in (*plugins, *root.glob("usr/lib/*/librte_*.so.*"))}
    return {
        name.decode(): plugin.name
        for plugin in plugins
        for name in _LIBRARY.findall(plugin.read_bytes())
        if name.decode() not in there
    }


_LIBRARY = re.compile(rb"librte_[a-z0-9_]+\.so\.\d+(?=\0)")
"""Names in the table of strings of a library: its own, and those that it needs (DT_NEEDED)."""


def problems(document: Yaml, bits: Bits | None) -> Iterator[str]:
    """Reasons why the yaml, with the user's overrides in it, cannot start here; in words."""
    by = 'sut.capture = "dpdk"'
    if bits is not None:
        yield from _lacking(bits, by)
    yield from _of_eal(document, by)
    table = document.get("dpdk")
    entries = table.get("interfaces") if isinstance(table, dict) else None
    if not isinstance(entries, list) or len(entries) != 1:
        yield f"{by}: sut.overrides.dpdk.interfaces: must stay a list of one table"
        return
    entry = entries[0] if isinstance(entries[0], dict) else {}
    for key in ("rx-descriptors", "tx-descriptors"):
        value = str(entry.get(key))
        if value != "auto" and (not value.isdecimal() or int(value) == 0):
            yield f"{by}: {key} = {value[:20]}: Suricata takes a positive number of descriptors"
    mtu = entry.get("mtu")
    if not isinstance(mtu, int) or mtu > MTU:
        yield f"{by}: mtu = {str(mtu)[:20]}: DPDK's driver af-packet takes {MTU} at most"
    if str(entry.get("threads")) != "1":
        yield f"{by}: dpdk.interfaces.0.threads must be 1: the driver has one queue here"


def _lacking(bits: Bits, by: str) -> Iterator[str]:
    image = "run `nodrop image build suricata --with dpdk`"
    if lacking := lacking_drivers(bits):
        names = ", ".join(f"librte_{driver}.so" for driver in lacking)
        mend = (
            image
            if bits.kind == "image"
            else "apt-get install librte-net-af-packet23 librte-mempool-ring23 (the number is that "
            "of librte-eal)"
        )
        yield f"{by}: {bits.path} has no plugin {names} of DPDK: {mend}"
    for library, plugin in list(lacking_libraries(bits).items())[:1]:
        mend = image if bits.kind == "image" else f"install it, or take {plugin} away"
        yield f"{by}: {bits.path} has no {library}, without which DPDK ends at {plugin}: {mend}"


def _of_eal(document: Yaml, by: str) -> Iterator[str]:
    """Keys of `eal-params` that would need hugepages or meet another primary: theirs stay. A value
    beside them goes to EAL, which takes none."""
    table = document.get("dpdk")
    given = table.get("eal-params") if isinstance(table, dict) else None
    if not isinstance(given, dict):
        yield f"{by}: sut.overrides.dpdk.eal-params: must stay a table"
        return
    for key, why in _STAY.items():
        if key not in given or given[key] not in (None, ""):
            yield f"{by}: sut.overrides.dpdk.eal-params.{key}: leave it out: {why}"
    if given.get("proc-type") not in ("primary", "auto"):
        yield (
            f"{by}: proc-type = {str(given.get('proc-type'))[:20]}: Suricata is its own primary: "
            "leave it out"
        )


_STAY = {
    "no-huge": "nodrop reserves no hugepages, and takes none of a sensor at work",
    "no-shconf": "two primaries would meet in /run/dpdk",
}
