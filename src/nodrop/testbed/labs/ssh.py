"""The lab of two machines, each reached over the user's own ssh, and a cable between them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from nodrop.config.lab_file import FarName, StorageTable
from nodrop.config.options import InputFile, Name, Options, check
from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts.api import Completed, Json, LabPort, Link, UndoJournal
from nodrop.testbed.hosts.folders import is_root_of_host
from nodrop.testbed.hosts.journal import UndoReport, new_label
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.packages import DEBIAN
from nodrop.testbed.hosts.relay import RELAY_VARIABLE, Held, HeldHere
from nodrop.testbed.hosts.ssh import BECOMING, PATH, Become, SshHost
from nodrop.testbed.hosts.ssh_connection import SshConnection
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs import driver
from nodrop.testbed.labs.api import Checked, HostPreparation, Lab, Storage
from nodrop.testbed.labs.cable import prove, prove_one_way
from nodrop.testbed.labs.far_hosts import (
    TC_PACKAGE,
    FarEnd,
    Proof,
    ThisMachine,
    check_ends,
    look_at,
    undo_there,
)
from nodrop.testbed.labs.netns import CARRIER_TIMEOUT_S, ETHERNET_HEADER_BYTES, PortName
from nodrop.testbed.labs.nic import NO_CARRIER, taken
from nodrop.untrusted.json_text import decode, making_sense, one_line

LOOK_TIMEOUT_S = 30.0
APT_TIMEOUT_S = 600.0
LOOK = """\
user=$(id -un 2>/dev/null || id -u)
echo "user $user"
. /etc/os-release 2>/dev/null
echo "system ${PRETTY_NAME:-unknown}"
command -v apt-get >/dev/null && echo "apt yes"
for program in "$@"; do
  command -v "$program" >/dev/null && echo "has $program"
