"""Findings about capture programs: their sockets, rings, threads, and what Suricata counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nodrop.answer.finding import WORDS
from nodrop.audit.host_role import HostRole
from nodrop.audit.world import FindingEvidence, JudgedSnapshot, Look, Read, matters, share
from nodrop.config.units import count_of, format_cpus
from nodrop.sensor.slots import bridged_ms, slot_needed
from nodrop.sensor.snapshot import (
    FANOUT,
    QUEUE,
    Capture,
    CapturingProgram,
    Missing,
    SnapshotPort,
    Socket,
)
from nodrop.sensor.suricata_counters import lost_analysis

STALL_MS = 200
"""A stall that is ordinary, and lost packets in a ring of Suricata's default size."""
MEMORY_SHARE = 4
"""Rings that take more than one part in so many of the memory."""
MIB = 1 << 20
DIAG = "packet_diag (ss -0 -e)"
SEVERAL_PROCESSES = ("zeek", "bro")
"""Programs that share a fanout group among processes on purpose."""


def _short_rings(_: JudgedSnapshot, capture: Capture) -> Iterator[FindingEvidence]:
    port, held = capture.port, capture.sockets
    bridged = ((bridged_ms(one.version, one.blocks, one.retire_ms), one) for one in held)
    known = [(ms, one) for ms, one in bridged if ms is not None]
    shortest_ms, one = min(known, key=lambda pair: pair[0], default=(STALL_MS, held[0]))
    if shortest_ms < STALL_MS:
        yield FindingEvidence(
            says=f"its ring holds {shortest_ms} ms, however few packets come",
            read=(
                Read(f"{one.blocks} blocks, {one.retire_ms} ms each", DIAG),
                Read(f"{one.ring_bytes / MIB:.1f} MiB a socket", DIAG),
            ),
            change=(
                f"suricata.yaml, af-packet, interface {port}: block-timeout: 100, "
                "ring-size: 100000, block-size: 1048576; then restart it"
            ),
        )


