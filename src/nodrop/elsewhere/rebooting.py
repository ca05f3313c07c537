"""The receiver boots, so that a SUT starts on a host that nothing has used since.

Its end is seen by its boot id. Then its port, CPUs and kernel must be as they were before, and
nothing may listen on the port: what a host does not have of itself after it booted is said, and
ends the run. Nothing of it is set by us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.errors import LabProblem
from nodrop.hosts.journal import new_label
from nodrop.hosts.lease import OPEN_JOURNALS
from nodrop.hosts.seam import Json
from nodrop.hosts.ssh import COMMAND_TIMEOUT_S, SshHost
from nodrop.labs.seam import Checked, Distant

BOOT_TIMEOUT_S = 600.0
"""Servers test their memory before they boot."""
SETTLED_TIMEOUT_S = 120.0
"""Once sshd lets us in: the port gets its carrier, other services start."""
PAUSE_S = 1.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
REBOOT = f"""\
[ -z "$({OPEN_JOURNALS})" ] || exit 9
sync
systemctl reboot || reboot || shutdown -r now
"""
"""Not while another run measures there: its journal is open as long as it lives."""
BUSY = 9
STATE = ("kernel", "cpus", "governor", "boost", "smt", "port", "mtu", "offloads_on",
         "further_ports")  # fmt: skip
"""Facts that change a figure. After each boot they must be what they were before the first."""


@dataclass(slots=True)
class Rebooting:
    """The receiver's reboots in one run. `note` says what takes time."""

    lab: Distant
    note: Callable[[str], None]
    _before: Mapping[str, Any] | None = None

    def reboot(self) -> float:
        """The seconds until the receiver was as before. LabProblem if it does not get there."""
        look = self._look()
        _must_be_fit(look)
        self._before = self._before or _state(look)
        self.note(f"{look.what} boots")
        began = time.monotonic()
        old = self._begun()
        self._await_boot(old)
        self._await_state(self._before)
        return round(time.monotonic() - began, 3)

    def _look(self) -> Checked:
        return self.lab.look_at_receiver(f"reset-{new_label()}")

    def _host(self) -> SshHost:
        return self.lab.receiver(f"reset-{new_label()}")

    def _begun(self) -> str:
        """The id of the boot that ends."""
        with self._host() as host:
            old = _boot_id(host)
            if old == Path(BOOT_ID).read_text().strip():
                raise LabProblem(
                    f"{host.name} is the machine that nodrop runs on (its boot id is ours): a "
                    "reboot would end both",
                    hint='go to another machine, or leave out measure.reset = "reboot"',
                )
            try:
                done = host.run(["sh", "-c", REBOOT], timeout_s=COMMAND_TIMEOUT_S, check=False)
            except LabProblem:
                return old  # the line went with the host: its next boot shows it
            if done.returncode == BUSY:
                raise LabProblem(
                    f"{host.name}: another run is there, so it does not boot",
                    hint="wait for its end, or end it there (`nodrop undo --all`)",
                )
            return old

    def _await_boot(self, old: str) -> None:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            try:
                with self._host() as host:
                    if _boot_id(host) != old:
                        return
                    seen = f"{host.name}: it has not booted"
            except LabProblem as problem:  # it is down, or lets nobody in yet
                seen = str(problem)
            if time.monotonic() > deadline:
                raise LabProblem(f"{seen}, {BOOT_TIMEOUT_S:g} s after it was to boot")
            time.sleep(PAUSE_S)

    def _await_state(self, before: Mapping[str, Any]) -> None:
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while True:
            look = self._look()
            others = [*look.problems, *_differences(look, before)]
            if not others:
                return
            if time.monotonic() > deadline:
                raise LabProblem(
                    f"after it booted: {others[0]}",
                    hint="let the host set it when it boots",
                )
            time.sleep(PAUSE_S)


def _boot_id(host: SshHost) -> str:
    return host.run(["cat", BOOT_ID]).stdout.strip()


def _must_be_fit(look: Checked) -> None:
    if look.problems:
        raise LabProblem(look.problems[0])


def _state(look: Checked) -> Json:
    return {name: look.facts.get(name) for name in STATE}


def _differences(look: Checked, before: Mapping[str, Any]) -> list[str]:
    now = _state(look)
    return [
        f"{look.what}: {name} is {now[name]}, and was {before[name]}"
        for name in STATE
        if now[name] != before[name]
    ]