done
exit 0
"""
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get")
INSTALL = ("install", "--yes", "--no-install-recommends")
LOGIN = 'a login as root (`User root` in ~/.ssh/config), or become = "sudo" in the lab file'

Run = Callable[[Sequence[str], float], Completed]
"""A program on the host, as the user who logs in there, for so many seconds at most."""


@dataclass(slots=True)
class _HostState:
    user: str = "unknown"
    system: str = "unknown"
    has_apt: bool = False
    has: list[str] = field(default_factory=list)
    is_root: bool = False


def prepare(
    name: str,
    run: Run,
    *,
    become: Become | None,
    packages: Mapping[str, str],
    do_it: bool,
    or_else: str = LOGIN,
) -> HostPreparation:
    """`packages`: programs that nodrop runs there → the Debian package of each. With `do_it` they
    are installed if the host is Debian's, and nothing else is done. `or_else`: how a user who is
    not root is to become it."""
    if become:
        packages = {become: become, **packages}
    seen = _look(run, become, packages)
    did: list[str] = []
    failed = ""
    missing = _missing(seen, packages)
    if do_it and missing and seen.is_root and seen.has_apt:
        failed = _install(run, become, missing, did)
        seen = _look(run, become, packages)
        missing = _missing(seen, packages)
    needs = [] if seen.is_root else [_root_words(seen, become, or_else)]
    if missing:
        needs.append(_package_words(seen, missing) + failed)
    root = ["root by sudo" if become else "root"] if seen.is_root else []
    has = [program for program in seen.has if program != become]
    return HostPreparation(host=name, has=[seen.system, *root, *has], needs=needs, did=did)


def _look(run: Run, become: Become | None, packages: Mapping[str, str]) -> _HostState:
    seen = _HostState()
    said = run(["env", f"PATH={PATH}", "sh", "-c", LOOK, "nodrop", *packages], LOOK_TIMEOUT_S)
    for line in said.stdout.splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "user":
                seen.user = one_line(rest, longest=60)
            case "system":
                seen.system = one_line(rest, longest=60)
            case "apt":
                seen.has_apt = True
            case "has" if rest in packages:
                seen.has.append(rest)
    root = run([*BECOMING[become], "id", "-u"], LOOK_TIMEOUT_S)
    seen.is_root = root.returncode == 0 and root.stdout.strip() == "0"
    return seen


def _missing(seen: _HostState, packages: Mapping[str, str]) -> list[str]:
    return sorted({package for program, package in packages.items() if program not in seen.has})


def _root_words(seen: _HostState, become: Become | None, or_else: str) -> str:
    if become is None:
        return f"{or_else}: user {seen.user} is not root"
    line = f"{seen.user} ALL=(ALL) NOPASSWD: ALL"
    return f"one line in sudoers, by `visudo -f /etc/sudoers.d/nodrop` as its root: {line}"


def _package_words(seen: _HostState, missing: Sequence[str]) -> str:
    named = "package" if len(missing) == 1 else "packages"
    how = (
        f"`{shlex.join(['apt-get', 'install', '--no-install-recommends', *missing])}` as its root"
        if seen.has_apt
        else "by the package manager of that system, where they may be called otherwise"
    )
    return f"{named} {', '.join(missing)}: {how}"


def _install(run: Run, become: Become | None, missing: Sequence[str], did: list[str]) -> str:
    """Why it did not work; "" if it did. The lists of packages are made new only if need be."""
    rooted = [*BECOMING[become], *APT]
    said = Completed(argv=(), returncode=1, stdout="", stderr="", seconds=0)
    for words in ((*INSTALL, *missing), ("update",), (*INSTALL, *missing)):
        said = run([*rooted, *words], APT_TIMEOUT_S)
        shown = shlex.join(["apt-get", *words])
        did.append(f"`{shown}`" + ("" if said.returncode == 0 else f" failed ({said.returncode})"))
        if said.returncode == 0 and words[0] == "install":
            return ""
    lines = [line for line in said.stderr.splitlines() if line.strip()]
    return f"; apt-get says: {one_line(lines[-1] if lines else 'nothing', longest=300)}"


FROM_THERE = (
    "its receiver is another machine, and only `nodrop run`, `capacity`, `profile`, `ab` and "
    "`doctor` go there by themselves; start this on the receiver, without receiver.host"
)
AT_THE = {
    "sender": 'become = "sudo" in [sender], or a start of nodrop with sudo',
    "receiver": "a start of nodrop with sudo",
}
"""How a user who sits there becomes root."""
MOST_CABLES = 4
PROGRAMS = {program: DEBIAN[program] for program in ("ip", "ethtool")}
PROGRAMS_OF_RECEIVER = {"tc": TC_PACKAGE, "sysctl": DEBIAN["sysctl"], "python3": "python3"}
"""Programs that nodrop runs on a host → the Debian package of each."""


class SshEnd(Options):
    host: FarName | None = None
    """The host as ~/.ssh/config knows it. Left out: the machine that nodrop is started on."""
    port: PortName | None = None
    """Port at the cable."""
    ports: tuple[PortName, ...] = ()
    """Instead of `port`: of several cables, in the order of the other end's."""
    become: Become | None = None
    """How the user who logs in becomes root; left out: root logs in."""

    @model_validator(mode="after")
    def _port_or_ports(self) -> Self:
        if (self.port is None) == (not self.ports):
            raise ValueError("port: name the port at the cable, or `ports` of several cables")
        if len(set(self.at_cables)) < len(self.at_cables) or len(self.at_cables) > MOST_CABLES:
            raise ValueError(
                f"ports = {list(self.ports)}: must be different ports, {MOST_CABLES} at most"
            )
        return self

    @property
    def at_cables(self) -> tuple[str, ...]:
        return self.ports if self.port is None else (self.port,)


class SshFile(Options):
    name: Name
    kind: Literal["ssh"]
    """ssh: two machines and a cable between them."""
    sender: SshEnd
    receiver: SshEnd
    ssh_config: InputFile | None = None
    """Configuration instead of ~/.ssh/config."""
    storage: StorageTable | None = None
    """Keeps what samplers wrote, and large files of the SUT. Left out: they stay in the run
    directory."""


