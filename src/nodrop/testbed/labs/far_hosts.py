"""Looks at the hosts of a cable: can nodrop work there, and is the port fit for measuring?"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nodrop.errors import LabProblem
from nodrop.protocol import PortFeature, SensorSocket
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.journal import UndoReport, journal_folder, journal_words
from nodrop.testbed.hosts.local import LABEL_VARIABLE, LocalHost
from nodrop.testbed.hosts.node import ClockFix, NodeProcess, start_job
from nodrop.testbed.hosts.packages import DEBIAN
from nodrop.testbed.hosts.processes import OPEN_JOURNALS, is_dead, run_words
from nodrop.testbed.hosts.rights import CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, entering, of_job
from nodrop.testbed.hosts.ssh import BECOMING, KEPT_FOLDER, Become, SshHost
from nodrop.testbed.hosts.ssh_connection import NotReached
from nodrop.testbed.labs.api import Checked
from nodrop.testbed.labs.cable import CableEnd
from nodrop.untrusted.json_text import (
    counted,
    decode,
    decode_object,
    making_sense,
    member,
    one_line,
)

CAPABILITIES = {"NET_ADMIN": CAP_NET_ADMIN, "NET_RAW": CAP_NET_RAW, "SYS_ADMIN": CAP_SYS_ADMIN}
OFFLOADS = {
    "rx": r"rx-checksum",
    "tx": r"tx-checksum-.*",
    "sg": r"tx-scatter-gather.*",
    "tso": r"tx-tcp.*-segmentation",
    "gso": r"tx-generic-segmentation",
    "gro": r"rx-gro",
    "lro": r"rx-lro",
}
"""Name for `ethtool -K` → the kernel's names of its features: those that labs/netns.py turns off,
and LRO, which a veth has not."""
RECEIVES = re.compile(r"nodrop-([A-Za-z0-9._-]+)-rcv(?!\S)", re.ASCII)
"""The namespace of a run, with the port that it measures at."""
FAR_JOURNALS = "/root/.local/state/nodrop/undo"
"""Folder of the journals of a nodrop that has measured on a host over ssh."""
NS_PER_MS = 1e6
TC_PACKAGE = "iproute2"

Proof = Callable[[CableEnd, CableEnd, random.Random], Checked]
"""A check of a cable, from sender to receiver (labs/cable.py)."""


class ThisMachine(LocalHost):
    """This host with what is known of each host over ssh. `become`: as there, of the jobs of a user
    who is not root."""

    clock = ClockFix(offset_ns=0, bound_ns=0, real_offset_ns=0)
    node_copied = False

    def __init__(self, *, become: Become | None = None, **given: Any) -> None:
        super().__init__(**given)
        self._become = become

    def __enter__(self) -> Self:
        tried = self.run([*BECOMING[self._become], "true"], check=False)
        if tried.returncode != 0:
            raise LabProblem(
                f"{self.name}: cannot become root by {self._become}: {one_line(tried.stderr)}",
                hint="allow this user NOPASSWD (visudo), or start nodrop with sudo",
            )
        return super().__enter__()

    def job(
        self,
        spec: Mapping[str, Any],
        *,
        timeout_s: float = 30,
        cpus: str | None = None,
        cgroup: Path | None = None,
    ) -> NodeProcess:
        if self._become is None:
            return super().job(spec, timeout_s=timeout_s, cpus=cpus, cgroup=cgroup)
        caps = of_job(spec)
        words = [f"{LABEL_VARIABLE}={self.label}"]
        words += [] if caps is None else entering(self.node, caps=caps)
        words += [str(self.node), str(spec["job"])]
        return start_job(
            [*BECOMING[self._become], "env", *words, "--controlled"],
            spec,
            env=self._environment(),
            where=self.name,
            timeout_s=timeout_s,
        )

    @property
    def address(self) -> str:
        """Address by which a user, or the other half of this run, has come; empty if that is not
        known."""
        words = os.environ.get("SSH_CONNECTION", "").split()
        return words[2] if len(words) == 4 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarEnd:
    role: str
    """sender or receiver."""
    host: SshHost | ThisMachine
    ports: Sequence[str]
    """Ports, one for each cable."""


@dataclass(slots=True, kw_only=True)
class FarFacts:
    """Facts of one end, as far as the look came."""

    end: FarEnd
    seen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    facts: Json = field(default_factory=dict)

    def problem(self, words: str) -> None:
        self.problems.append(f"{self.end.host.name}: {words}")


@dataclass(slots=True, kw_only=True)
class PortLook(FarFacts):
    port: str
    half_duplex: bool = False


@dataclass(slots=True, kw_only=True)
class FarLook(FarFacts):
    ports: list[PortLook] = field(default_factory=list)
    powerless: bool = False
    """We are not root there, so no job can send or listen."""

    def checked(self) -> Checked:
        """The facts of its first port stand beside its own."""
        first, *further = [port.facts for port in self.ports] or [{}]
        return Checked(
            what=self.end.host.name,
            seen=[*self.seen, *(words for port in self.ports for words in port.seen)],
            problems=[
                *dict.fromkeys(words for one in (self, *self.ports) for words in one.problems)
            ],
            facts=self.facts | first | ({"further_ports": further} if further else {}),
        )


def check_ends(ends: Sequence[FarEnd], proof: Proof) -> list[Checked]:
    """Both ends at once, then what they say of each other, and their cables. They are left as they
    were found."""
    with ExitStack() as standing, ThreadPoolExecutor(len(ends)) as each:
        looks = list(each.map(lambda end: look_at(end, standing), ends))
        _together(looks)
        cables = list(zip(looks[0].ports, looks[-1].ports, strict=False))
        for first, last in cables:
            _mtus(first, last)
        same = _same_machine(looks[0], looks[-1])
        proved = [] if same or any(look.powerless for look in looks) else cables
        crossed = [one for both in proved for one in _cable(*both, proof)]
    return [*(look.checked() for look in looks), *crossed]


def look_at(end: FarEnd, standing: ExitStack) -> FarLook:
    """A look at one end. Its host stays connected as long as `standing`."""
    look = FarLook(end=end, facts={"role": end.role, "reached": False})
    try:
        standing.enter_context(end.host)
        look.facts["reached"] = True
        _host(look)
        for port in end.ports:
            look.ports.append(PortLook(end=end, port=port))
            _port(look.ports[-1])
    except LabProblem as problem:
        look.problems.append(str(problem))
    return look


def _host(look: FarLook) -> None:
    host = look.end.host
    found = host.probe("host")["host"]
    clock = host.clock
    look.facts |= {
        "kernel": found["kernel"],
        "machine": found["machine"],
        "cpus": found["cpu"]["cpus"],
        "governor": found["cpu"]["governor"],
        "boost": found["cpu"]["boost"],
        "smt": found["cpu"]["smt"],
        "boot_id": found["boot_id"],
        "network_namespace": found["network_namespace"],
        "node_copied": host.node_copied,
        "mono_offset_ns": clock.offset_ns,
        "real_offset_ns": clock.real_offset_ns,
        "clock_bound_ns": clock.bound_ns,
        "clock_by": clock.by,
    }
    copied = "copied" if host.node_copied else "there"
    look.seen.append(
        f"Linux {found['kernel']} {found['machine']}, {found['cpu']['cpus']} CPUs; "
        + ("this machine" if host.here else f"node {copied}; {clock_words(clock)}")
    )
    with making_sense(f"the capabilities of {host.name}"):
        effective = int(found["capabilities"] or "0", 16)
    if lacking := [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]:
        names = ", ".join(f"CAP_{name}" for name in lacking)
        look.powerless = True
        look.problem(
            f"nodrop lacks {names}; start it with sudo"
            if host.here
            else f"its root lacks {names} (a container?)"
        )


def clock_words(fix: ClockFix) -> str:
    """The wall clock's offset, which people can mend; the monotonic one is the time of a boot."""
    way = "ahead of" if fix.real_offset_ns >= 0 else "behind"
    off_ms, bound_ms = abs(fix.real_offset_ns) / NS_PER_MS, fix.bound_ns / NS_PER_MS
    by = ", by TAI" if fix.by == "TAI" else ""
    return f"its clock is {off_ms:.3f} ms {way} ours (± {bound_ms:.3f} ms{by})"


