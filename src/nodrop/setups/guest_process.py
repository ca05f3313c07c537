"""The SUT in a guest: its program there, its emulator and its files here."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from nodrop.errors import LabProblem
from nodrop.hosts.guest import GuestHost
from nodrop.hosts.inside import Inside, inside, seen_inside
from nodrop.hosts.seam import Host, HostProcess, Json, SampleJob
from nodrop.machines.qemu import RunningMachine
from nodrop.protocol.events import ProcessInside, SampleResult
from nodrop.setups.seam import ProcessSpec, Proof, proof_of
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder, read_end

WORK_INSIDE = "/var/nodrop"
"""On the guest's disk, which is a snapshot: logs take up no memory of the guest."""
FETCH_INTERVAL_S = 0.1
"""While rules load, every question to the guest takes time from it."""
LARGEST_FETCH_BYTES = 64 << 20
"""Limit on one file that the SUT leaves behind; a longer one stays in the guest, and is gone with
it."""
CONSOLE_BYTES = 1 << 20
KILL_TIMEOUT_S = 10.0
PATIENCE = 6
"""An emulated guest that still works off its queue answers so many times slower."""
OUT_OF_MEMORY = "Out of memory: Killed process"
"""The guest kernel's words on its console."""


class GuestProcess:
    """A Process (setups/seam.py). Its root is QEMU: what the receiving host is charged for."""

    quiet = True
    own_cgroup = False  # its control group is QEMU's surroundings on this host

    def __init__(
        self,
        machine: RunningMachine,
        process: ProcessSpec,
        *,
        near: Host,
        work: Path,
        launched_mono_ns: int,
        phases_s: Mapping[str, float],
    ) -> None:
        self.work = work
        self.launched_mono_ns = launched_mono_ns
        self.phases_s = phases_s
        self.root = HostProcess(near, machine.qemu.pid)
        program = Path(process.argv[0]).name
        self.stdout, self.stderr = work / f"{program}.stdout", work / f"{program}.stderr"
        self._machine = machine
        self._fetched_s: dict[str, float] = {}
        self._left = json_text.raised(json_text.GUEST_TRIAL_BYTES)
        self.used: Json = {}
        self._collected = False
        self._given = set(process.files)
        self._shown = [name for name, what in process.files.items() if isinstance(what, Path)]
        if not process.files:  # which make the folder
            machine.host.run(["mkdir", "-p", WORK_INSIDE])
        self._program = machine.host.spawn(
            process.argv,
            stdout=self.stdout,
            stderr=self.stderr,
            cwd=Path(WORK_INSIDE),
            env=process.env,
            cpus=process.cpus,
            caps=process.caps,
        )

    @property
    def inside_pid(self) -> int | None:
        """PID in the guest's kernel."""
        return self._program.inside_pid

    def inside(self) -> HostProcess | None:
        """The program, as the guest's node sees it; None if it has ended."""
        pid = self._program.inside_pid
        if pid is None or self._program.poll() is not None:
            return None
        return HostProcess(self._machine.host, pid)

    def look(self) -> Inside | None:
        seen = self._seen()
        # Asleep in there says nothing of what still waits outside for the emulator.
        return None if seen is None else inside(seen, cpu_ns=None)

    def proof(self) -> Proof | None:
        """By the guest's node, of the guest's own files."""
        program = self.inside()
        shown = {name: f"{WORK_INSIDE}/{name}" for name in self._shown}
        return None if program is None else proof_of(program, shown)

    def fetch(self, name: str) -> Path:
        ours = self.work / name
        now = time.monotonic()
        recent = now - self._fetched_s.get(name, 0.0) < FETCH_INTERVAL_S
        if self._collected or recent:
            return ours
        self._fetched_s[name] = now
        self._append(name)
        return ours

    def connect(self, name: str, *, timeout_s: float) -> socket.socket:
        return self._machine.host.connect(f"{WORK_INSIDE}/{name}", timeout_s=timeout_s * PATIENCE)

    def poll(self) -> int | None:
        status = self._program.poll()
        if status is not None:
            self._collect()
        return status

    def cause_of_death(self) -> str | None:
        if self._machine.qemu.poll() is not None:
            return f"its virtual machine ended (QEMU's status {self._machine.qemu.poll()})"
        console = _end_of(self._machine.console)
        said = next((line for line in reversed(console) if OUT_OF_MEMORY in line), None)
        return None if said is None else f"the guest's kernel: {said.partition('] ')[2] or said}"

    def servants(self) -> Sequence[HostProcess]:
        """vhost threads; since Linux 6.4 they are QEMU's own, and with its process."""
        near, name = self.root.host, f"vhost-{self.root.pid}"
        every = near.probe("processes")["processes"].items()
        return [HostProcess(near, int(pid)) for pid, one in every if one["name"] == name]

    def signal(self, number: int) -> None:
        try:
            self._program.send_signal(number)
        except BrokenPipeError:
            pass  # gone with its guest

    def stop(self, *, timeout_s: float) -> int:
        self._remember()
        self.signal(signal.SIGTERM)
        try:
            status = self._program.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._program.kill()
            status = self._program.wait(KILL_TIMEOUT_S)
        self._collect()
        return status

    def _seen(self) -> ProcessInside | None:
        """The SUT as the guest's node sees it; None if one of the two is gone."""
        program = self.inside()
        try:
            return None if program is None else seen_inside(program)
        except LabProblem:
            return None

    def _remember(self) -> None:
        """Records the memory used, as the guest's kernel counts it: afterwards it cannot be
        known."""
        seen = self._seen()
        if seen is None:
            return
        try:
            memory = self._machine.host.probe("host")["host"]["memory"]
        except LabProblem:
            return
        self.used = {
            "guest_memory": memory,
            "guest_sut_rss_peak_bytes": seen["rss_peak_bytes"],
        }

    def _append(self, name: str) -> None:
        """Appends what is new in a file since the last look: logs only grow. The name is the
        guest's word: one that leads out of the work folder is refused."""
        *above, last = name.split("/")
        folder = Folder(self.work, tuple(above))
        try:
            have = folder.size(last)
            new = self._machine.host.read_file(f"{WORK_INSIDE}/{name}", offset=have)
            self._left -= len(new)
            if not new or self._left < 0:
                return
            folder.make_all()
            with folder.open_to_change(last, append=True) as file:
                file.write(new)
        except (OSError, LabProblem):
            return  # not written yet, gone with its guest, or no name of a file

    def _collect(self) -> None:
        """Everything it left behind, once it has ended."""
        if self._collected:
            return
        self._collected = True
        try:
            listed = self._machine.host.run(
                ["find", WORK_INSIDE, "-type", "f", "-size", f"-{LARGEST_FETCH_BYTES}c",
                 "-printf", "%P\\n"],
            )  # fmt: skip
        except LabProblem:
            return
        for name in set(listed.stdout.splitlines()) - self._given:
            self._append(name)


