"""Findings about how packets are spread: over queues, threads, interrupts, CPUs and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, pairwise

from nodrop.audit.world import FindingEvidence, JudgedSnapshot, Look, Read
from nodrop.config.units import count_of, format_cpus
from nodrop.protocol import QueueSpread
from nodrop.sensor.snapshot import CPU, FANOUT, HASH, QUEUE, Capture, SnapshotPort

FEW_FLOWS = 20
ONE_WAY_RATIO = 0.02
SPLIT_RATIO = 0.05
"""Fragments and flows whose addresses changed are split on any host."""
XOR = 2
"""ETH_RSS_HASH_XOR."""


def _asymmetric(_: JudgedSnapshot, capture: Capture) -> Iterator[FindingEvidence]:
    port, spread = capture.port, capture.port.spread
    if spread is None or len(spread["queues"]) < 2 or not _parts_directions(spread):
        return
    kind, queues = capture.sockets[0].fanout_type, len(spread["queues"])
    if kind in (QUEUE, CPU):
        says = (
            f"the two directions of a flow meet in one thread in 1 of {queues} "
            f"flows: {FANOUT[kind]} deals by queue, and the hash is not symmetric"
        )
    elif kind == HASH:
        says = (
            "two CPUs receive the two directions of a flow, and may hand them over in the "
            "wrong order: the hash is not symmetric"
        )
    else:
        return
    key = bytes.fromhex(spread["key"])
    yield FindingEvidence(
        says=says,
        read=(
            Read(
                f"hash key {key[:4].hex(':')}… ({len(key)} bytes)",
                f"ethtool -x {port}",
            ),
            Read(f"{queues} queues in its table", f"ethtool -x {port}"),
        ),
        change=f"{_symmetric(port, spread)}; or one queue: {port.with_queues(1)}",
    )


def _parts_directions(spread: QueueSpread) -> bool:
    """Whether the directions of a flow hash otherwise: its key does not repeat every 16 bits, nor
    is it an XOR."""
    key = spread["key"]
    repeats = len(key) > 4 and key[4:] == key[:-4]
    return bool(key) and not (spread["transformed"] or spread["function"] == XOR or repeats)


def _symmetric(port: SnapshotPort, spread: QueueSpread) -> str:
    """Command that gives its hash a symmetric key."""
    fit = ":".join(("6d:5a",) * (len(spread["key"]) // 4))
    return f"{port.enter}ethtool -X {port} hkey {fit}"


def _split_flows(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
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
            change = "cluster_flow in place of cluster_cpu; or RPS off and one CPU for each queue"
        elif spread is not None and _parts_directions(spread):
            why = "the hash of the NIC is not symmetric"
            change = _symmetric(port, spread)
        else:
            why = "who spreads them is not symmetric (a NIC's hash fields, a switch, a TAP)"
            change = f"one queue: {port.with_queues(1)}; or cluster_flow"
        yield FindingEvidence(
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
    by_queue = [flow for flow in world.flows(port) if flow.kind == QUEUE]
    return any(one.both_ways - one.together > SPLIT_RATIO * one.both_ways for one in by_queue)


def _one_way(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    for dealt in world.flows(port)[:1]:
        tcp = [one for name, one in dealt.met.items() if name.startswith("tcp")]
        seen, both = sum(one["seen"] for one in tcp), sum(one["flows"] for one in tcp)
        if seen >= FEW_FLOWS and both <= ONE_WAY_RATIO * seen:
            yield FindingEvidence(
                says=f"of {seen} TCP flows, {both} were seen in both directions",
                read=(Read(f"{both} of {seen} TCP flows", "a fanout group of nodrop's (--watch)"),),
                change="mirror both directions of the switch's port; both ports of a TAP",
            )


def _one_cpu(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    fired = [line for line in port.lines if line["fired"] and line["effective"]]
    cpus = {cpu for line in fired for cpu in line["effective"]}
    if len(fired) > 1 and len(cpus) == 1 and not port.rps and len(world.online) > 1:
        yield FindingEvidence(
            says=f"CPU {format_cpus(cpus)} receives all {len(fired)} queues",
            read=tuple(
                Read(
                    f"{line['name']}: CPU {format_cpus(line['effective'])}, "
                    f"{line['fired']} interrupts",
                    f"/proc/irq/{line['number']}/effective_affinity_list",
                )
                for line in fired
            ),
            change=" && ".join(
                f"echo {cpu} > /proc/irq/{line['number']}/smp_affinity_list"
                for line, cpu in zip(fired, cycle(world.online), strict=False)
            ),
        )


def _balanced(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    for pid, arguments in world.balancers.items():
        numbers = [line["number"] for line in port.lines]
        free = [number for number in numbers if not _banned(number, arguments)]
        if not free:
            continue
        bans = " ".join(f"--banirq={number}" for number in free)
        yield FindingEvidence(
            says=f"irqbalance (pid {pid}) moves {len(free)} of its "
            f"{count_of(len(port.lines), 'line')} when it likes",
            read=(
                Read(f"irqbalance, pid {pid}", f"/proc/{pid}/comm"),
                Read(
                    ", ".join(map(str, free)),
                    f"{port.files('device')}/msi_irqs",
                ),
            ),
            change=f"systemctl stop irqbalance, or start it with {bans}",
        )


def _banned(line: int, arguments: tuple[str, ...]) -> bool:
    """A script or a banned module may keep it from any line: then it is not certain."""
    if any(
        argument.startswith(("--policyscript", "--banmod", "-l", "-m")) for argument in arguments
    ):
        return True
    asked = " ".join(arguments).replace("=", " ").split()
    return any(
        word in ("--banirq", "-i") and number == str(line) for word, number in pairwise(asked)
    )


def _remote(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    near = world.nodes.get(port.node if port.node is not None else -1, ())
    lines = [line for line in port.lines if line["fired"] and line["effective"]]
    if len(world.nodes) < 2 or not near or not lines:
        return
    far = [line for line in lines if not {*line["effective"]} & {*near}]
    if far:
        cpus = format_cpus(cpu for line in far for cpu in line["effective"])
        yield FindingEvidence(
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
                f"echo {format_cpus(near)} > /proc/irq/{line['number']}/smp_affinity_list"
                for line in far
            ),
        )


def _no_node(world: JudgedSnapshot, port: SnapshotPort) -> Iterator[FindingEvidence]:
    if port.node == -1 and len(world.nodes) > 1:
        yield FindingEvidence(
            says=f"the firmware does not say on which of {len(world.nodes)} nodes it sits",
            read=(Read("-1", f"{port.files('device')}/numa_node"),),
            change="look in the firmware (ACPI _PXM), or into the board's manual",
        )


LOOKS: Mapping[str, Look] = {
    "asymmetric-hash": _asymmetric,
    "split-flows": _split_flows,
    "one-way-traffic": _one_way,
    "irq-one-cpu": _one_cpu,
    "numa-remote": _remote,
    "numa-unknown": _no_node,
    "irqbalance": _balanced,
}
