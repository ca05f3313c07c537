"""The Docker Engine of this machine: found, asked, and distinguished from one that is not there."""

from __future__ import annotations

import importlib.util
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nodrop.errors import LabProblem
from nodrop.installation import adding
from nodrop.protocol import ProcessEntry
from nodrop.testbed.hosts.node import Pipes
from nodrop.testbed.hosts.processes import labelled_processes, listener_of
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.setups.contained import Ending

if TYPE_CHECKING:
    import docker

HEAD = struct.Struct(">BxxxI")
"""Head of a part: its output (1 stdout, 2 stderr) and its length."""


class Attached(Pipes):
    """The pipes of a container."""

    def __init__(self, stream: socket.socket, reading: IO[bytes]) -> None:
        super().__init__(stream.sendall, lambda: stream.shutdown(socket.SHUT_WR))
        stream.settimeout(None)
        self._stream = stream
        self._reading = reading
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the daemon was faster
        self._thread.join()
        self._reading.close()
        self._stream.close()
        self.close_outputs()

    def _read(self) -> None:
        try:
            with self._stream.makefile("rb") as parts:
                while head := parts.read(HEAD.size):
                    number, length = HEAD.unpack(head)
                    self.inputs[number - 1].write(parts.read(length))
        except (OSError, struct.error, IndexError):
            pass  # cut off, or no reader is left
        for file in self.inputs:
            file.close()


LABEL = "nodrop.lab"
"""Label on every container; the value is the label of the run's journal."""
HOST_VARIABLES = ("NODROP_DOCKER_HOST", "DOCKER_HOST")
DEFAULT_URL = "unix:///var/run/docker.sock"
REPOSITORY = "nodrop"
"""Images are tagged nodrop:<sha256 of the root filesystem tar>, so each is imported once."""
REQUEST_TIMEOUT_S = 60.0
"""An import moves 200 MB; anything else answers within a second."""
GONE_TIMEOUT_S = 30.0
"""Time from the request on; on two CPUs with a load of 15 it took more than 8 s."""


def docker_url() -> str:
    """The daemon's address: from our own variable first, so a test can name its own daemon."""
    given = (os.environ.get(name) for name in HOST_VARIABLES)
    return next(filter(None, given), DEFAULT_URL)


def docker_problems() -> Sequence[str]:
    """Why containers cannot be made here, in words a user can act on. Touches nothing."""
    if importlib.util.find_spec("docker") is None:
        return [f"the Python package docker is missing: {adding('docker')}"]
    if not is_root_of_the_host():
        return ["a NIC is moved into a container by root only: run nodrop as root"]
    url = docker_url()
    if not url.startswith("unix://"):
        words = f"the Docker daemon {url} is not on this machine: a NIC cannot be moved there"
        return [f"{words}; set {HOST_VARIABLES[0]} to a unix:// socket"]
    try:
        _must_listen(url)
    except LabProblem as problem:
        return [str(problem)]
    return []


def _must_listen(url: str) -> None:
    """Refuses a socket on which nobody listens. Asked before each call: the SDK does not say what
    is wrong with a socket, and one that it could not connect it leaves to the garbage collector."""
    try:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(url.removeprefix("unix://"))
    except PermissionError:
        raise LabProblem(
            f"no permission to talk to the Docker daemon at {url}", hint="run nodrop as root"
        ) from None
    except OSError as error:
        raise LabProblem(
            f"no Docker daemon answers at {url} ({error.strerror or error})",
            hint=f"start it (systemctl start docker), or name another with {HOST_VARIABLES[0]}",
        ) from None