def _end_of(console: Path) -> list[str]:
    said = read_end(console, bytes_from_end=CONSOLE_BYTES)
    return said.decode(errors="replace").splitlines()


INTERVAL_MS = 100
NOT_READ = {"links": 0, "load": 0, "disks": 0, "swap": 0}
"""The sampler's usual sources that are left out: every one is time that an emulated guest does not
have."""
RESULT_TIMEOUT_S = 30.0
"""An emulated guest that still works off its queue answers slowly."""


class GuestSamples:
    """A SamplesInside (setups/seam.py): a `sample` job, running from now on."""

    def __init__(self, host: GuestHost, *, pids: Sequence[int], spool: str) -> None:
        self.clock_offset_ns = host.clock_offset_ns
        self._host = host
        self._spool = spool
        self._job: SampleJob = host.job(
            {
                "job": "sample",
                "interval_ms": INTERVAL_MS,
                "every": NOT_READ,
                "pids": list(pids),
                "path": spool,
            }
        )
        self._job.start()
        self._await_first_row()

    def _await_first_row(self) -> None:
        """The load comes next, and what is used before the first row is in no figure."""
        deadline = time.monotonic() + RESULT_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                if b"\n" in self._host.read_file(self._spool):
                    return
        self._job.close()
        raise LabProblem(f"the guest's sampler wrote nothing within {RESULT_TIMEOUT_S:.0f} s")

    def finish(self) -> tuple[SampleResult, bytes]:
        self._job.stop()
        said = self._job.result(timeout_s=RESULT_TIMEOUT_S)
        return said, self._host.read_file(self._spool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()
