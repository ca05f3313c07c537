"""Each kind of loss on a host that was made to have it, and what `drops` and `audit` say of it: one
never contradicts the other, with a /sys of the namespace and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pytest

from nodrop.audit.audit_answer import AuditAnswer, answer
from nodrop.audit.reading import here, judged, look, peer_of
from nodrop.drops.places import DropCause
from nodrop.drops.watching import DropsInterval, Watch
from nodrop.results.watched import WatchedInterval
from nodrop.testbed.hosts.control_groups import SocketLooks
from tests.netns.made_sensor import Made, made_sensor
from tests.unit.drops.test_places import cause_of

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root and unshare"),
    pytest.mark.usefixtures("real_root"),
]


def nothing(_: Made, __: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A port with one thing wrong. Its first letters name it, `x` in front its other end."""

    programs: tuple[str, ...]
    """Each opens sockets of a kind: `reader v3`, `zeek-1 v3 7`."""
    mtu: int = 1500
    sent_mtu: int = 1500
    before: Callable[[Made, str], object] = nothing
    during: Callable[[Made, str], object] = nothing
    drops: str
    """A cause, a place or a reason why the port is blind; empty: nothing is lost."""
    audit: str
    """A finding, or what could not be read; empty: neither."""


def sent(packets: int, length: int = 60) -> Callable[[Made, str], object]:
    return lambda made, port: made.send(f"x{port}", packets, length=length)


def all_of(*steps: Callable[[Made, str], object]) -> Callable[[Made, str], object]:
    return lambda made, port: [step(made, port) for step in steps]


def asked(*lines: str) -> Callable[[Made, str], object]:
    return lambda made, port: [made.ask(line) for line in lines]


def ip_link(end: str, state: str) -> Callable[[Made, str], object]:
    return lambda made, port: made.run("ip", "link", "set", end + port, state)


def queues(made: Made, port: str) -> None:
    """Receive queues of a veth are no combined ones: three readers for two."""
    made.run("ethtool", "-L", port, "rx", 2)