class DockerEngine:
    """The few calls we make; what the SDK raises becomes LabProblem."""

    def __init__(self, url: str | None = None) -> None:
        import docker

        self.url = url or docker_url()
        with self._told("connect"):
            self._client: docker.DockerClient = docker.DockerClient(
                base_url=self.url, timeout=int(REQUEST_TIMEOUT_S)
            )

    def facts(self) -> dict[str, Any]:
        with self._told("ask"):
            said = self._client.info()
        names = {
            "server_version": "ServerVersion",
            "storage_driver": "Driver",
            "cgroup_driver": "CgroupDriver",
            "cgroup_version": "CgroupVersion",
            "runtime": "DefaultRuntime",
            "memory_limit": "MemoryLimit",
            "swap_limit": "SwapLimit",
        }
        return {ours: said.get(theirs) for ours, theirs in names.items()}

    def image(self, sha256: str, tar: Path) -> str:
        """The id of the image with these bits; imported if the daemon has no image of that name,
        or one with other bits."""
        import docker.errors

        tag = f"{REPOSITORY}:{sha256}"
        with self._told(f"import {tar}"):
            with suppress(docker.errors.ImageNotFound):
                found = self._client.images.get(tag)
                # Docker knows a layer by the sha256 of its tar; a tag is but a name.
                if found.attrs["RootFS"].get("Layers") == [f"sha256:{sha256}"]:
                    return str(found.id)
            if not tar.exists():
                raise LabProblem(f"{tar} is gone", hint="run `nodrop image build`")
            self._client.api.import_image(src=str(tar), repository=REPOSITORY, tag=sha256)
            return str(self._client.images.get(tag).id)

    def create(self, image: str, argv: Sequence[str], **options: Any) -> str:
        """A container that Docker itself removes when it ends; its id."""
        with self._told("create a container"):
            made = self._client.containers.create(image, list(argv), auto_remove=True, **options)
            return str(made.id)

    def attach(self, container: str) -> Attached:
        """Streams to the pipes of a container that is yet to be started."""
        with self._told("attach to the container"):
            wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            raw = self._client.api.attach_socket(container, params=wanted)
        # The SDK hands out the reading file of its socket; what is written goes to the socket.
        return Attached(raw._sock, raw)

    def start(self, container: str) -> int:
        """PID of its first process in this kernel."""
        with self._told("start the container"):
            started = self._client.containers.get(container)
            started.start()
            started.reload()
            return int(started.attrs["State"]["Pid"])

    def ended(self, container: str, *, timeout_s: float) -> Ending:
        """The end of a container that has ended or is about to, from the daemon's memory of events:
        with the container its state is gone."""
        for _ in looks(timeout_s):
            with self._told("ask how the container ended"):
                # Read to its end, each time anew: the SDK cannot close a stream of events early
                # without leaving its socket to the garbage collector.
                now = f"{time.time():.9f}"
                # `until`: the API takes fractions of a second, the SDK's types do not.
                events = list(
                    self._client.events(  # type: ignore[call-overload]
                        decode=True,
                        since=0,  # all it remembers of this container: clocks may be set
                        until=now,
                        filters={"container": container, "event": ["oom", "die"]},
                    )
                )
            out_of_memory = any(event["Action"] == "oom" for event in events)
            for event in events:
                if event["Action"] == "die":
                    status = int(event["Actor"]["Attributes"]["exitCode"])
                    return Ending.of(status, out_of_memory=out_of_memory)
        raise LabProblem(f"Docker at {self.url} did not say how the container ended")

    def servants(self, pid: int, processes: Mapping[str, ProcessEntry]) -> Sequence[int]:
        """PIDs that serve a container beside it: its shim, containerd, the daemon itself. The last
        two serve other containers as well. `processes`: those of its host, by PID."""
        container = processes.get(str(pid))
        shim = container and container["parent"]
        if not shim:
            return []
        address = _option(processes.get(str(shim)), "-address")
        containerd = _listener(address, "containerd", processes)
        daemon = _listener(self.url, "dockerd", processes)
        return [one for one in (shim, containerd, daemon) if one is not None]

    def remove(self, containers: Sequence[str]) -> None:
        """Removes containers at once, whatever they do; no matter whether they are there."""
        with self._told("remove a container"):
            for container in containers:
                self._order_removal(container)
            self._until_gone(containers)

    def remove_labelled(self, label: str) -> Sequence[str]:
        """Ids of what was removed."""
        with self._told("list containers"):
            found = self._client.api.containers(all=True, filters={"label": f"{LABEL}={label}"})
        ids = [str(entry["Id"]) for entry in found]
        self.remove(ids)
        return ids

    def close(self) -> None:
        self._client.close()

    def _order_removal(self, container: str) -> None:
        import docker.errors

        try:
            self._client.api.remove_container(container, force=True)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != 409:  # its own removal is under way
                raise

    def _until_gone(self, containers: Sequence[str]) -> None:
        """Waits until containers are gone: their cgroups and mounts go before their names do."""
        left: dict[str, str] = {}
        for _ in looks(GONE_TIMEOUT_S):
            left = {one: state for one in containers if (state := self._state(one))}
            if not left:
                return
        words = ", ".join(f"{container[:12]} ({left[container]})" for container in left)
        raise LabProblem(
            f"Docker at {self.url} has not removed within {GONE_TIMEOUT_S:g} s: {words}",
            hint="see the daemon's log, then run `nodrop undo`",
        )

    def _state(self, container: str) -> str:
        """State of a container in Docker's word; "" if it is gone."""
        import docker.errors

        try:
            found = self._client.api.inspect_container(container)
        except docker.errors.NotFound:
            return ""
        return str(found["State"]["Status"])

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        import docker.errors
        import requests

        _must_listen(self.url)
        try:
            yield
        except docker.errors.APIError as error:
            said = error.explanation or str(error)
            raise LabProblem(f"Docker at {self.url} cannot {what}: {said}") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise LabProblem(
                f"the Docker daemon at {self.url} does not answer (to {what})",
                hint="see `systemctl status docker` and its log",
            ) from error


def _listener(url: str | None, program: str, processes: Mapping[str, ProcessEntry]) -> int | None:
    """PID of the process that listens on a Unix socket. If that is init, which opens sockets for
    others: the one process of this name; None if there are several."""
    if url is None:
        return None
    with socket.socket(socket.AF_UNIX) as stream:
        try:
            stream.connect(url.removeprefix("unix://"))
        except OSError:
            return None
        pid = listener_of(stream)
    if pid > 1:
        return pid
    daemons = [int(pid) for pid, process in processes.items() if process["name"] == program]
    return daemons[0] if len(daemons) == 1 else None


def _option(process: ProcessEntry | None, name: str) -> str | None:
    """The argument that a process was given after an option of this name."""
    argv = process["arguments"] if process else []
    return argv[argv.index(name) + 1] if name in argv[:-1] else None


def main(argv: Sequence[str]) -> int:
    """Removes a run's containers, for the undo journal (hosts/reversal.py)."""
    url, label = argv
    try:
        engine = DockerEngine(url)
    except LabProblem as problem:
        if labelled_processes(label):
            print(problem, file=sys.stderr)  # noqa: T201  `nodrop undo` shows it
            return 1
        # Its containers have ended, and were made to be removed by the daemon itself, at the
        # latest when it starts again.
        return 0
    with closing(engine):
        engine.remove_labelled(label)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
