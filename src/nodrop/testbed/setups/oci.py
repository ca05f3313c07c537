"""OCI: the image in a container made by runc alone, without a daemon.

The container joins the receiver's network namespace by its path, so no NIC has to be moved, and
the unpacked image is its root, read-only, with empty folders of its own to write to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import (
    AnyJob,
    HostProcess,
    Json,
    Link,
    SpawnRequest,
    UndoAction,
    UndoJournal,
)
from nodrop.testbed.hosts.control_groups import oom_events_of, oom_kills
from nodrop.testbed.hosts.local import LABEL_VARIABLE, LocalHost, run_command
from nodrop.testbed.hosts.node import start_child
from nodrop.testbed.hosts.rights import entering, give, is_root_of_the_host, sut_user
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups import contained
from nodrop.testbed.setups.api import Limits, ProcessSpec
from nodrop.testbed.setups.contained import (
    NODE_INSIDE,
    POLL_S,
    WORK_INSIDE,
    ContainedEnv,
    ContainedJob,
    ContainedProcess,
    Ending,
    OnThisKernel,
    contained_job,
    output_files,
)
from nodrop.untrusted.folder import read_end

RUNC = "runc"
START_TIMEOUT_S = 10.0
END_TIMEOUT_S = 10.0
LONGEST_WORDS = 4096
TO_BECOME_IT = ("SETUID", "SETGID", "SETPCAP")
"""Capabilities that `enter` needs to become the SUT's user and to keep no more than it needs."""
Runc = subprocess.Popen[bytes]
WRITABLE = ("/run", "/tmp", "/var/log", "/var/tmp", "/var/lib/suricata")


class Oci(OnThisKernel):
    """A Setup (setups/api.py)."""

    name = "oci"

    def problems(self, bits: Bits | None, limits: Limits) -> Sequence[str]:
        found = [*contained.problems(self.name, bits, limits)]
        if shutil.which(RUNC) is None:
            found.append("program runc is missing; install the package runc")
        if not is_root_of_the_host():
            found.append("setup oci needs root: run nodrop as root")
        return found

    @contextmanager
    def provision(
        self, link: Link, *, bits: Bits | None, limits: Limits, work: Path, journal: UndoJournal
    ) -> Iterator[OciEnv]:
        env = OciEnv(link, bits=bits, limits=limits, work=work, journal=journal)
        try:
            yield env
        finally:
            env.close()