def from_file(table: Mapping[str, Any], *, base: Path) -> SshLab:
    file = check(SshFile, table, table="", base=base)
    if file.sender.host is None and file.receiver.host is None:
        raise BadInput("sender.host: missing; one of sender and receiver must be another machine")
    if file.sender.host == file.receiver.host:
        raise BadInput(f'receiver.host = "{file.receiver.host}": must not be the sender\'s host')
    sends, takes = len(file.sender.at_cables), len(file.receiver.at_cables)
    if sends != takes:
        raise BadInput(
            f"receiver.ports: {takes} for {sends} of the sender; each cable has a port at both ends"
        )
    if file.receiver.become and file.receiver.host is None:
        raise BadInput("receiver.become: goes with receiver.host; start nodrop itself with sudo")
    relay = os.environ.get(RELAY_VARIABLE)
    return SshLab(file, relay=Path(relay) if relay else None)


class SshLab(Lab):
    """Hosts over ssh. The sender stays connected for a run; the receiver's port is in a
    network namespace of its own for each trial.

    `relay`: we are on the receiver, for another machine that holds the connection to the sender."""

    def __init__(self, file: SshFile, *, frame_bytes: int = 0, relay: Path | None = None) -> None:
        self.name = file.name
        self._relay = relay
        self.ports = (file.sender.at_cables[0], file.receiver.at_cables[0])
        self.cables = len(file.receiver.at_cables)
        self._file = file
        self._ends = (("sender", file.sender), ("receiver", file.receiver))
        self._frame_bytes = frame_bytes
        self._sender: SshHost | None = None
        self._seen: Sequence[Checked] = ()

    def carrying(self, frame_bytes: int) -> SshLab:
        return SshLab(self._file, frame_bytes=frame_bytes, relay=self._relay)

    @property
    def receiver_elsewhere(self) -> bool:
        return self._file.receiver.host is not None and self._relay is None

    def receiver(self, label: str) -> SshHost:
        """The host where nodrop itself must go."""
        end = self._file.receiver
        assert end.host is not None
        return self._ssh("receiver", end.host, end.become, label, holds=False)

    def cannot_reset(self, how: str) -> str:
        if how == "reboot" and self._file.receiver.host is None:
            return (
                "its receiver is the machine that nodrop runs on, and both would end; go to "
                "another machine and name this one there (receiver.host)"
            )
        return ""

    def driver_problems(self) -> Sequence[str]:
        return [words for port in self._file.receiver.at_cables for words in driver.problems(port)]

    def load_driver(self, journal: UndoJournal) -> None:
        for port in self._file.receiver.at_cables:
            driver.load_anew(port, journal)

    def look_at_receiver(self, label: str) -> Checked:
        end = self._file.receiver
        with ExitStack() as standing:
            host = self._host_of("receiver", end, label)
            return look_at(
                FarEnd(role="receiver", host=host, ports=end.at_cables), standing
            ).checked()

    def held_sender(self) -> Held:
        """The means to begin programs on the sender, from this machine."""
        host = self._file.sender.host
        if host is None:
            return HeldHere("sender")
        return SshConnection(host, name=f"sender {host}", config=self._file.ssh_config)

    def ends(self) -> Sequence[tuple[str, str]]:
        return [(end.host or "", port) for _, end in self._ends for port in end.at_cables]

    def storage(self) -> Storage | None:
        """None also on the receiver, if another machine keeps the run."""
        found = self._file.storage
        if found is None or self._relay is not None:
            return None
        return Storage(found.host, found.path, config=self._file.ssh_config)

    def problems(self) -> Sequence[str]:
        if self.receiver_elsewhere:
            return [FROM_THERE]
        if not is_root_of_host():
            ports = ", ".join(self._file.receiver.at_cables)
            return [f"no permission to take port {ports} of this machine; run as root (sudo)"]
        self._seen = self._looked(prove_one_way)
        return [*(words for one in self._seen for words in one.problems), *self._too_long()]

    def cpus_in_common(self) -> AbstractSet[int]:
        """CPUs of this process, which is on the receiver, if the sender has the same kernel; else
        none."""
        boots = [one.facts.get("boot_id") for one in self._seen if "role" in one.facts]
        one_kernel = len(boots) == 2 and boots[0] is not None and boots[0] == boots[1]
        return os.sched_getaffinity(0) if one_kernel else set()

    def _too_long(self) -> Sequence[str]:
        needed = self._frame_bytes - ETHERNET_HEADER_BYTES
        return [
            f"{one.what}: MTU {mtu} of {port['port']} is too small for frames of "
            f"{self._frame_bytes} bytes; `ip link set {port['port']} mtu {needed}`"
            for one in self._seen
            for port in (one.facts, *one.facts.get("further_ports", ()))
            if (mtu := port.get("mtu")) is not None and mtu < needed
        ]

    @contextmanager
    def connected(self, journal: UndoJournal) -> Iterator[SshHost]:
        sender = self._host_of("sender", self._file.sender, journal.label)
        assert isinstance(sender, SshHost)  # the receiver is here
        with sender:
            self._sender = sender
            try:
                yield sender
            finally:
                self._sender = None

    def lacking(self, program: str) -> str:
        with self._host_of("sender", self._file.sender, f"look-{new_label()}") as sender:
            asked = sender.run(["sh", "-c", 'command -v "$0"', program], check=False)
            way = f"apt-get install {program} there"
            words = f"{sender.name}: {program} is not installed there; {way}"
            return words if asked.returncode else ""

    @contextmanager
    def up(self, journal: UndoJournal) -> Iterator[Link]:
        if self.receiver_elsewhere:
            raise LabProblem(FROM_THERE)
        with ExitStack() as standing:
            if self._sender is None:
                standing.enter_context(self.connected(journal))
            sender, near, far = self._sender, self._file.sender, self._file.receiver
            assert sender is not None
            if sender.gone():
                sender.close()
                sender.__enter__()
            receiver = standing.enter_context(
                taken(far.at_cables, journal, name="receiver", node=find_node_binary())
            )
            for tx in near.at_cables:
                _wait_for_carrier(sender, tx)
            first, *further = (
                (LabPort(host=sender, name=tx), LabPort(host=receiver, name=rx))
                for tx, rx in zip(near.at_cables, far.at_cables, strict=True)
            )
            yield Link(tx=first[0], rx=first[1], further=further)

    def facts(self) -> Json:
        return {
            "kind": "ssh",
            "name": self.name,
            "hosts": {role: end.model_dump(exclude_none=True) for role, end in self._ends},
            # A receiver is called so, wherever nodrop is started.
            "seen": {
                "receiver" if one.facts.get("role") == "receiver" else one.what: one.facts
                for one in self._seen
                if one.facts
            },
        }

    def check(self) -> Sequence[Checked]:
        """Both hosts at once, then the storage. Changes nothing there, but the node is copied."""
        return self._looked(prove)

    def undo(
        self, labels: Collection[str], *, everything: bool, waiting: Callable[[str], None]
    ) -> Sequence[UndoReport]:
        label = f"undo-{new_label()}"
        hosts = [
            self._ssh(role, end.host, end.become, label, holds=False)
            for role, end in self._ends
            if end.host is not None
        ]

        def undone(host: SshHost) -> UndoReport:
            return undo_there(host, labels, everything=everything, waiting=waiting)

        with ThreadPoolExecutor(len(hosts)) as each:
            return [*each.map(undone, hosts)]

    def prepare(self, *, do_it: bool) -> Sequence[HostPreparation]:
        with ThreadPoolExecutor(len(self._ends)) as each:
            return [*each.map(lambda end: self._prepared(*end, do_it=do_it), self._ends)]

    def _prepared(self, role: str, end: SshEnd, *, do_it: bool) -> HostPreparation:
        name = _named(role, end.host)
        packages = {**PROGRAMS, **(PROGRAMS_OF_RECEIVER if role == "receiver" else {})}
        given: Mapping[str, Any] = {"become": end.become, "packages": packages, "do_it": do_it}
        if end.host is None:

            def here(argv: Sequence[str], timeout_s: float) -> Completed:
                return run_command(argv, where=name, timeout_s=timeout_s, check=False)

            return prepare(name, here, **given, or_else=AT_THE[role])
        try:
            with SshConnection(end.host, name=name, config=self._file.ssh_config) as there:
                return prepare(
                    name,
                    lambda argv, timeout_s: there.run(argv, timeout_s=timeout_s, check=False),
                    **given,
                )
        except LabProblem as problem:
            words = str(problem).removeprefix(f"{name}: ").removeprefix("not reached: ")
            return HostPreparation(host=name, has=(), needs=[f"to be reached: {words}"], did=())

    def _looked(self, proof: Proof) -> Sequence[Checked]:
        if self._relay is None and shutil.which("ssh") is None:
            words = "program ssh is missing here; install the package openssh-client"
            return [Checked(what="this machine", problems=(words,))]
        label = f"check-{new_label()}"
        ends = [
            FarEnd(role=role, host=self._host_of(role, end, label), ports=end.at_cables)
            for role, end in self._ends
        ]
        return [*check_ends(ends, proof), *self._storage_looked()]

    def _storage_looked(self) -> Iterator[Checked]:
        if (storage := self.storage()) is None:
            return
        try:
            with storage:
                free = f"{storage.free_bytes / 1e9:.1f} GB are free"
                seen = [f"{storage.path} can be written to, {free}"]
                yield Checked(what=storage.name, seen=seen)
        except LabProblem as problem:
            yield Checked(what=storage.name, problems=[str(problem)])

    def _host_of(self, role: str, end: SshEnd, label: str) -> SshHost | ThisMachine:
        if end.host is None if self._relay is None else role == "receiver":
            become = end.become if end.host is None else None  # else nodrop itself is root there
            node, name = find_node_binary(), _named(role, end.host)
            return ThisMachine(become=become, name=name, node=node, label=label)
        return self._ssh(role, end.host, end.become, label)

    def _ssh(
        self,
        role: str,
        host: str | None,
        become: Become | None,
        label: str,
        *,
        holds: bool = True,
    ) -> SshHost:
        return SshHost(
            host or role,
            name=_named(role, host),
            label=label,
            become=become,
            config=self._file.ssh_config,
            holds=holds,
            relay=self._relay,
        )


def _named(role: str, host: str | None) -> str:
    """The end's name as it is known to the user, who may have come from another machine."""
    return f"{role} {host}" if host else role


def _wait_for_carrier(host: SshHost, port: str) -> None:
    """The receiver's port was down while it moved, and so was the cable."""
    for _ in looks(CARRIER_TIMEOUT_S):
        with making_sense(f"what `ip link` says on {host.name}"):
            shown = decode(host.run(["ip", "-j", "link", "show", port]).stdout)[0]
            if carries(shown):
                return
            state = shown["operstate"]
    raise LabProblem(
        f"{host.name}: {port} is {state}, not UP, after {CARRIER_TIMEOUT_S:g} s",
        hint=NO_CARRIER,
    )


def carries(shown: Json) -> bool:
    """The port carries packets, by `ip -j link`. A driver that never reports its link (a tap) stays
    UNKNOWN: its carrier is on from the beginning, and it sends once it has a queue."""
    if shown["operstate"] == "UNKNOWN":
        return "LOWER_UP" in shown["flags"] and shown["qdisc"] != "noop"
    return bool(shown["operstate"] == "UP")
