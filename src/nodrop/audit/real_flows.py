"""Real flows at the ports that are judged (`nodrop audit --watch`).

For some seconds fanout groups of the node stand beside those of the capture programs and deal
packets as those do: by queue, or by CPU. A filter lets only some flows through, chosen by a value
that is the same in both directions, so that it costs little however busy the port is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from nodrop.audit.symmetry import Dealt
from nodrop.audit.world import JudgedSnapshot
from nodrop.sensor.snapshot import CPU, QUEUE, Missing, ShownSetting, SnapshotPort
from nodrop.testbed.hosts.api import Host, ProbeJob

ANSWERS_WITHIN_S = 30.0
"""Time that the node may take beyond that of the watch."""


def watched(host: Host, world: JudgedSnapshot, seconds: float) -> JudgedSnapshot:
    """World with what real flows show at its ports."""
    asked = [(port, *group) for port in world.ports for group in sorted(_groups(world, port))]
    groups = [
        {"port": port.name, "pid": port.pid, "kind": kind, "members": members}
        for port, kind, members in asked
    ]
    spec = {"job": "probe", "what": ["flows"], "groups": groups, "listen_ms": round(seconds * 1000)}
    job: ProbeJob = host.job(spec)
    with closing(job):
        answers = job.result(timeout_s=seconds + ANSWERS_WITHIN_S)["flows"]["groups"]
    dealt: dict[str, tuple[Dealt, ...]] = {}
    missing = []
    for (port, kind, members), met in zip(asked, answers, strict=True):
        if met is None:
            missing.append(Missing(f"real flows at {port.where}", "root, or CAP_NET_RAW"))
            continue
        one_more = Dealt(kind=kind, members=members, met=met)
        dealt[port.where] = (*dealt.get(port.where, ()), one_more)
    seen = replace(world, dealt=dealt, missing=(*world.missing, *dict.fromkeys(missing)))
    return replace(seen, values=(*world.values, *_flow_values(seen)))


def _groups(world: JudgedSnapshot, port: SnapshotPort) -> set[tuple[int, int]]:
    """Kind and members of the groups that show how this port's packets are dealt: its queues, and
    what its capture programs deal by. Where nothing splits a flow, one member sees all: a mirror
    may have one direction alone."""
    found = {(QUEUE, port.queues)} if (port.queues or 1) > 1 else set()
    for where, _, held in world.captures():
        kinds = {one.fanout_type for one in held} & {CPU, QUEUE}
        if where is port and len(held) > 1:
            found |= {(kind, len(held)) for kind in kinds if kind is not None}
    return {(kind, members) for kind, members in found if members} or {(QUEUE, 1)}


def _flow_values(world: JudgedSnapshot) -> Iterator[ShownSetting]:
    for port in world.ports:
        for flow in world.flows(port):
            if flow.members == 1:
                yield _unsplit(port, flow)
                continue
            yield ShownSetting(
                f"flows at {port.where} whose directions meet, dealt by "
                f"{'queue' if flow.kind == QUEUE else 'CPU'} to {flow.members}",
                f"{flow.together} of {flow.both_ways} "
                f"({flow.words or 'none was seen in both directions'}); {flow.seen} flows seen",
                "a fanout group of nodrop's, for as long as --watch",
            )


def _unsplit(port: SnapshotPort, dealt: Dealt) -> ShownSetting:
    return ShownSetting(
        f"flows at {port.where}",
        f"{dealt.both_ways} of {dealt.seen} seen in both directions; "
        f"{'one queue, and ' if port.queues == 1 else ''}no program there deals packets by queue "
        "or by CPU, so nothing splits a flow",
        "a listener of nodrop's, for as long as --watch",
    )
