"""Findings about how packets are spread: over queues, threads, interrupts, CPUs and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, pairwise

from nodrop.audit.world import Costs, FindingEvidence, JudgedSnapshot, Kind, Read
from nodrop.config.units import count_of, format_cpus
from nodrop.sensor.snapshot import CPU, FANOUT, HASH, QUEUE, RssSpread, SnapshotPort

FEW_FLOWS = 20
ONE_WAY_RATIO = 0.02
SPLIT_RATIO = 0.05
"""Fragments and flows whose addresses changed are split on any host."""


def _asymmetric(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port, program, held in world.captures():
        spread = port.spread
        if spread is None or len(spread.queues) < 2 or spread.symmetric or not spread.key:
            continue
        kind = held[0].fanout_type
        if kind in (QUEUE, CPU):
            says = (
                f"the two directions of a flow meet in one thread in 1 of {len(spread.queues)} "
                f"flows: {FANOUT[kind]} deals by queue, and the hash is not symmetric"
            )
        elif kind == HASH:
            says = (
                "two CPUs receive the two directions of a flow, and may hand them over in the "
                "wrong order: the hash is not symmetric"
            )
        else:
            continue
        key = f"{spread.key_bytes[:4].hex(':')}… ({len(spread.key_bytes)} bytes)"
        yield FindingEvidence(
            where=f"{program}, {port}",
            says=says,
            read=(
                Read(f"hash key {key}", f"ethtool -x {port}"),
                Read(f"{len(spread.queues)} queues in its table", f"ethtool -x {port}"),
            ),
            change=f"{_symmetric(port, spread)}; or one queue: {port.with_queues(1)}",
        )


def _symmetric(port: SnapshotPort, spread: RssSpread) -> str:
    """Command that gives its hash a symmetric key."""
    fit = ":".join(("6d:5a",) * (len(spread.key) // 4))
    return f"{port.enter}ethtool -X {port} hkey {fit}"


def _split_flows(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.ports:
        for dealt in world.flows(port):
            split = dealt.both_ways - dealt.together
            if dealt.kind == CPU and _by_queue_split(world, port):
                continue  # the same flows
            if dealt.both_ways < FEW_FLOWS or split <= SPLIT_RATIO * dealt.both_ways:
                continue
            by = "queue" if dealt.kind == QUEUE else "CPU"
            spread = port.spread
            if dealt.kind == CPU:
                why = "their queues agree: the CPUs of its interrupts or RPS part them"
                change = (
                    "cluster_flow in place of cluster_cpu; or RPS off and one CPU for each queue"
                )
            elif spread is not None and spread.key and not spread.symmetric:
                why = "the hash of the NIC is not symmetric"
                change = _symmetric(port, spread)
            else:
                why = "who spreads them is not symmetric (a NIC's hash fields, a switch, a TAP)"
                change = f"one queue: {port.with_queues(1)}; or cluster_flow"
            yield FindingEvidence(
                where=port.where,
                says=f"of {dealt.both_ways} flows that were seen in both directions, {split} came "
                f"to two of {dealt.members} threads or CPUs, dealt by {by}; {why}",
                read=(
                    Read(
                        f"{dealt.words} met; chance alone: 1 in {dealt.members}",
                        "a fanout group of nodrop's (--watch)",
                    ),
                ),
                change=change,
            )


def _by_queue_split(world: JudgedSnapshot, port: SnapshotPort) -> bool:
    by_queue = [one for one in world.flows(port) if one.kind == QUEUE]
    return any(one.both_ways - one.together > SPLIT_RATIO * one.both_ways for one in by_queue)


def _one_way(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.ports:
        for dealt in world.flows(port)[:1]:
            tcp = [one for name, one in dealt.met.items() if name.startswith("tcp")]
            seen, both = sum(one.seen for one in tcp), sum(one.flows for one in tcp)
            if seen >= FEW_FLOWS and both <= ONE_WAY_RATIO * seen:
                yield FindingEvidence(
                    where=port.where,
                    says=f"of {seen} TCP flows, {both} were seen in both directions",
                    read=(
                        Read(f"{both} of {seen} TCP flows", "a fanout group of nodrop's (--watch)"),
                    ),
                    change="mirror both directions of the switch's port; both ports of a TAP",
                )


def _one_cpu(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.captured():
        fired = [line for line in port.lines if line.fired and line.effective]
        cpus = {cpu for line in fired for cpu in line.effective}
        if len(fired) > 1 and len(cpus) == 1 and not port.rps and len(world.online) > 1:
            yield FindingEvidence(
                where=port.where,
                says=f"CPU {format_cpus(cpus)} receives all {len(fired)} queues",
                read=tuple(
                    Read(
                        f"{line.name}: CPU {format_cpus(line.effective)}, {line.fired} interrupts",
                        f"/proc/irq/{line.number}/effective_affinity_list",
                    )
                    for line in fired
                ),
                change=" && ".join(
                    f"echo {cpu} > /proc/irq/{line.number}/smp_affinity_list"
                    for line, cpu in zip(fired, cycle(world.online), strict=False)
                ),
            )


def _balanced(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.captured():
        for pid, arguments in world.balancers.items():
            lines = [line for line in port.lines if not _banned(line.number, arguments)]
            if not lines:
                continue
            bans = " ".join(f"--banirq={line.number}" for line in lines)
            yield FindingEvidence(
                where=port.where,
                says=f"irqbalance (pid {pid}) moves {len(lines)} of its "
                f"{count_of(len(port.lines), 'line')} when it likes",
                read=(
                    Read(f"irqbalance, pid {pid}", f"/proc/{pid}/comm"),
                    Read(
                        ", ".join(str(line.number) for line in lines),
                        f"{port.files('device')}/msi_irqs",
                    ),
                ),
                change=f"systemctl stop irqbalance, or start it with {bans}",
            )


def _banned(line: int, arguments: tuple[str, ...]) -> bool:
    """A script or a banned module may keep it from any line: then it is not certain."""
    if any(one.startswith(("--policyscript", "--banmod", "-l", "-m")) for one in arguments):
        return True
    asked = " ".join(arguments).replace("=", " ").split()
    return any(
        word in ("--banirq", "-i") and number == str(line) for word, number in pairwise(asked)
    )


def _remote(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.captured():
        near = world.nodes.get(port.node if port.node is not None else -1, ())
        lines = [line for line in port.lines if line.fired and line.effective]
        if len(world.nodes) < 2 or not near or not lines:
            continue
        far = [line for line in lines if not {*line.effective} & {*near}]
        if far:
            cpus = format_cpus(cpu for line in far for cpu in line.effective)
            yield FindingEvidence(
                where=port.where,
                says=f"{len(far)} of its {count_of(len(lines), 'line')} on CPUs of another node "
                f"({cpus}): each packet crosses between the nodes",
                read=(
                    Read(f"node {port.node}", f"{port.files('device')}/numa_node"),
                    Read(
                        f"CPUs {format_cpus(near)}",
                        f"/sys/devices/system/node/node{port.node}/cpulist",
                    ),
                ),
                change=" && ".join(
                    f"echo {format_cpus(near)} > /proc/irq/{line.number}/smp_affinity_list"
                    for line in far
                ),
            )


def _no_node(world: JudgedSnapshot) -> Iterator[FindingEvidence]:
    for port in world.captured():
        if port.node == -1 and len(world.nodes) > 1:
            yield FindingEvidence(
                where=port.where,
                says=f"the firmware does not say on which of {len(world.nodes)} nodes it sits",
                read=(Read("-1", f"{port.files('device')}/numa_node"),),
                change="look in the firmware (ACPI _PXM), or into the board's manual",
            )


FLOWS = (
    Kind(
        id="asymmetric-hash",
        title="Several queues and a hash that is not symmetric",
        costs=Costs.ANALYSIS,
        why="Two queues, and so two threads or two CPUs, have the two directions of a flow: the "
        "stream engine sees replies before requests, or never meets them.",
        source="securityonion #14951; nodrop: of 773 flows 204 on one queue of 4, all with 6d:5a",
        not_when="One queue; a key that repeats 6d:5a; symmetric-xor.",
        change="ethtool -X PORT hkey 6d:5a:…, or ethtool -L PORT combined 1",
        look=_asymmetric,
    ),
    Kind(
        id="split-flows",
        title="The two directions of real flows come to two threads",
        costs=Costs.ANALYSIS,
        why="Seen in packets, by --watch: the stream engine of one thread has the requests, "
        "that of another the replies.",
        source="Suricata user guide, packet capture (symmetric hashing); nodrop",
        not_when="Without --watch; fewer than 20 flows in both directions; 5 % of them or fewer.",
        change="ethtool -X PORT hkey 6d:5a:…, ethtool -L PORT combined 1, or cluster_flow",
        look=_split_flows,
    ),
    Kind(
        id="one-way-traffic",
        title="Only one direction of the traffic arrives",
        costs=Costs.ANALYSIS,
        why="Without replies no connection is followed: rules on established flows never match.",
        source="Suricata user guide, packet capture; nodrop",
        not_when="Without --watch; fewer than 20 TCP flows; more than 2 % of them both ways.",
        change="mirror both directions of the switch's port",
        look=_one_way,
    ),
)
INTERRUPTS = (
    Kind(
        id="irq-one-cpu",
        title="One CPU receives all queues",
        costs=Costs.PACKETS,
        why="Interrupts of all queues go to one CPU: its softirq is the limit, and with "
        "cluster_cpu one worker has all the work.",
        source="irqbalance #30, #125; SEPTun Mark II",
        not_when="The port has one queue; RPS spreads the packets; lines that never fired.",
        change="echo CPU > /proc/irq/N/smp_affinity_list, again after each ethtool -L",
        look=_one_cpu,
    ),
)
PLACES = (
    Kind(
        id="numa-remote",
        title="Interrupts on another NUMA node than the NIC's",
        costs=Costs.CPU_TIME,
        why="Each packet is written into the memory of one node and read from the other.",
        source="SEPTun",
        not_when="One node; lines that never fired.",
        change="echo CPUS > /proc/irq/N/smp_affinity_list",
        look=_remote,
    ),
    Kind(
        id="numa-unknown",
        title="The NIC's NUMA node is not known",
        costs=Costs.CPU_TIME,
        why="The kernel puts rings and interrupts on whichever node asks first.",
        source="Linux Documentation/ABI, numa_node",
        not_when="One node.",
        change="the firmware's setting, or the board's manual",
        look=_no_node,
    ),
    Kind(
        id="irqbalance",
        title="irqbalance moves the lines of the port",
        costs=Costs.CPU_TIME,
        why="Packets of one flow come out of order when a line moves, and an affinity that was set "
        "does not stay.",
        source="SEPTun; irqbalance #202, #297",
        not_when="The lines are banned (--banirq, a policy script).",
        change="systemctl stop irqbalance, or --banirq for each line",
        look=_balanced,
    ),
)
