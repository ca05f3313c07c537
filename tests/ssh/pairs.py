"""Runs in labs over ssh: after each the ports are as they were, and nothing is left there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Progress
from nodrop.remote.dispatch import measuring
from nodrop.testbed.hosts.processes import ended
from tests.ssh.machines import Machine, Machines, sender_and_here, two_machines

SINK = """
name = "far"
[sut]
kind = "sink"
ring_frames = 65536
[load]
kind = "replay"
trace = "make:demo"
speed = 20
[measure]
repetitions = 2
late_p99_us = 60e6 # these tests are about packets; a machine that tests is busy
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "{sender}"
{sender_ports}
[receiver]
{receiver_ports}
"""
ELSEWHERE = """\
host = "sensor1"
become = "sudo"
"""
UNUSUAL = """\
ip link set cab0 promisc on
cd /proc/sys/net/ipv4
echo 2 >conf/cab0/rp_filter
echo 1 >conf/cab0/arp_ignore
echo 7 >neigh/cab0/mcast_solicit
"""
"""Settings of a port that a new one has not."""
SHOWS = [
    ["ethtool", "-k", "cab0"],
    ["tc", "qdisc", "show", "dev", "cab0"],
    [
        "sh",
        "-c",
        "cd /proc/sys/net; grep -rs '' ipv4/conf/cab0 ipv6/conf/cab0 ipv4/neigh/cab0 || :",
    ],
]
END_S = 30.0
KEPT = {"control", "files", "node"}
"""Folders of /var/lib/nodrop that stay from one run to the next."""

Run = Callable[..., RunOutcome]


class Runnable(Protocol):
    """A lab, as the tests that are the same on each see it."""

    def lab(self, folder: Path) -> str: ...
    def shown(self) -> Any:
        """State that a run could leave otherwise than it was."""
        ...

    def nothing_is_left(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Pair:
    """A sender that is reached over ssh; the receiver is here, or such a machine, too."""

    machines: Machines
    receiver_elsewhere: bool
    ports: tuple[str, str] = ('port = "cab0"', 'port = "cab0"')
    """Ports of sender and receiver, as the lab file has them."""

    def with_ports(self, sender: Sequence[str], receiver: Sequence[str]) -> Pair:
        """The pair with several cables."""
        words = (f"ports = {json.dumps(ports)}" for ports in (sender, receiver))
        return replace(self, ports=(*words,))

    @property
    def sender(self) -> Machine:
        return self.machines.sender

    @property
    def receiver(self) -> Machine:
        return self.machines.receiver

    def lab(
        self, folder: Path, *, sender: str = "gen1", config: Path | None = None, more: str = ""
    ) -> str:
        text = LAB + (ELSEWHERE if self.receiver_elsewhere else "") + more
        path = folder / "pair.toml"
        sends, takes = self.ports
        path.write_text(
            text.format(
                config=config or self.machines.config,
                sender=sender,
                sender_ports=sends,
                receiver_ports=takes,
            )
        )
        return str(path)

    def shown(self) -> Any:
        (port,) = json.loads(self.receiver.run("ip", "-j", "-d", "address", "show", "cab0"))
        kept = ("flags", "mtu", "promiscuity", "addr_info", "ifname")
        return {name: port[name] for name in kept}, *(self.receiver.run(*argv) for argv in SHOWS)

    def nothing_is_left(self, *but: str) -> None:
        """`but`: of /var/lib/nodrop, what may be."""
        far = [self.sender, *([self.receiver] if self.receiver_elsewhere else [])]
        for machine in far:
            for pid, argv in machine.processes().items():
                if "nodrop" in argv and not argv.startswith("sshd"):
                    assert ended(pid, END_S), f"{machine.name}: still there: {argv}"
            there = machine.run("sh", "-c", "cd /var/lib && ls -A nodrop || :").split()
            assert {*KEPT, *but}.issuperset(there), f"{machine.name}: {there}"
            assert machine.run("find", "/root/.local/state", "-name", "*.jsonl") == ""
            assert machine.run("ip", "netns") == ""


@dataclass(frozen=True, slots=True)
class OneMachine:
    """The lab of one machine, for comparison."""

    def lab(self, folder: Path) -> str:
        del folder
        return "netns"

    def shown(self) -> Any:
        return None

    def nothing_is_left(self) -> None:
        """Its own tests look: other runs of this machine go on beside these."""


@contextmanager
def receiver_here(folder: Path) -> Iterator[Pair]:
    with sender_and_here(folder) as machines:
        machines.receiver.run("sh", "-euc", UNUSUAL)
        yield Pair(machines, receiver_elsewhere=False)


@contextmanager
def receiver_there(folder: Path) -> Iterator[Pair]:
    with two_machines(folder, switch=False) as machines:
        machines.receiver.run("sh", "-euc", UNUSUAL)
        yield Pair(machines, receiver_elsewhere=True)


@contextmanager
def runs_on(pair: Runnable, folder: Path) -> Iterator[Run]:
    """Runs; after them each port is as it was, and nothing is left on any machine."""
    before = pair.shown()

    def go(
        *settings: str,
        text: str = SINK,
        resume: bool = False,
        progress: Any = None,
        lab: dict[str, Any] | None = None,
        out: Path | None = None,
        file: Path | None = None,
        **given: str,
    ) -> RunOutcome:
        where = load_lab(pair.lab(folder, **(lab or {})))
        if file is None:
            file = folder / "experiment.toml"
            file.write_text(text.format(**given))
        return measuring(where)(
            load_experiment(file, settings),
            where,
            out=out or folder / "results",
            resume=resume,
            progress=progress or Progress(),
        )

    yield go
    pair.nothing_is_left()
    assert pair.shown() == before
    assert not list((folder / "state").glob("nodrop/undo/*.jsonl"))
