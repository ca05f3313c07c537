"""Changes that give a made host one finding, or the nearest thing to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nodrop.audit.symmetry import Dealt, Met
from tests.unit.audit.made_host import (
    LISTENER,
    STATISTICS_AT,
    SURICATA,
    WORKER,
    MadeHost,
)

Change = Callable[[MadeHost], object]


def statistic(name: str, value: int) -> Change:
    return lambda host: host.write(f"{STATISTICS_AT}/{name}", f"{value}\n")


def after(packets: int, name: str, value: int) -> Change:
    return all_of(statistic("rx_packets", packets), statistic(name, value))


def driver(**said: object) -> Change:
    return lambda host: host.kernel.port.update(said)


def feature(name: str, said: str) -> Change:
    return lambda host: host.kernel.port["features"].update({name: said})


def counter(name: str, value: int) -> Change:
    return lambda host: host.kernel.port["counters"].update({name: value})


def rings(**other: object) -> Change:
    return lambda host: host.rings(**other)


def flows(together: int, both: int, kind: int = 5, seen: int = 900) -> Change:
    met = {"tcp4": Met(seen=seen, flows=both, together=together)}
    return lambda host: host.dealt.append(Dealt(kind=kind, members=4, met=met))


def said(table: str, **values: int) -> Change:
    return lambda host: host.said(table, **values)


def interface(**values: int) -> Change:
    return lambda host: host.kernel.suricata_said["interfaces"]["eth1"].update(values)


def file(path: str, text: str) -> Change:
    return lambda host: host.write(path, text)


def all_of(*changes: Change) -> Change:
    return lambda host: [change(host) for change in changes]


def listener(name: str = "tcpdump", **other: object) -> Change:
    alone = replace(
        WORKER, inode=9100, version=3, fanout_id=None, fanout_type=None, blocks=16, retire_ms=1000
    )

    def change(host: MadeHost) -> None:
        host.listen(replace(alone, **other))
        host.process(LISTENER, name, {})
        host.hold(LISTENER, 9100)

    return change


def listener_lost(drops: int, packets: int, index: int = 2) -> Change:
    """A tcpdump, whose sockets alone say what it lost."""
    counts = {9100: (packets, drops)}
    return all_of(listener(index=index), lambda host: setattr(host.kernel, "counts", counts))


def threads(*cpus: str) -> Change:
    """CPUs that each worker may use."""

    def change(host: MadeHost) -> None:
        for number, said in enumerate(cpus, 1):
            status = f"Name:\tW#0{number}-eth1\nCpus_allowed_list:\t{said}\n"
            host.write(f"proc/{SURICATA}/task/{SURICATA + number}/status", status)

    return change


def lines(*cpus: int) -> Change:
    def change(host: MadeHost) -> None:
        for number, cpu in zip((30, 31), cpus, strict=True):
            host.write(f"proc/irq/{number}/effective_affinity_list", f"{cpu}\n")

    return change


def quota(text: str, **said: int) -> Change:
    return lambda host: host.group(text, **{"periods": 100, "throttled": 0, "full": 0, **said})


def process(name: str) -> Change:
    return lambda host: host.process(700, name, {})


def balancer(*arguments: str) -> Change:
    return all_of(
        process("irqbalance"), file("proc/700/cmdline", "\0".join(("irqbalance", *arguments)))
    )
