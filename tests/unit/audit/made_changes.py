"""Changes that give a made host one finding, or the nearest thing to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nodrop.audit.symmetry import Dealt
from nodrop.protocol import FlowsMet
from tests.unit.audit.made_host import LISTENER, WORKER, MadeHost, texts

Change = Callable[[MadeHost], object]


def statistic(name: str, value: int) -> Change:
    return lambda host: host.port["statistics"].update({name: value})


def after(packets: int, name: str, value: int) -> Change:
    return all_of(statistic("rx_packets", packets), statistic(name, value))


def port(**other: object) -> Change:
    return lambda host: host.port.update(other)


def machine(**other: object) -> Change:
    return lambda host: host.machine.update(other)


def slot(**other: str) -> Change:
    return lambda host: host.port["pcie"].update(other)


def spread(**other: object) -> Change:
    return lambda host: host.port["spread"].update(other)


def feature(name: str, on: bool) -> Change:
    return lambda host: host.port["features"].update({name: {"on": on, "fixed": False}})


def counter(name: str, value: int) -> Change:
    return lambda host: host.port["driver_counters"].update({name: value})


def rings(**other: object) -> Change:
    return lambda host: host.rings(**other)


def flows(together: int, both: int, kind: int = 5, seen: int = 900) -> Change:
    met = {"tcp4": FlowsMet(seen=seen, flows=both, together=together)}
    return lambda host: host.dealt.append(Dealt(kind=kind, members=4, met=met))


def counters(**values: int) -> Change:
    """Counters of Suricata; `__` stands for the dot."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    return lambda host: host.suricata["answers"]["counters"].update(named)


def interface(**values: int) -> Change:
    return lambda host: host.suricata["answers"]["ports"]["eth1"].update(values)


def yaml(text: str) -> Change:
    return lambda host: host.suricata["yaml"].update(text=texts(text))


def newer(is_newer: bool) -> Change:
    return lambda host: host.suricata["yaml"].update(newer=is_newer)


def all_of(*changes: Change) -> Change:
    return lambda host: [change(host) for change in changes]


def listener(name: str = "tcpdump", **other: object) -> Change:
    alone = replace(
        WORKER, inode=9100, version=3, fanout_id=None, fanout_type=None, blocks=16, retire_ms=1000
    )
    return lambda host: host.listen(LISTENER, name, replace(alone, **other))


def listener_lost(drops: int, packets: int, index: int = 2) -> Change:
    """A tcpdump, whose sockets alone say what it lost."""
    return listener(index=index, drops=drops, packets=packets)


def threads(*cpus: list[int]) -> Change:
    """CPUs that each worker may use."""

    def change(host: MadeHost) -> None:
        for number, allowed in enumerate(cpus, 1):
            host.suricata["threads"][number]["allowed"] = allowed

    return change


def lines(*cpus: int) -> Change:
    def change(host: MadeHost) -> None:
        for line, cpu in zip(host.port["lines"], cpus, strict=True):
            line["effective"] = [cpu]

    return change


def quota(cpus: float | None, throttled: int = 0, full: int = 0) -> Change:
    return lambda host: host.group(cpus=cpus, throttled=throttled, full=full)


def balancer(*arguments: str) -> Change:
    return machine(balancers={"700": ["irqbalance", *arguments]})


def nothing(host: MadeHost) -> None:
    del host
