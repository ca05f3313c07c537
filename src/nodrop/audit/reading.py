"""Reads the host for an audit: files of /proc and /sys, and the kernel's answers.

Nothing is written, no module is loaded. `root` is a recorded tree in tests.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nodrop.audit import kernel as asking
from nodrop.audit import machine
from nodrop.audit.kernel import Kernel, Live
from nodrop.audit.machine import CAP_NET_ADMIN, ENTER, TRACE, HostFiles
from nodrop.audit.ports import read_port
from nodrop.audit.running_suricata import asked_for_counters, names_a_port, settings_of
from nodrop.audit.symmetry import Meeting, mask_for, watch
from nodrop.audit.world import (
    OURS,
    UP,
    Peer,
    Port,
    Program,
    Role,
    Settings,
    Socket,
    Thread,
    Value,
    World,
)
from nodrop.config.units import parse_cpus
from nodrop.errors import BadInput, NodropError
from nodrop.testbed.hosts.control_groups import groups_of, own_quotas, sees_groups
from nodrop.testbed.suts.suricata.own_yaml import read_own

CAPTURERS = ("suricata", "snort", "zeek", "bro", "tcpdump", "dumpcap", "arkime", "ntopng")
"""How names of capture programs begin: a normal user looks for packet sockets in their namespaces,
and cannot see whose the others are."""
MOST_SOCKETS = 4096
LOOPBACK = "lo"
RATE_S = 0.3
"""So long the rate of a port is looked at, before a part of its flows is chosen."""
BY_CPU, BY_QUEUE = 2, 5
"""PACKET_FANOUT_CPU and _QM: what cluster_cpu and cluster_qm deal by."""
RX_PACKETS, TX_DROPPED = 1, 11
"""Columns of /proc/net/dev."""


def read_world(
    *,
    role: Role = Role.SENSOR,
    config: Path | None = None,
    ports: Sequence[str] = (),
    root: Path = Path("/"),
    kernel: Kernel | None = None,
    watch_s: float | None = None,
) -> World:
    """BadInput if `config` is no suricata.yaml, or a port is not there. `watch_s`: so long real
    flows are watched beside the capture programs."""
    given = None if config is None else Settings(path=str(config), document=_given(config))
    reader = _Reader(root, kernel or Live())
    found = reader.world(role, given, ports)
    return found if watch_s is None else reader.watched(found, watch_s)


def peer_mtu(
    pid: int, index: int, name: str, *, root: Path = Path("/"), kernel: Kernel | None = None
) -> int | None:
    """MTU of the other end of a veth, which is in the namespace of a process. None: not a veth's,
    or it is not known which port that is."""
    reader = _Reader(root, kernel := kernel or Live())
    reader.find_spaces()
    try:
        said = asking.statistics(partial(kernel.ethtool, pid, name))
    except OSError:
        return None
    peer = reader.peer(Port(name=name, pid=pid, index=index, driver_counters=said))
    return None if peer is None else peer.mtu


def _given(config: Path) -> Mapping[str, Any]:
    try:
        return read_own(config)
    except BadInput as error:
        words = error.message.removeprefix("sut.config: ")
        raise BadInput(f"--config: {words}", hint=error.hint) from None


def _groups(world: World, port: Port) -> set[tuple[int, int]]:
    """Kind and members of the groups that show how this port's packets are dealt: its queues, and
    what its capture programs deal by."""
    found = {(BY_QUEUE, port.queues)} if (port.queues or 1) > 1 else set()
    for where, _program, held in world.captures():
        kinds = {one.fanout_type for one in held} & {BY_CPU, BY_QUEUE}
        if where is port and len(held) > 1:
            found |= {(kind, len(held)) for kind in kinds if kind is not None}
    return {(kind, members) for kind, members in found if members}


def _flow_values(port: Port) -> Iterator[Value]:
    for one in port.dealt:
        yield Value(
            f"flows at {port.where} whose directions meet, dealt by "
            f"{'queue' if one.kind == BY_QUEUE else 'CPU'} to {one.members}",
            f"{one.together} of {one.both_ways} ({one.words or 'none was seen in both directions'}"
            f"); {one.seen} flows seen",
            "a fanout group of nodrop's, for as long as --watch",
        )


def _unsplit(port: Port) -> Value:
    return Value(
        f"flows at {port.where}",
        f"not watched: {'one queue, and ' if port.queues == 1 else ''}no program there deals "
        "packets by queue or by CPU, so nothing splits a flow",
        "--watch",
    )


class _Reader(HostFiles):
    def __init__(self, root: Path, kernel: Kernel) -> None:
        super().__init__(root)
        self.kernel = kernel
        self.spaces: dict[str, int | None] = {}
        """Every network namespace that may be read: a process that is in it; None: our own."""

    def find_spaces(self) -> None:
        self._spaces(self._names())

    def world(self, role: Role, given: Settings | None, asked: Sequence[str]) -> World:
        names = self._names()
        here = self._interfaces(None)
        for port in asked:
            if port not in here.values():
                there = ", ".join(sorted(here.values()))
                raise BadInput(f"--port: {port}: no such port here; there are: {there}")
        spaces = self._spaces(names)
        if asked:  # other namespaces hold peers alone
            spaces, self.missing = {OURS: None}, {}
        sockets, ports_of = self._sockets(spaces), {OURS: here}
        for number, pid in spaces.items():
            if number != OURS:
                ports_of[number] = self._interfaces(pid)
        holders = self._holders({one.inode for one in sockets}, names)
        sockets = [
            replace(
                one,
                port=ports_of[one.space].get(one.index),
                pid=holders.get(one.inode),
                program=names.get(holders.get(one.inode, 0)),
            )
            for one in sockets
            if not asked or one.index == 0 or here.get(one.index) in asked
        ]
        if role is Role.SENSOR:
            sockets = self._counted(sockets)
        programs = list(self._programs(names, sockets, spaces, asked))
        found = World(
            role=role,
            sockets=tuple(sockets),
            programs=tuple(programs),
            settings=tuple(
                filter(None, (given, *(one.settings for one in programs if given is None)))
            ),
            own_quotas=own_quotas(self.root),
            online=self.cpus("sys/devices/system/cpu/online"),
            isolated=self.cpus("sys/devices/system/cpu/isolated"),
            nodes=machine.nodes(self),
            balancers={
                pid: tuple((self.text(f"proc/{pid}/cmdline") or "").split("\0"))
                for pid, name in names.items()
                if name == "irqbalance"
            },
            softnet_dropped=machine.softnet(self),
            memory_bytes=machine.memory(self),
            uptime_s=machine.uptime(self),
            virtual=machine.virtual(self),
        )
        if programs and sees_groups(self.root) is None:
            self.lacks(
                "CPU quotas and memory limits of capture programs",
                "a /sys/fs/cgroup: `ip netns exec` mounts a /sys without it; start nodrop outside, "
                "where it finds other namespaces itself, or by nsenter --net=/run/netns/NAME",
            )
        wanted = self._wanted(found, asked, ports_of, given)
        seen = tuple(
            self._port(space, spaces[space], index, ports_of[space][index])
            for space, index in sorted(wanted)
        )
        return replace(
            found,
            ports=seen,
            values=(*machine.values(self), *machine.port_values(seen)),
            missing=tuple(self.missing),
        )

    # --- real flows -----------------------------------------------------------------------------

    def watched(self, world: World, seconds: float) -> World:
        """With what real flows show at the ports that somebody captures on."""
        groups: dict[int, list[tuple[Meeting, list[socket.socket]]]] = {}
        unsplit: list[Value] = []
        before = {index: self._received(port) for index, port in enumerate(world.ports)}
        time.sleep(RATE_S)
        with ExitStack() as open_ones:
            for index, port in enumerate(world.ports):
                first, last = before[index], self._received(port)
                if first is None or last is None:
                    self.lacks(f"real flows at {port.where}", "its row in /proc/PID/net/dev")
                    continue
                rate = (last - first) / RATE_S
                asked = _groups(world, port)
                unsplit += [] if asked else [_unsplit(port)]
                for kind, members in sorted(asked):
                    try:
                        made = self.kernel.listeners(
                            port.pid, port.name, kind, members, mask_for(rate)
                        )
                    except OSError:
                        self.lacks(f"real flows at {port.where}", "root, or CAP_NET_RAW")
                        continue
                    for one in made:
                        open_ones.enter_context(one)
                    meeting = Meeting(kind=kind, members=members)
                    groups.setdefault(index, []).append((meeting, made))
            if groups:
                watch([one for each in groups.values() for one in each], seconds)
        seen = tuple(
            replace(port, dealt=tuple(one.dealt() for one, _ in groups.get(index, ())))
            for index, port in enumerate(world.ports)
        )
        return replace(
            world,
            ports=seen,
            values=(
                *world.values,
                *unsplit,
                *(value for port in seen for value in _flow_values(port)),
            ),
            missing=tuple(self.missing),
        )

    def _received(self, port: Port) -> int | None:
        row = self._row(port.pid, port.name)
        return None if row is None else row[RX_PACKETS]

    def _row(self, pid: int | None, port: str) -> list[int] | None:
        """Columns of a port in /proc/net/dev."""
        for line in (self.text(f"proc/{pid or 'self'}/net/dev") or "").splitlines():
            name, colon, rest = line.partition(":")
            if colon and name.strip() == port:
                return [int(word) for word in rest.split()]
        return None

    # --- processes and their sockets ------------------------------------------------------------

    def _names(self) -> dict[int, str]:
        found = {}
        for pid in sorted(int(name) for name in self.named("proc") if name.isdecimal()):
            try:
                found[pid] = (self.root / f"proc/{pid}/comm").read_text().rstrip("\n")
            except OSError:
                continue  # just gone
        return found

    def _spaces(self, names: Mapping[int, str]) -> dict[int, int | None]:
        """Network namespaces that hold packet sockets: number → a process that is in it."""
        seen: dict[str | int | None, int | None] = {self._space("self"): None}
        own = {row["inode"] for row in self._packet_rows(None)}
        unseen: list[str] = []
        for pid, name in names.items():
            try:
                space = self._space(str(pid))
            except PermissionError:
                space = None
                unseen.append(f"{name} (pid {pid})")
            if space is not None:
                self.spaces.setdefault(space, seen.get(space, pid))
            if space is None and not _captures(name):
                continue
            rows = self._packet_rows(pid) if space not in seen or space is None else []
            if rows:
                # An inode is in one namespace, whether its name may be read or not.
                known = space or min(row["inode"] for row in rows)
                if space or known not in own:
                    seen.setdefault(known, pid)
        if unseen:
            more = f" and {len(unseen) - 1} other processes" if unseen[1:] else ""
            self.lacks(f"the network namespace of {unseen[0]}{more}", TRACE)
        return dict(enumerate(seen.values()))

    def _space(self, process: str) -> str | None:
        """PermissionError if it is another user's; None if the process is gone."""
        try:
            return str((self.root / f"proc/{process}/ns/net").readlink())
        except PermissionError:
            raise
        except OSError:
            return None

    def _packet_rows(self, pid: int | None) -> list[dict[str, int]]:
        text = self.text(f"proc/{pid or 'self'}/net/packet") or ""
        rows = []
        for line in text.splitlines()[1 : MOST_SOCKETS + 1]:
            words = line.split()
            if len(words) >= 9:
                rows.append(
                    {
                        "protocol": int(words[3], 16),
                        "index": int(words[4]),
                        "uid": int(words[7]),
                        "inode": int(words[8]),
                    }
                )
        return rows

    def _sockets(self, spaces: Mapping[int, int | None]) -> list[Socket]:
        found = []
        may_ask = self._may_ask()
        for number, pid in spaces.items():
            rows = self._packet_rows(pid)
            if not rows:
                continue
            said: dict[int, Socket] = {}
            if may_ask:
                try:
                    dump = self.kernel.packet_sockets(pid)
                    sees = self.capable(CAP_NET_ADMIN)
                    if not sees:
                        self.lacks("filters of packet sockets", "root, or CAP_NET_ADMIN")
                    said = {
                        one.inode: one for one in asking.parse_sockets(dump, may_see_filters=sees)
                    }
                except OSError:
                    self.lacks(f"rings and fanout groups in the namespace of process {pid}", ENTER)
            for row in rows:
                one = said.get(row["inode"]) or Socket(**row)  # type: ignore[arg-type]
                found.append(replace(one, space=number, uid=row["uid"]))
        return found

    def _counted(self, sockets: Sequence[Socket]) -> list[Socket]:
        """With what came to the sockets of programs that have no counters to ask for."""
        owners = {
            one.pid: one.owner
            for one in sockets
            if one.captures and one.pid and not (one.program or "").startswith("Suricata")
        }
        counted: Mapping[int, tuple[int, int]] = {}
        with suppress(NodropError):
            counted = self.kernel.counted([*owners]) if owners else {}
        for pid, owner in owners.items():
            if any(one.inode not in counted for one in sockets if one.pid == pid and one.captures):
                self.lacks(
                    f"losses of {owner}",
                    "root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF (5.11 or later)",
                )
        return [
            replace(one, packets=counted[one.inode][0], drops=counted[one.inode][1])
            if one.inode in counted
            else one
            for one in sockets
        ]

    def _may_ask(self) -> bool:
        """Whether packet_diag is there already: asking would make the kernel load its module."""
        loaded = self.text("proc/modules")
        if loaded is None or re.search(r"^af_packet_diag\b", loaded, re.MULTILINE):
            return True
        release = (self.text("proc/sys/kernel/osrelease") or "").strip()
        if "/af_packet_diag.ko" in (self.text(f"lib/modules/{release}/modules.builtin") or ""):
            return True
        self.lacks(
            "rings and fanout groups of packet sockets",
            "the module af_packet_diag (modprobe af_packet_diag), which an audit does not load",
        )
        return False

    def _holders(self, inodes: set[int], names: Mapping[int, str]) -> dict[int, int]:
        """Inode → the first process that has it open."""
        found: dict[int, int] = {}
        refused = False
        likely_first = sorted(names, key=lambda pid: not _captures(names[pid]))
        for pid in likely_first:
            if found.keys() >= inodes:
                break
            try:
                held = self.open_files(pid)
            except PermissionError:
                refused = True
                continue
            for inode in inodes:
                if f"socket:[{inode}]" in held:
                    found.setdefault(inode, pid)
        if refused and inodes - set(found):
            self.lacks("who holds which packet socket (/proc/PID/fd)", TRACE)
        return found

    def _programs(
        self,
        names: Mapping[int, str],
        sockets: Sequence[Socket],
        spaces: Mapping[int, int | None],
        asked: Sequence[str],
    ) -> Iterator[Program]:
        holding = {one.pid: one.space for one in sockets if one.pid is not None}
        known = {}
        for number, one in spaces.items():
            with suppress(PermissionError):
                known[self._space("self" if one is None else str(one))] = number
        for pid, name in names.items():
            suricata = name.startswith("Suricata")
            if pid not in holding and not suricata:
                continue
            settings = settings_of(self, pid) if suricata else None
            space = holding.get(pid, OURS)
            with suppress(PermissionError):
                here = self._space(str(pid))
                space = holding.get(pid, known.get(here, OURS))
                if (
                    asked
                    and pid not in holding
                    and (here not in known or not names_a_port(settings, asked))
                ):
                    continue
            made = Program(
                pid=pid,
                name=name,
                space=space,
                threads=tuple(self._threads(pid)),
                quotas=own_quotas(self.root, str(pid)),
                memory_hits=tuple(self._memory_hits(pid)),
                settings=settings,
            )
            if suricata:
                made = asked_for_counters(self, self.kernel, made)
                ports = {name: one for name, one in made.interfaces.items() if name in asked}
                made = replace(made, interfaces=ports) if asked else made
            yield made

    def _threads(self, pid: int) -> Iterator[Thread]:
        for tid in sorted(map(int, self.named(f"proc/{pid}/task"))):
            status = self.text(f"proc/{pid}/task/{tid}/status") or ""
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            with suppress(ValueError, KeyError):
                allowed = parse_cpus(fields["Cpus_allowed_list"].strip())
                yield Thread(tid=tid, name=fields["Name"].strip(), allowed=allowed)

    def _memory_hits(self, pid: int) -> Iterator[tuple[str, int]]:
        try:
            for name, group in groups_of("memory", self.root, str(pid)):
                events, fails = group / "memory.events", group / "memory.failcnt"
                if events.is_file():
                    said = dict(map(str.split, events.read_text().splitlines()))
                    yield f"{name}/memory.events (max)", int(said.get("max", 0))
                elif fails.is_file():
                    yield f"{name}/memory.failcnt", int(fails.read_text())
        except (OSError, ValueError):
            return

    # --- ports ----------------------------------------------------------------------------------

    def _interfaces(self, pid: int | None) -> Mapping[int, str]:
        try:
            return self.kernel.interfaces(pid)
        except OSError:
            found = {}
            for table, index, name in (("igmp", 0, 1), ("dev_mcast", 0, 1)):
                for line in (self.text(f"proc/{pid}/net/{table}") or "").splitlines():
                    words = line.split()
                    if len(words) > 1 and words[index].isdecimal():
                        found[int(words[index])] = words[name].rstrip(":")
            return found

    def _wanted(
        self,
        world: World,
        asked: Sequence[str],
        ports_of: Mapping[int, Mapping[int, str]],
        given: Settings | None,
    ) -> set[tuple[int, int]]:
        """Ports that are judged: those that are asked for, else those that somebody captures on or
        that --config names; of a generator, each physical port that is up."""
        here = {name: (OURS, index) for index, name in ports_of[OURS].items()}
        if asked:
            return {here[name] for name in asked}
        if world.role is Role.GENERATOR:
            return {at for name, at in here.items() if self._carries(name)}
        found = {
            (one.space, one.index)
            for one in world.sockets
            if one.captures
            and one.index in ports_of[one.space]
            and ports_of[one.space][one.index] != LOOPBACK
        }
        named = given.document.get("af-packet") if given else None
        for entry in named if isinstance(named, list) else ():
            name = entry.get("interface") if isinstance(entry, dict) else None
            if name in here:
                found.add(here[name])
        return found

    def _carries(self, name: str) -> bool:
        flags = self.text(f"sys/class/net/{name}/flags") or "0"
        physical = (self.root / f"sys/class/net/{name}/device").exists()
        return physical and bool(int(flags, 16) & UP)

    def _port(self, space: int, pid: int | None, index: int, name: str) -> Port:
        def ask(asked: bytes, more: int) -> bytes | None:
            try:
                return self.kernel.ethtool(pid, name, asked, more)
            except OSError:
                self.lacks(f"settings of {name} in the namespace of process {pid}", ENTER)
                return None

        port = read_port(
            Port(name=name, space=space, pid=pid, index=index),
            self._port_folder(pid, name, index),
            self,
            ask,
        )
        return replace(port, peer=self.peer(port)) if port.statistics.get("rx_dropped") else port

    def peer(self, port: Port) -> Peer | None:
        """The other end of a veth, in the namespace that the kernel names for it. None if no
        process is in that one, or it may not be read."""
        index = port.driver_counters.get("peer_ifindex")
        if not index:
            return None
        try:
            there = self.kernel.peer_space(port.pid, port.name, [*self.spaces.values()])
            for pid in there[:1]:
                name = self.kernel.interfaces(pid).get(index)
                row = None if name is None else self._row(pid, name)
                if name is not None and row is not None:
                    mtu = self.kernel.mtu(pid, name)
                    return Peer(name=name, pid=pid, mtu=mtu, tx_dropped=row[TX_DROPPED])
        except OSError:
            pass
        return None

    def _port_folder(self, pid: int | None, name: str, index: int) -> str | None:
        """/sys shows the ports of the namespace in which it was mounted."""
        folder = f"sys/class/net/{name}" if pid is None else f"proc/{pid}/root/sys/class/net/{name}"
        try:
            found = (self.root / folder / "ifindex").read_text().strip()
        except PermissionError:
            self.lacks(f"statistics of {name} in the namespace of process {pid}", TRACE)
            return None
        except OSError:
            found = ""
        if found == str(index):
            return folder
        self.lacks(f"statistics of {name}", f"a /sys of its namespace (that of process {pid})")
        return None


def _captures(name: str) -> bool:
    return name.lower().startswith(CAPTURERS)