def _port(look: PortLook) -> None:
    host, port = look.end.host, look.port
    shown = host.run(["ip", "-j", "address", "show"], check=False)
    if shown.returncode == 127:
        look.problem(f"program ip is missing; install the package {DEBIAN['ip']}")
        return
    with making_sense(f"what `ip address` says on {host.name}"):
        found = {one["ifname"]: one for one in decode(shown.stdout)}
        if port not in found:
            if run := _run_with(host, port):
                mend = "wait for its end, or `nodrop undo LAB` if it died"
                look.problem(f"{run} has {port}; {mend}")
                return
            there = ", ".join(sorted(name for name in found if name != "lo")) or "none but lo"
            look.problem(f"there is no port {port} (there are: {there})")
            return
        index = int(found[port]["ifindex"])
        seen = host.probe("sensor", ports=[port])["sensor"]
        mine = {one["index"]: one for one in seen["ports"]}[index]
        look.half_duplex = mine["duplex"] == "half"
        _state(look, found[port], mine["speed_mbit"])
        _above(look, found)
        look.facts["other_ports"] = sorted(
            name
            for name, one in found.items()
            if "UP" in one["flags"] and one["link_type"] == "ether" and name != port
        )
        _listeners(look, [one for one in seen["sockets"] if one["index"] in (0, index)])
        if look.end.role == "receiver":
            _disciplines(look)
    _offloads(look, mine["features"])