def _clashes(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    groups: dict[tuple[int, int], list[Socket]] = {}
    for socket in world.sockets:
        if socket.fanout_id is not None:
            groups.setdefault((socket.space, socket.fanout_id), []).append(socket)
    for (_, number), members in groups.items():
        owners = {member.pid: member.owner for member in members if member.pid is not None}
        names = {member.program for member in members if member.pid is not None}
        one_by_design = len(names) == 1 and (names.pop() or "").startswith(SEVERAL_PROCESSES)
        if len(owners) > 1 and not one_by_design:
            who = " and ".join(owners.values())
            yield FindingEvidence(
                where=members[0].port or f"port {members[0].index}",
                says=f"{who} share one fanout group: each sees only a part of the packets",
                read=(Read(f"id {number}, {count_of(len(members), 'socket')}", DIAG),),
                change="suricata.yaml, af-packet: another cluster-id in one of them; restart it",
            )
    for port, program, held in world.captures():
        loose = [one for one in held if one.described and one.fanout_id is None]
        if len(held) > 1 and loose and (program.suricata or len(loose) > 1):
            yield FindingEvidence(
                where=f"{program}, {port}",
                says=f"{count_of(len(loose), 'socket')} of {len(held)} in no fanout group: each "
                "takes every packet",
                read=(Read("no fanout group", DIAG),),
                change="snort: --daq-var fanout_type=hash"
                if program.name.lower().startswith("snort")
                else "suricata.yaml, af-packet: a cluster-id that no other program uses"
                if program.suricata
                else "one socket, or one fanout group for all of them",
            )
        if (
            program.suricata
            and len(held) == 1
            and loose
            and len(program.capturing) < _wants(world, program, port)
        ):
            yield FindingEvidence(
                where=f"{program}, {port}",
                says=f"one socket in no fanout group where {_wants(world, program, port)} threads "
                "are asked for: it was refused its group, and works with one thread",
                read=(Read("no fanout group", DIAG),),
                change="suricata.yaml, af-packet: a cluster-id that no other program uses",
            )
    for settings in world.configurations:
        taken: dict[str, str] = {}
        for entry in settings.entries("af-packet"):
            cluster, name = str(entry.get("cluster-id", "")), str(entry.get("interface", ""))
            if cluster and taken.get(cluster, name) != name and name != "default":
                yield FindingEvidence(
                    where=settings.path,
                    says=f"{taken[cluster]} and {name} have one cluster-id: the second port is "
                    "refused (EINVAL)",
                    read=(Read(f"cluster-id: {cluster}", settings.path),),
                    change=f"{settings.path}: another cluster-id for {name}; restart Suricata",
                )
            if name != "default":
                taken.setdefault(cluster, name)


def _wants(world: JudgedSnapshot, program: CapturingProgram, port: SnapshotPort) -> int:
    """Threads that the file asks for; 0: as many as there are CPUs, or not known."""
    settings = world.settings.get(program.pid)
    entries = settings.entries("af-packet") if settings else ()
    said = next(
        (str(entry.get("threads")) for entry in entries if entry.get("interface") == port.name), ""
    )
    return int(said) if said.isdecimal() else 0


def _seconds(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    takers = [program for at, program, _ in world.captures() if at is port]
    main = [program for program in takers if program.suricata] or takers
    first = main[0].pid if main and world.role is HostRole.SENSOR else None
    groups = {one.fanout_id for one in world.listening(port) if one.pid == first} - {None}
    for socket in world.listening(port):
        if world.role is HostRole.SENSOR and socket.pid in (first, None):
            continue
        if socket.fanout_id in groups:  # it takes a part away: fanout-clash
            continue
        if socket.filtered is not False or (first is None and world.role is HostRole.SENSOR):
            continue
        same = [s for s in world.listening(port) if s.pid == socket.pid]
        if socket is not same[0] and socket.pid is not None:
            continue
        end = f"end it (kill {socket.pid}), or give it a filter" if socket.pid else "end it"
        every = "" if socket.index else ", and each packet of every other port"
        yield FindingEvidence(
            says=f"{socket.owner} takes each packet as well{every}",
            read=(Read(f"inode {socket.inode}, no filter", DIAG),),
            change=end,
        )


def _readers(_: JudgedSnapshot, capture: Capture) -> Iterator[FindingEvidence]:
    port, held = capture.port, capture.sockets
    members = [one for one in held if one.fanout_type == QUEUE]
    queues, readers = port.queues, len(members)
    if not readers or not queues or queues % readers == 0:
        return
    idle = readers - queues
    says = (
        f"{count_of(readers, 'reader')} for {count_of(queues, 'queue')}: {idle} get no packet"
        if idle > 0
        else f"{queues} queues for {readers} readers: {queues % readers} of them have one "
        "queue more"
    )
    yield FindingEvidence(
        says=says,
        read=(
            Read(f"{readers} sockets of a group of type {FANOUT[QUEUE]}", DIAG),
            Read(count_of(queues, "receive queue"), port.files("queues")),
        ),
        change=f"{port.with_queues(readers)}; or suricata.yaml: threads: {queues}",
    )


def _cpus(program: CapturingProgram) -> set[int]:
    """CPUs that its capture threads may use."""
    return {cpu for thread in program.capturing for cpu in thread["allowed"]}


def _allowed(program: CapturingProgram, cpus: Iterable[int]) -> Read:
    return Read(f"Cpus_allowed_list {format_cpus(cpus)}", f"/proc/{program.pid}/task/*/status")


def _crowded(_: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    workers, cpus = program.capturing, _cpus(program)
    if workers and len(workers) > len(cpus):
        yield FindingEvidence(
            says=f"{count_of(len(workers), 'capture thread')} on {count_of(len(cpus), 'CPU')}",
            read=(_allowed(program, cpus),),
            change=f"suricata.yaml, af-packet: threads: {len(cpus)}; or threading: "
            "set-cpu-affinity: yes with worker-cpu-set on more CPUs",
        )
    pinned = Counter(tuple(worker["allowed"]) for worker in workers if len(worker["allowed"]) == 1)
    for (cpu,), number in pinned.items():
        if number > 1 and len(workers) <= len(cpus):
            yield FindingEvidence(
                says=f"{number} capture threads are pinned to CPU {cpu}",
                read=(_allowed(program, [cpu]),),
                change="suricata.yaml, threading: worker-cpu-set with a CPU for each worker",
            )


def _isolated(world: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    cpus = _cpus(program)
    if cpus and world.isolated and not cpus & {*world.isolated}:
        isolated = format_cpus(world.isolated)
        yield FindingEvidence(
            says=f"CPUs {isolated} are kept free for it, and none of its capture threads may "
            "run there",
            read=(
                Read(isolated, "/sys/devices/system/cpu/isolated"),
                _allowed(program, cpus),
            ),
            change=f"suricata.yaml, threading: set-cpu-affinity: yes, worker-cpu-set: cpu: "
            f'["{isolated}"]',
        )


def _large_rings(world: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    total = sum(socket.ring_bytes for socket in world.sockets if socket.pid == program.pid)
    if world.memory_bytes and total * MEMORY_SHARE > world.memory_bytes:
        yield FindingEvidence(
            says=f"its rings take {total / MIB:,.0f} MiB, {share(total, world.memory_bytes)} "
            "of the memory",
            read=(
                Read(f"{total:,} bytes", DIAG),
                Read(f"{world.memory_bytes:,} bytes", "/proc/meminfo"),
            ),
            change="suricata.yaml, af-packet: a smaller ring-size (it is per thread)",
        )


def _cut(_: JudgedSnapshot, capture: Capture) -> Iterator[FindingEvidence]:
    port, program, one = capture.port, capture.program, capture.sockets[0]
    needs = slot_needed(
        version=one.version,
        slot_bytes=one.frame_bytes,
        mtu=port.mtu,
        suricata=program.suricata,
    )
    if needs is not None:
        yield FindingEvidence(
            says=f"slots of {one.frame_bytes:,} bytes, and frames of an MTU of "
            f"{port.mtu:,} need {needs:,}: longer ones are cut",
            read=(
                Read(f"frame size {one.frame_bytes}, TPACKET_V2", DIAG),
                Read(f"mtu {port.mtu}", port.state_at),
            ),
            change="restart Suricata: it sizes its slots by the MTU when it starts"
            if program.suricata
            else f"restart it with slots of {needs:,} bytes or more (its snapshot "
            "length), or with TPACKET_V3",
        )


def not_counted(world: JudgedSnapshot) -> Iterator[Missing]:
    """Losses of programs whose counters say nothing of what came: they began just now, or read them
    again and again, which sets them to zero."""
    for port, program, held in world.captures() if world.role is HostRole.SENSOR else ():
        came = port.statistics.get("rx_packets", 0)
        empty = all((one.packets, one.drops) == (0, 0) and one.filtered is False for one in held)
        if came and empty and not program.suricata:
            yield Missing(
                f"losses of {program} on {port}",
                f"a watch (nodrop drops): {port} had {count_of(came, 'packet')}, and the counters "
                "of its sockets are 0; it has only begun, or reads them itself",
            )


def _dropped(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for program in world.programs:
        held = [socket for socket in world.sockets if socket.pid == program.pid and socket.captures]
        lost = sum(one.drops or 0 for one in held)
        arrived = lost + sum(one.packets or 0 for one in held)
        if not program.suricata and matters(lost, arrived):
            ports = ", ".join(sorted({one.port or "every port" for one in held}))
            yield FindingEvidence(
                where=f"{program}, {ports}",
                says=f"{lost:,} of {arrived:,} packets that came to its sockets were lost there "
                f"({share(lost, arrived)}) since it was started, or last read its counters",
                read=(
                    Read(
                        f"tp_drops {lost}, tp_packets {arrived - lost}",
                        "the kernel's counters of its sockets (BPF iterator)",
                    ),
                ),
                change="nodrop drops shows when and why; a larger buffer for bursts (tcpdump -B)",
            )
    for program in world.programs:
        for name, counts in program.interfaces.items():
            lost, arrived = counts["drops"], counts["packets"]
            if matters(lost, arrived):
                since = f" in {program.uptime_s:,.0f} s" if program.uptime_s else ""
                yield FindingEvidence(
                    where=f"{program}, {name}",
                    says=f"{lost:,} of {arrived:,} packets that came to its rings were lost there"
                    f"{since} ({share(lost, arrived)} = dropped / arrived; arrived includes the "
                    "dropped)",
                    read=(Read(f"drop {lost}, pkts {arrived}", f"iface-stat {name}"),),
                    change="nodrop drops shows when and why; a larger ring for bursts, more "
                    "workers if they have no time left",
                )


def _lost_analysis(
    finding: str, _: JudgedSnapshot, program: CapturingProgram
) -> Iterator[FindingEvidence]:
    for row, counter in lost_analysis(program.counters):
        if row.finding == finding and (times := program.counters[counter]):
            yield FindingEvidence(
                says=f"{row.loses} ({row.setting}): {count_of(times, 'time')}, and no packet "
                "counts as lost",
                read=(Read(f"{counter} {times}", "dump-counters"),),
                change=f"suricata.yaml: raise {row.setting}; watch drops, for more state is "
                "more work",
            )


def _checksums(_: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    for name, counts in program.interfaces.items():
        bad, arrived = counts["invalid_checksums"], counts["packets"]
        if bad * 100 > arrived:
            yield FindingEvidence(
                where=f"{program}, {name}",
                says=f"{bad:,} of {arrived:,} packets have a wrong checksum and are not "
                f"looked at ({share(bad, arrived)})",
                read=(Read(f"invalid-checksums {bad}", f"iface-stat {name}"),),
                change="start Suricata with -k none, or checksum-checks: no in af-packet, if "
                "the mirror shows packets before a NIC has filled them in",
            )


SLACK_S = 10
"""Suricata's counts of one snapshot differ in age by up to 3 s."""


def _stolen(_: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    said = program.counters
    if not program.uptime_s or "capture.kernel_packets" not in said:
        return
    read = said["capture.kernel_packets"] - said.get("capture.kernel_drops", 0)
    decoded = said.get("decoder.pkts", 0)
    slack = max(decoded / 100, SLACK_S * decoded / max(program.uptime_s, SLACK_S))
    if decoded - read > slack:
        yield FindingEvidence(
            says=f"it decoded {decoded - read:,} packets more than its sockets say they gave: "
            "somebody else read, and so reset, their counts",
            read=(
                Read(f"kernel_packets - kernel_drops = {read}", "dump-counters"),
                Read(f"decoder.pkts {decoded}", "dump-counters"),
            ),
            change="end what asks its sockets for PACKET_STATISTICS; restart Suricata to count "
            "anew",
        )


def _not_the_file(world: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    settings = world.settings.get(program.pid)
    if settings and settings.newer:
        yield FindingEvidence(
            says=f"{settings.path} was written after Suricata was started: what runs "
            "is another configuration",
            read=(Read("modified after the start", settings.path),),
            change="restart Suricata, or look at the kernel's values (--json) alone",
        )


def _memory_limits(_: JudgedSnapshot, program: CapturingProgram) -> Iterator[FindingEvidence]:
    for hits in program.memory_hits:
        if times := hits["times"]:
            yield FindingEvidence(
                says=f"its control group reached the memory limit {count_of(times, 'time')}",
                read=(Read(str(times), hits["file"]),),
                change="systemctl set-property UNIT MemoryMax=… (docker update --memory)",
            )


def _quotas(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    sensor = world.role is HostRole.SENSOR
    held = [(str(p), p.quotas, len(p.capturing)) for p in world.programs] if sensor else []
    seen = set()
    for who, quotas, threads in held or [("nodrop and what it starts", world.own_quotas, 0)]:
        for quota in quotas:
            tight = quota.throttled_periods or quota.cpus < max(threads, 1)
            if tight and (who, quota.group) not in seen and (held or not sensor):
                seen.add((who, quota.group))
                yield FindingEvidence(
                    where=who,
                    says=f"it may use {quota.cpus:g} CPUs, and stands still for the rest of each "
                    f"period: {quota.throttled_words}",
                    read=(Read(f"{quota.cpus:g} CPUs", f"{quota.group}/{_file(quota.group)}"),),
                    change=_lifted(quota.group),
                )


def _lifted(group: str) -> str:
    """The command that takes a quota off a control group."""
    name = Path(group).name
    if container := re.fullmatch(r"(?:docker-)?([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?", name):
        return f"docker update --cpus 0 {container[1]}"
    if name.endswith((".service", ".slice", ".scope")):
        return f"systemctl set-property {name} CPUQuota="
    return f"echo {'max' if _file(group) == 'cpu.max' else -1} > {group}/{_file(group)}"


def _file(group: str) -> str:
    """Version 1 of control groups has a hierarchy for CPUs alone."""
    return "cpu.cfs_quota_us" if group.startswith("/sys/fs/cgroup/cpu") else "cpu.max"


def _blind(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    if not world.ports and not world.missing:
        yield FindingEvidence(
            where="this host",
            says="no program captures packets on any port",
            read=(Read("no socket that takes each packet of a port", DIAG),),
            change="start the sensor; nodrop audit --port NAME judges a port without",
        )
    for port in world.ports:
        if port.up is False:
            yield FindingEvidence(
                where=port.where,
                says=WORDS["blind"]["down"],
                read=(Read("no UP", port.state_at),),
                change=f"{port.enter}ip link set {port} up; then restart what captures there",
            )
        elif port.carrier is False:
            yield FindingEvidence(
                where=port.where,
                says=WORDS["blind"]["no_carrier"],
                read=(Read("NO-CARRIER", port.state_at),),
                change=f"{port.enter}ethtool {port}   # the cable, and the port at its other end",
            )
        if not any(socket.captures for socket in world.listening(port)):
            yield FindingEvidence(
                where=port.where,
                says=f"{WORDS['blind']['no_program']}: nothing that comes in is looked at",
                read=(Read("no socket that takes each packet of it", DIAG),),
                change=f"start the sensor on {port}",
            )
    for port, program, _ in world.captures():
        if program.stopped:
            yield FindingEvidence(
                where=f"{program}, {port}",
                says="it is stopped: it takes no packet out of its ring, which fills up",
                read=(Read("State: T (stopped)", f"/proc/{program.pid}/status"),),
                change=f"kill -CONT {program.pid}",
            )


LOOKS: Mapping[str, Look] = {
    "blind-sensor": _blind,
    "fanout-clash": _clashes,
    "cpu-quota": _quotas,
    "crowded-workers": _crowded,
    "ring-tolerance": _short_rings,
    "readers-and-queues": _readers,
    "socket-drops": _dropped,
    "frames-cut": _cut,
    "memcap-reached": partial(_lost_analysis, "memcap-reached"),
    "limit-reached": partial(_lost_analysis, "limit-reached"),
    "emergency-mode": partial(_lost_analysis, "emergency-mode"),
    "wrong-checksums": _checksums,
    "second-listener": _seconds,
    "isolated-unused": _isolated,
    "ring-memory": _large_rings,
    "memory-limit": _memory_limits,
    "counts-stolen": _stolen,
    "config-not-running": _not_the_file,
}
