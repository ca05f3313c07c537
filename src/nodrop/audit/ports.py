"""Reads a port: its files in /sys, its interrupt lines, and what its driver says to ethtool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop.audit import kernel as asking
from nodrop.audit.kernel import Ask
from nodrop.audit.machine import HostFiles
from nodrop.audit.world import Feature, Line, Port, Spread
from nodrop.config.units import parse_cpus
from nodrop.testbed.labs.driver import GRSSH, HEAD

RECEIVES = re.compile(r"rx|input|comp|fp-", re.IGNORECASE)
"""Names of lines that a receive queue raises: eth1-rx-0, eth2-rxtx-0, TxRx, virtio2-input.0,
mlx5_comp0."""
PCIE = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")


def read_port(port: Port, folder: str | None, files: HostFiles, ask: Ask) -> Port:
    """`folder`: of the port in /sys; None if it cannot be seen from here."""
    return replace(_by_files(port, folder, files) if folder else port, **_by_driver(ask))


def _by_files(port: Port, folder: str, files: HostFiles) -> Port:
    here = files.root / folder
    statistics = {}
    for one in sorted((here / "statistics").glob("*")):
        with suppress(OSError, ValueError):
            statistics[one.name] = int(one.read_text())
    device = f"{folder}/device"
    # A virtio port's device is its virtioN, and what belongs to its slot is one level up.
    slot = next((one for one in (device, f"{device}/..") if _has(files, one, "numa_node")), device)
    queues = [one.name for one in (here / "queues").glob("rx-*")]
    speed = _number(files, f"{folder}/speed")
    return replace(
        port,
        mtu=_number(files, f"{folder}/mtu"),
        flags=_number(files, f"{folder}/flags", base=16),
        carrier={"0": False, "1": True}.get((files.text(f"{folder}/carrier") or "").strip()),
        statistics=statistics,
        queues=len(queues) or None,
        rps=dict(_rps(files, folder, queues)),
        lines=tuple(_lines(files, device)),
        node=_number(files, f"{slot}/numa_node"),
        speed_mbit=speed if speed is not None and speed > 0 else None,
        duplex=(files.text(f"{folder}/duplex") or "").strip() or None,
        pcie={
            name: said.strip()
            for name in PCIE
            if (said := files.text(f"{slot}/{name}")) is not None
        },
    )


def _has(files: HostFiles, folder: str, name: str) -> bool:
    return (files.root / folder / name).exists()


def _number(files: HostFiles, path: str, base: int = 10) -> int | None:
    with suppress(ValueError):
        return int((files.text(path) or "").strip(), base)
    return None


def _rps(files: HostFiles, folder: str, queues: list[str]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for queue in queues:
        mask = (files.text(f"{folder}/queues/{queue}/rps_cpus") or "").strip().replace(",", "")
        if mask and (bits := int(mask, 16)):
            number = int(queue.removeprefix("rx-"))
            yield number, tuple(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def line_numbers(root: Path, device: str) -> set[int]:
    """Interrupt lines of a port; those of a virtio port are one level up."""
    places = (root / place / "msi_irqs" for place in (device, f"{device}/.."))
    found = ({int(one.name) for one in place.glob("*")} for place in places)
    return next(filter(None, found), set())


def _lines(files: HostFiles, device: str) -> Iterator[Line]:
    numbers = line_numbers(files.root, device)
    rows = (files.text("proc/interrupts") or "").splitlines()[1:] if numbers else []
    cpus = len((files.text("proc/interrupts") or "").split("\n", 1)[0].split())
    for row in rows:
        words = row.split()
        number = words[0].rstrip(":") if words else ""
        if not number.isdecimal() or int(number) not in numbers or not RECEIVES.search(words[-1]):
            continue
        lists = (f"proc/irq/{number}/{name}_affinity_list" for name in ("smp", "effective"))
        with suppress(ValueError):
            allowed, effective = (parse_cpus((files.text(one) or "").strip()) for one in lists)
            yield Line(
                number=int(number),
                name=words[-1],
                allowed=allowed,
                effective=effective,
                fired=sum(int(word) for word in words[1 : 1 + cpus] if word.isdecimal()),
            )


def _by_driver(ask: Ask) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if named := asking.driver(ask):
        found |= {"driver": named[0] or None, "firmware": named[1].strip("N/A ") or None}
    if rings := asking.numbers(ask, asking.GRINGPARAM, 8):
        found["ring"] = (rings[4], rings[0]) if rings[0] else None
    if channels := asking.numbers(ask, asking.GCHANNELS, 8):
        found["queues"] = channels[4] + channels[7]
    if pauses := asking.numbers(ask, asking.GPAUSEPARAM, 3):
        found["pauses"] = (bool(pauses[1]), bool(pauses[2]))
    found["features"] = {
        name: Feature(on=on, fixed=fixed) for name, (on, fixed) in asking.features(ask).items()
    }
    found["driver_counters"] = asking.statistics(ask)
    found["spread"] = _spread(ask)
    if not found.get("queues"):
        found.pop("queues", None)
    return found


def _spread(ask: Ask) -> Spread | None:
    sizes = ask(HEAD.pack(GRSSH, 0, 0, 0, b""), 0)
    if sizes is None:
        return None
    _, _, entries, key_bytes, _ = HEAD.unpack(sizes)
    said = ask(HEAD.pack(GRSSH, 0, entries, key_bytes, b""), 4 * entries + key_bytes)
    if said is None:
        return None
    table = memoryview(said)[HEAD.size : HEAD.size + 4 * entries].cast("I")
    return Spread(
        queues=tuple(sorted(set(table))),
        key=said[HEAD.size + 4 * entries :],
        function=said[16],
        transformed=bool(said[17]),
    )