def _run_with(host: SshHost | ThisMachine, port: str) -> str:
    """The run that has the port in its namespace; "" if none has."""
    for line in host.run(["ip", "netns"], check=False).stdout.splitlines():
        if found := RECEIVES.match(line):
            shown = ["ip", "-n", found[0], "link", "show", port]
            if host.run(shown, check=False).returncode == 0:
                name = f"{found[1]}.jsonl"
                living = host.run(["sh", "-c", OPEN_JOURNALS], check=False).stdout.splitlines()
                dead = f"{journal_folder() if host.here else FAR_JOURNALS}/{name}"
                journal = next((one for one in living if one.endswith(f"/{name}")), dead)
                first = host.run(["head", "-n", "1", journal], check=False).stdout
                return journal_words(found[1], first)
    return ""


def _state(look: PortLook, shown: Mapping[str, Any], speed_mbit: int | None) -> None:
    """A veth says 10000, a port that is down nothing."""
    host, port = look.end.host, look.port
    up, carrier = "UP" in shown["flags"], "LOWER_UP" in shown["flags"]
    addresses = [f"{one['local']}/{one['prefixlen']}" for one in shown["addr_info"]]
    look.facts |= {"port": port, "mtu": int(shown["mtu"]), "up": up, "carrier": carrier}
    look.facts["addresses"] = addresses
    look.facts["mac"] = str(shown["address"])
    look.facts["speed_mbit_s"] = speed_mbit
    words = "down" if not up else "up" if carrier else "up, no carrier"
    rate = f", {speed_mbit} Mbit/s" if speed_mbit else ""
    look.seen.append(f"{port}: {words}, MTU {shown['mtu']}{rate}")
    if not up:
        look.problem(f"{port} is down; `ip link set {port} up`")
    elif not carrier:
        look.problem(f"{port} has no carrier; is the cable in, and the other end up?")
    look.facts["in_bridge"] = "master" in shown
    if "master" in shown:
        look.problem(f"{port} belongs to {shown['master']}; `ip link set {port} nomaster`")
    if any(one["local"] == host.address for one in shown["addr_info"]):
        look.facts["port_of_ssh"] = True
        look.problem(f"ssh itself goes by {port} ({host.address}): measure on another port")
    elif addresses:
        look.problem(
            f"{port} has an address ({', '.join(addresses)}), so others send there and its own "
            f"stack answers; `ip address flush dev {port}`"
        )


def _above(look: PortLook, found: Mapping[str, Any]) -> None:
    """Ports that go by this one (VLAN, macvlan). A veth names its peer in the same way."""
    others = (name for name, one in found.items() if one.get("link") == look.port)
    above = [name for name in others if name != found[look.port].get("link")]
    look.facts["above"] = above
    if above:
        names = ", ".join(above)
        look.problem(
            f"{look.port} carries {names}, too (a VLAN, a macvlan), so others send there, and lose "
            f"their way when it moves; measure on another port, or `ip link delete {above[0]}`"
        )


def _listeners(look: PortLook, sockets: Sequence[SensorSocket]) -> None:
    """A problem if others take the port's frames: they have CPU time of the host for it."""
    if users := sorted({str(socket["uid"]) for socket in sockets if socket["protocol"]}):
        look.problem(
            f"a program of user {', '.join(users)} listens on {look.port} (a packet socket); end "
            "it (`ss -0pl` shows it)"
        )


def _disciplines(look: PortLook) -> None:
    """The port would come back without them. One that the kernel gives by itself has handle 0."""
    host, port = look.end.host, look.port
    shown = host.run(["tc", "-j", "qdisc", "show", "dev", port], check=False)
    if shown.returncode == 127:
        look.problem(f"program tc is missing; install the package {TC_PACKAGE}")
    if shown.returncode:
        return  # a kernel without any
    with making_sense(f"what `tc qdisc` says on {host.name}"):
        set_here = [one for one in decode(shown.stdout) if one["handle"] != "0:"]
    for one in set_here:
        at = one["kind"] if one["kind"] in ("ingress", "clsact") else "root"
        look.problem(
            f"{port} has a queueing discipline of its own ({one['kind']}), which it would lose, "
            f"and all its filters, when it moves; `tc qdisc del dev {port} {at}`"
        )


def _offloads(look: PortLook, features: Mapping[str, PortFeature]) -> None:
    on = offloads_on(features)
    look.facts["offloads_on"] = on
    if on:
        off = " ".join(f"{name} off" for name in on)
        look.problem(
            f"offloads of {look.port} hand over other frames than those on the cable; "
            f"`ethtool -K {look.port} {off}`"
        )


