"""Snapshot of a host for an audit: which of its ports are judged, with which configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from nodrop.audit.host_role import HostRole
from nodrop.audit.world import JudgedSnapshot, Settings
from nodrop.errors import BadInput, BadKey
from nodrop.protocol import SensorPeer, YamlText
from nodrop.sensor.snapshot import (
    OURS,
    CapturingProgram,
    Missing,
    ShownSetting,
    Snapshot,
    SnapshotPort,
)
from nodrop.testbed.hosts.api import Host
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.suts.suricata.own_yaml import of_option, read_texts

LOOPBACK = "lo"
SECTIONS = ("af-packet", "af-xdp", "netmap", "pcap", "pfring", "dpdk")
"""Sections of a suricata.yaml that name ports."""


DRIVEN = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:|net_")
"""Beginnings of names that DPDK gives: a PCI address, a driver with a number."""


def look(host: Host, *, ports: Sequence[str] = (), files: Sequence[str] = ()) -> Snapshot:
    seen: Any = host.probe("sensor", ports=ports, files=files)
    return Snapshot.of(seen["sensor"])


def here() -> closing[LocalHost]:
    return closing(LocalHost(name="here", node=find_node_binary(), label="audit"))


def judged(
    seen: Snapshot,
    *,
    role: HostRole = HostRole.SENSOR,
    config: Path | None = None,
    ports: Sequence[str] = (),
) -> JudgedSnapshot:
    """Judged part of a look at these `ports`, none: at all. BadInput if `config` is no
    suricata.yaml, or a port is not there."""
    for port in ports:
        if port not in seen.names:
            there = ", ".join(sorted(seen.names))
            elsewhere = (
                f"{one.where} is judged by {one.enter}nodrop audit --port {port}"
                for one in seen.ports
                if one.name == port
            )
            raise BadInput(
                f"--port: {port}: no such port here; there are: {there}",
                hint=next(elsewhere, None),
            )
    given = None if config is None else _given(config, seen.files[str(config.absolute())])
    settings = dict(_settings(seen.programs))
    programs = [
        program for program in seen.programs if not ports or _at(program, seen, ports, settings)
    ]
    kept = [_of_ports(program, ports) for program in programs]
    wanted = _wanted(seen, role, ports, given)
    chosen = tuple(one for one in seen.ports if (one.space, one.index) in wanted)
    lacks = (*(one.missing for one in kept), *(one.missing for one in chosen))
    unjudged = _not_judged(given, seen) if given and not ports else ()
    missing = (*seen.missing, *chain.from_iterable(lacks), *unjudged)
    made = {field.name: getattr(seen, field.name) for field in fields(seen)} | {
        "programs": tuple(kept),
        "ports": chosen,
        "values": (*seen.values, *_port_values(chosen)),
        "missing": tuple(dict.fromkeys(missing)),
        "settings": {one.pid: settings[one.pid] for one in kept if one.pid in settings},
    }
    return JudgedSnapshot(role=role, given=given, **made)


def peer_of(host: Host, pid: int, index: int, name: str) -> SensorPeer | None:
    """Other end of a veth on which a process captures. None: not a veth's, or it is not known which
    port that is."""
    seen = look(host)
    for port in seen.ports:
        holders = {socket.pid for socket in seen.listening(port)}
        if (port.index, port.name) == (index, name) and pid in holders and port.peer:
            return port.peer
    return None


def _given(config: Path, text: YamlText) -> Settings:
    try:
        return Settings(path=str(config), document=read_texts(text))
    except BadKey as error:
        raise of_option(error) from None


def _settings(programs: Sequence[CapturingProgram]) -> Iterator[tuple[int, Settings]]:
    for program in programs:
        with suppress(BadInput):
            if program.yaml:
                document = read_texts(program.yaml["text"])
                made = Settings(
                    path=program.yaml["path"], document=document, newer=program.yaml["newer"]
                )
                yield program.pid, made


def _at(
    program: CapturingProgram, seen: Snapshot, ports: Sequence[str], settings: dict[int, Settings]
) -> bool:
    """Whether a program captures at one of the ports, or is a Suricata that its file names. A file
    that cannot be read may name any."""
    if any(socket.pid == program.pid for socket in seen.sockets):
        return True
    if program.space != OURS:
        return False
    if program.pid not in settings:
        return True
    known = settings[program.pid]
    entries = (entry for section in SECTIONS for entry in known.entries(section))
    return any(entry.get("interface") in ports for entry in entries)


def _of_ports(program: CapturingProgram, ports: Sequence[str]) -> CapturingProgram:
    if not ports or program.answers is None:
        return program
    mine = {name: interface for name, interface in program.interfaces.items() if name in ports}
    return replace(program, answers={**program.answers, "ports": mine})


def _wanted(
    seen: Snapshot, role: HostRole, asked: Sequence[str], given: Settings | None
) -> set[tuple[int, int]]:
    """Space and index of ports that are judged: those that are asked for, else those that somebody
    captures on or that --config names; of a generator, each physical port that is up."""
    ours = [port for port in seen.ports if port.space == OURS]
    if asked:
        return {(OURS, one.index) for one in ours if one.name in asked}
    if role is HostRole.GENERATOR:
        up = [one for one in ours if one.physical and one.up]
        return {(OURS, one.index) for one in up}
    found = {
        (socket.space, socket.index)
        for socket in seen.sockets
        if socket.captures and socket.port != LOOPBACK
    }
    every = {space for space, index in found if index == 0}
    found |= {(port.space, port.index) for port in seen.ports if port.space in every and port.up}
    names = _named(given)[1] if given else ()
    return found | {(OURS, one.index) for one in ours if one.name in names}


def _named(given: Settings) -> tuple[str, Sequence[str]]:
    """Section by which Suricata is to capture, and its ports: the first that names any."""
    for section in SECTIONS:
        ports = [str(entry.get("interface", "default")) for entry in given.entries(section)]
        if real := [name for name in dict.fromkeys(ports) if name != "default"]:
            return section, real
    return "", ()


def _not_judged(given: Settings, seen: Snapshot) -> Iterator[Missing]:
    """Parts of --config of which nothing was judged."""
    section, names = _named(given)
    if not names:
        yield Missing(
            f"a port that {given.path} names", f"an interface in its {SECTIONS[0]} section"
        )
    elif section != SECTIONS[0]:
        yield Missing(
            f"capture settings of {given.path}: it has a section {section}, and none of "
            f"{SECTIONS[0]}",
            f"a section {SECTIONS[0]}: of others the ports alone are judged",
        )
    own = [name for name in names if DRIVEN.match(name)]
    if own:
        yield Missing(
            f"{', '.join(own)}, which {given.path} names: DPDK drives it, so no port of the kernel "
            "has its packets",
            f"its own counters: suricatasc -c 'iface-stat {own[0]}'",
        )
    lacking = [name for name in names if name not in (*seen.names, *own)]
    if lacking:
        there = ", ".join(sorted(seen.names))
        yield Missing(
            f"{', '.join(lacking)}, which {given.path} names",
            f"the host whose ports these are; here there are: {there}",
        )


def _port_values(ports: Sequence[SnapshotPort]) -> Iterator[ShownSetting]:
    for port in ports:
        if port.driver:
            firmware = f", firmware {port.firmware}" if port.firmware else ""
            yield ShownSetting(f"{port} driver", f"{port.driver}{firmware}", f"ethtool -i {port}")
        if port.ring:
            yield ShownSetting(
                f"{port} ring", f"{port.ring[0]} of {port.ring[1]}", f"ethtool -g {port}"
            )
        if port.queues:
            yield ShownSetting(f"{port} receive queues", str(port.queues), port.files("queues"))
        if port.promiscuous:
            yield ShownSetting(f"{port} promiscuous", "yes", port.state_at)