def losses(packets: int, length: int) -> dict[str, Loss]:
    return {
        "well": Loss(programs=("well v3",), during=sent(20), drops="", audit=""),
        "mtu": Loss(
            programs=("mtu plain",), mtu=1400, sent_mtu=8000,
            during=all_of(sent(packets // 2), sent(packets, 2000)),
            drops=DropCause.MTU, audit="frames-refused",
        ),
        "down": Loss(programs=("down plain",), during=ip_link("", "down"),
                     drops="down", audit="blind-sensor"),
        "cable": Loss(programs=("cable plain",), during=ip_link("x", "down"),
                      drops="no_carrier", audit="blind-sensor"),
        "idle": Loss(programs=("idle v3",), during=sent(packets, length),
                     drops=DropCause.NOT_READING, audit="socket-drops"),
        "stop": Loss(programs=("stop v3",), before=asked("stop stop"),
                     during=sent(packets, length), drops=DropCause.STOPPED, audit="socket-drops"),
        "short": Loss(programs=("short v2:2048",), mtu=length + 3000, sent_mtu=length + 3000,
                      during=sent(20, length + 2500), drops="frames_cut", audit="frames-cut"),
        "clash": Loss(programs=("clash plain 7", "other plain 7"), during=sent(200),
                      drops="fanout group", audit="fanout-clash"),
        "workers": Loss(
            programs=("zeek-1 v3 9", "zeek-2 v3 9"), before=asked("stop zeek-2"),
            during=sent(packets, length), drops=DropCause.STOPPED, audit="socket-drops",
        ),
        "queues": Loss(programs=("queues v3 5:5",) * 3, before=queues, drops="",
                       audit="readers-and-queues"),
        "counts": Loss(programs=("counts plain",),
                       during=all_of(sent(packets, length), asked("count counts")),
                       drops="counters_read", audit="losses of counts"),
    }  # fmt: skip


def said_by_drops(found: DropsInterval, port: str) -> set[str]:
    rows = [row for row in found.answer.places if row.where.endswith(port)]
    blind = {str(one.why) for one in found.answer.blind if one.port == port}
    causes = {(row.place, cause_of(row.why)) for row in rows}
    return {place if code == DropCause.PLACE else code for place, code in causes} | blind


def said_by_audit(found: AuditAnswer, port: str) -> set[str]:
    ids = {one.id for one in found.findings if f"{port}" in one.where and not one.note}
    return ids | {one.what for one in found.missing if port in one.what}


PROGRAM = re.compile(r"(nsenter|ip|ethtool|kill|cat|ps) ")


def commands(found: DropsInterval, audited: AuditAnswer, made: Made) -> list[str]:
    """Commands that were printed for this host alone; what both say of others is left alone."""
    printed = [row.do for row in found.answer.places]
    printed += [one.change for one in audited.findings]
    parts = [part.strip() for line in printed for part in re.split(r"; |   # |, or ", line)]
    ours = (str(made.pid), *made.pids)
    return [
        one
        for one in parts
        if PROGRAM.match(one) and any(pid in one.split() or f"/{pid}/" in one for pid in ours)
    ]


LOSES = {"blind-sensor", "frames-refused", "socket-drops", "frames-cut", "fanout-clash"}


@pytest.mark.parametrize(("own_sys", "packets", "length"), [(True, 2000, 1000), (False, 3100, 700)])
def test_each_loss_is_said_by_both(own_sys: bool, packets: int, length: int) -> None:
    made_losses = losses(packets, length)
    ports = {name: f"{name}{os.getpid()}" for name in made_losses}
    with (
        made_sensor(own_sys=own_sys) as made,
        here() as host,
        closing(SocketLooks(host)) as looks,
    ):
        for name, one in made_losses.items():
            made.link(ports[name], f"x{ports[name]}", mtu=one.mtu, other_mtu=one.sent_mtu)
            for program in one.programs:
                who, *kind = program.split()
                made.ask(f"open {who} {ports[name]} {' '.join(kind)}")
            one.before(made, ports[name])
        watch = Watch(peer_of=partial(peer_of, host))
        watch.look(looks())
        for name, one in made_losses.items():
            one.during(made, ports[name])
        watch.look(looks())
        for name in ("idle", "workers"):  # rings that were full all the interval
            made_losses[name].during(made, ports[name])
        found = watch.look(looks())
        audited = answer(judged(look(host)), took_s=0.0)
        assert found is not None
        printed = commands(found, audited, made)
        for command in printed:
            made.run("sh", "-c", command)  # fails if the command does
    assert len(printed) >= 6
    for name, one in made_losses.items():
        drops, audit = (said_by_drops(found, ports[name]), said_by_audit(audited, ports[name]))
        clear = ports[name] in found.clear and not drops
        assert one.drops in drops or not (one.drops or drops), (name, drops)
        assert not one.audit or any(one.audit in said for said in audit), (name, audit)
        assert not (clear and audit & LOSES), (name, audit)
        assert clear is not bool(one.drops), (name, drops)

    # Each process of a shared group has its own line, and its own cause.
    workers = [row for row in found.answer.places if row.where.endswith(ports["workers"])]
    assert {cause_of(row.why) for row in workers} == {DropCause.STOPPED, DropCause.NOT_READING}
    (refused,) = (row for row in found.answer.places if row.where == ports["mtu"])
    assert refused.total == packets
    (seen,) = (one for one in audited.findings if one.where.startswith(ports["mtu"]))
    assert seen.says.startswith(f"it refused {packets:,} packets")


@pytest.mark.parametrize(("chosen", "code"), [("idle", 1), ("well", 0)])
def test_a_loss_at_a_chosen_port_alone_fails_the_watch(chosen: str, code: int) -> None:
    ports = {name: f"{name}{os.getpid()}" for name in ("idle", "well")}
    argv = ["drops", "--port", ports[chosen], "--interval", "500ms", "--for", "3s"]
    with made_sensor(own_sys=True) as made:
        for name, port in ports.items():
            made.link(port, f"x{port}")
            made.ask(f"open {name} {port} v3")
        with subprocess.Popen(
            [sys.executable, "-m", "nodrop.cli.main", *argv, "--fail-on-loss", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watch:
            assert watch.stdout is not None
            first = WatchedInterval.model_validate_json(watch.stdout.readline())
            made.send(f"x{ports['idle']}", 4000, length=1000)
            made.send(f"x{ports['well']}", 20)
            rest, complaint = watch.communicate(timeout=60)
    assert [one.port for one in first.captures] == [ports[chosen]]
    last = WatchedInterval.model_validate_json(rest.splitlines()[-1])
    assert watch.returncode == code, complaint
    assert bool(last.places) == ("lost: socket ring" in complaint) == bool(code)