def offloads_on(features: Mapping[str, PortFeature]) -> list[str]:
    """Offloads that are on; fixed ones cannot be turned off and are left out."""
    on = [name for name, feature in features.items() if feature["on"] and not feature["fixed"]]
    return [knob for knob, name in OFFLOADS.items() if any(re.fullmatch(name, one) for one in on)]


def _cable(first: PortLook, last: PortLook, proof: Proof) -> list[Checked]:
    """Results of a cable. None if one of the ports cannot carry frames yet: that was said
    already."""
    ends: list[CableEnd] = []
    for look in (first, last):
        facts = look.facts
        if not (facts.get("up") and facts.get("carrier")) or facts.get("port_of_ssh"):
            return []
        ends.append(_end_of_cable(look))
    try:
        return [proof(ends[0], ends[1], random.Random())]
    except LabProblem as problem:
        return [Checked(what="cable", problems=[f"cable: {problem}"])]


def _end_of_cable(look: PortLook) -> CableEnd:
    facts, host, port = look.facts, look.end.host, look.port
    return CableEnd(
        host=host,
        port=port,
        mac=facts["mac"],
        mtu=facts["mtu"],
        others=facts["other_ports"],
        speed_mbit=facts["speed_mbit_s"],
        half_duplex=look.half_duplex,
        alone=not (facts["addresses"] or facts["in_bridge"] or facts["above"]),
    )


def _same_machine(*looks: FarLook) -> bool:
    places = {(look.facts.get("boot_id"), look.facts.get("network_namespace")) for look in looks}
    return len(places) == 1 and None not in next(iter(places))


def _together(looks: Sequence[FarLook]) -> None:
    """Reports problems that only both ends together show. Which end is at fault is not known, so
    the last one names them."""
    first, last = looks[0], looks[-1]
    if not (first.facts["reached"] and last.facts["reached"]):
        return
    if _same_machine(first, last):
        last.problem(f"is the same machine as {first.end.host.name}")


def _mtus(first: PortLook, last: PortLook) -> None:
    mtus = [look.facts.get("mtu") for look in (first, last)]
    if None not in mtus and mtus[0] != mtus[1]:
        last.problem(
            f"{last.port} has MTU {mtus[1]}, and {first.port} of {first.end.host.name} has "
            f"{mtus[0]}; give both the same (`ip link set {last.port} mtu {mtus[0]}`)"
        )


RETRY_S = 60.0
"""A host that boots, or a cable that is put back, takes less."""
PAUSE_S = 1.0
SWEEP_TIMEOUT_S = 120.0
"""Processes are asked to end, and may have something to undo themselves."""


def undo_there(
    host: SshHost, labels: Collection[str], *, everything: bool, waiting: Callable[[str], None]
) -> UndoReport:
    """Ends the runs of these labels, of controllers of ours that are gone, and of keepers that are.
    `waiting` is told once that the host is not reached yet."""
    report = UndoReport(label="", host=host.name)
    deadline = time.monotonic() + RETRY_S
    told = False
    while True:
        try:
            with host:
                _sweep(host, labels, everything, report)
            return report
        except NotReached as problem:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                report.failed.append(str(problem))
                return report
            if not told:
                waiting(f"{problem}; trying for {left_s:.0f} s")
            told = True
            time.sleep(min(PAUSE_S, left_s))
        except LabProblem as problem:
            report.failed.append(str(problem))
            return report


def _sweep(host: SshHost, labels: Collection[str], everything: bool, report: UndoReport) -> None:
    going = _swept(host, labels, everything, report)
    dead = {member(run, "label", str) for run in going if is_dead(member(run, "controller", str))}
    if dead:
        going = _swept(host, dead, everything, report)
    report.goes_on = [f"{host.name}: {run_words(run)} goes on" for run in going]


def _swept(
    host: SshHost, labels: Collection[str], everything: bool, report: UndoReport
) -> list[Json]:
    """Sweeps a host; returns the runs that go on."""
    argv = [host.node, "sweep", "--folder", KEPT_FOLDER]
    argv += [word for label in sorted(labels) for word in ("--label", label)]
    argv += ["--all"] if everything else []
    done = host.run(argv, timeout_s=SWEEP_TIMEOUT_S, check=False)
    with making_sense(f"what a sweep of {host.name} says"):
        if not done.stdout.startswith("{"):
            raise LabProblem(f"{host.name}: cannot be swept: {done.stderr.strip()}")
        said = decode_object(done.stdout)
        for one in member(said, "ended", list):
            run = member(one, "run", dict)
            words = f"{host.name}: what run {member(run, 'label', str)} left there"
            if stuck := counted(one, "stuck"):
                report.failed.append(f"{words}: {stuck} processes do not end")
            else:
                report.done.append(words)
        return [*member(said, "goes_on", list)]