class OciEnv(ContainedEnv):
    """An Env (setups/api.py)."""

    def __init__(self, link: Link, *, bits: Bits | None, **given: Any) -> None:
        super().__init__(Oci.name, link, bits=bits, **given)
        # Not below the work folder, which is the SUT's: runc, as root, believes what is here.
        self._bundles = self._work.path.with_name(f"{self._work.path.name}.oci")
        self._user = sut_user()
        # Without an image the node is alone in an empty root: it brings everything it needs.
        self._root = bits.path if bits is not None else self._bundles / "empty"
        self._names: list[str] = []

    def launch(self, process: ProcessSpec) -> ContainedProcess:
        stdout, stderr = output_files(self._work.path, Path(process.argv[0]).name)
        # In the host's own namespaces: those of the container are made, or joined, by runc.
        outside = LocalHost(name=self._near.name, node=self._near.node, label=self._journal.label)
        launched, _ = self._run(
            process,
            start=lambda argv: outside.spawn(SpawnRequest(argv=argv, stdout=stdout, stderr=stderr)),
            complaint=lambda _: read_end(stderr, bytes_from_end=LONGEST_WORDS),
        )
        return launched

    def job(self, spec: Mapping[str, Any]) -> AnyJob:
        environment = {**os.environ, LABEL_VARIABLE: self._journal.label}

        def run(process: ProcessSpec) -> ContainedJob:
            launched, runc = self._run(
                process,
                start=lambda argv: start_child(argv, environment),
                complaint=lambda runc: runc.communicate()[1],
            )
            return ContainedJob(
                process=launched, stdin=runc.stdin, stdout=runc.stdout, stderr=runc.stderr
            )

        return contained_job(spec, where=Oci.name, run=run)

    def _run(
        self,
        process: ProcessSpec,
        *,
        start: Callable[[Sequence[str]], Runc],
        complaint: Callable[[Runc], bytes],
    ) -> tuple[ContainedProcess, Runc]:
        launched_ns, began_s = time.monotonic_ns(), time.monotonic()
        name, bundle = self._prepare(process)
        pid_file = bundle / "pid"
        runc = start(
            [*self._runc(), "run", "--keep", "--bundle", str(bundle),
             "--pid-file", str(pid_file), name],
        )  # fmt: skip
        self._undo.callback(_end, runc)
        pid = _pid(pid_file, runc, complaint)
        self._journal.process(pid, Path(process.argv[0]).name)
        kills = oom_events_of(pid)

        def ending() -> Ending:
            status = runc.wait(END_TIMEOUT_S)
            return Ending.of(status, out_of_memory=bool(kills and oom_kills(kills)))

        launched = self._launched(
            process,
            pid,
            launched_mono_ns=launched_ns,
            phases_s={"create": contained.since(began_s)},
            ending=ending,
            servants=[HostProcess(self.near, runc.pid)],  # it waits for the container
        )
        return launched, runc

    def facts(self) -> Json:
        said = run_command([RUNC, "--version"], where="host", timeout_s=END_TIMEOUT_S).stdout
        return {
            **super().facts(),
            "user": self._user,
            "runtime": said.splitlines()[0] if said else None,
        }

    def close(self) -> None:
        try:
            self._undo.close()
            for name in self._names:
                run_command(
                    [*self._runc(), "delete", "--force", name],
                    where="host",
                    timeout_s=END_TIMEOUT_S,
                    check=False,
                )
        finally:
            self._work.close()
            if self._user is not None:
                give(self._work.path, os.geteuid())
            shutil.rmtree(self._bundles, ignore_errors=True)

    def _runc(self) -> list[str]:
        return [RUNC, "--root", str(self._bundles / "state")]

    def _prepare(self, process: ProcessSpec) -> tuple[str, Path]:
        """The bundle on disk, and before it the order that reverses what runc will do with it."""
        name = f"nodrop-{self._journal.label}-{self._near.name}-{len(self._names)}"
        self._journal.push(
            what=f"container {name}",
            action=UndoAction.DELETE_CONTAINER,
            arguments=[str(self._bundles.absolute() / "state"), name],
        )
        bundle = self._bundles / name
        bundle.mkdir(parents=True)
        if self.bits is None:
            self._root.mkdir(exist_ok=True)
        self._names.append(name)
        shown = {Path(self._near.node): NODE_INSIDE}
        shown |= self._work.place(process.files, copies=bundle, user=self._user)
        give(self._work.path, self._user)
        (bundle / "config.json").write_text(json.dumps(self._config(name, process, shown)))
        return name, bundle

    def _config(self, name: str, process: ProcessSpec, shown: Mapping[Path, str]) -> Json:
        """The container's configuration, in the form of the OCI runtime specification 1.0."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **process.env}
        environment[LABEL_VARIABLE] = self._journal.label
        binds = {self._work.path: (WORK_INSIDE, "rw")}
        binds |= {path: (inside, "ro") for path, inside in shown.items()}
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                # It drops what it needs for that before it becomes the program.
                "args": [
                    *entering(NODE_INSIDE, user=self._user, caps=process.caps),
                    *process.argv,
                ],
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": "/",
                "capabilities": {
                    kind: [f"CAP_{name}" for name in (*process.caps, *TO_BECOME_IT)]
                    for kind in ("bounding", "effective", "permitted")
                },
                "noNewPrivileges": True,
            },
            "root": {"path": str(self._root), "readonly": True},
            "hostname": "nodrop",
            "mounts": [
                *_kernel_mounts(),
                *(_tmpfs(folder, self._user or 0) for folder in WRITABLE if self._has(folder)),
                *(_bind(path, *how) for path, how in binds.items()),
            ],
            "linux": {
                "namespaces": [
                    *({"type": kind} for kind in ("pid", "mount", "ipc", "uts")),
                    {"type": "network", "path": str(self._near.netns)},
                ],
                "cgroupsPath": f"/{name}",
                "resources": self._resources(process),
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/sys/firmware"],
                "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq"],
            },
        }

    def _resources(self, process: ProcessSpec) -> Json:
        found: Json = {"devices": [{"allow": False, "access": "rwm"}]}
        memory: Json = {}
        if (limit := self._limits.memory_bytes) is not None:
            memory = {"limit": limit, "swap": limit}
        if self._limits.swappiness is not None:
            memory |= {"swappiness": self._limits.swappiness, "swap": -1}
        if memory:
            found["memory"] = memory
        if cpus := process.cpus or self._limits.cpus:
            found["cpu"] = {"cpus": cpus}
        return found

    def _has(self, folder: str) -> bool:
        """A missing mount point would be made in the image, which is every trial's."""
        return (self._root / folder.lstrip("/")).is_dir()


def _kernel_mounts() -> list[Json]:
    safe = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": safe},
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*safe, "ro"]},
    ]


def _tmpfs(folder: str, user: int) -> Json:
    mode = "mode=1777" if folder.endswith("tmp") else "mode=755"
    return {
        "destination": folder,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "nodev", mode, f"uid={user}", f"gid={user}"],
    }


def _bind(source: Path, target: str, how: str) -> Json:
    return {
        "destination": target,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", how, "nosuid"],
    }


def _pid(file: Path, runc: Runc, complaint: Callable[[Runc], bytes]) -> int:
    """runc writes it whole, under another name first, once the container runs."""
    for _ in looks(START_TIMEOUT_S, every_s=POLL_S):
        ended = runc.poll() is not None
        if file.exists():
            return int(file.read_text())
        if ended:
            said = complaint(runc).decode(errors="replace").strip()[-500:]
            raise LabProblem(f"runc cannot make the container: {said}")
    raise LabProblem(f"runc does not start the container within {START_TIMEOUT_S:g} s")


def _end(runc: Runc) -> None:
    """The container has been killed by now, and runc ends with it."""
    try:
        runc.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        runc.kill()
        runc.wait(END_TIMEOUT_S)
