"""One connection of the user's own OpenSSH to a host, which all that is started there shares.

What `~/.ssh/config` says of the host applies: user, key, agent, port, ProxyJump, known hosts. Only
what could ask, forward or outlive us is forbidden here. The connection is an ssh process whose
remote side reads its stdin: if this process dies, however, that stdin ends, and with it all.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shlex
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from nodrop.errors import LabProblem, NotReady
from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.folders import uid_of_host
from nodrop.testbed.hosts.local import LABEL_VARIABLE, STDERR_SHOWN_CHARACTERS
from nodrop.testbed.hosts.processes import (
    ProcessId,
    end_process,
    environment,
    is_dead,
    listener_of,
    this_process,
)
from nodrop.untrusted.json_text import one_line

CONNECT_TIMEOUT_S = 10
"""Limit for the TCP connection; the host is given as long again to let us in."""
ALIVE_INTERVAL_S, ALIVE_TIMES = 5, 3
"""Time without an answer after which a host is gone."""
END_TIMEOUT_S = 2.0
GREETING_LIMIT_BYTES = 64 * 1024
"""Limit on what a login shell says before its first command."""
STANDS = "nodrop-stands"
GREET = f"printf '\n{STANDS} %s\\n' \"$SSH_CONNECTION\"; exec env {{carrying}} cat >/dev/null"
"""Command with a quoted line break, which csh does not read: scripts of ours have such breaks."""
CONTROLLER_VARIABLE = "NODROP_CONTROLLER"
"""Variable in the environment of an ssh that holds a connection: names whose it is."""
LONGEST_SOCKET_FOLDER = 60
"""A socket's path has at most 107 bytes, and ssh adds 17 of its own while it makes one."""
OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
    "ControlPersist": "no",
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": str(ALIVE_INTERVAL_S),
    "ServerAliveCountMax": str(ALIVE_TIMES),
}
"""Options that go before the user's own: no question, no forwarded agent or port, nothing that
stays."""
FAILURES = {
    r"REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "not reached: its host key is another than the one that is known",
        "find out why before you trust it; then `ssh-keygen -R` removes the old one",
    ),
    r"No \S+ host key is known|Host key verification failed": (
        "not reached: its host key is not known",
        "log in once by hand (`ssh {host}`) and compare the key",
    ),
    r"Permission denied \(([^)]*)\)": (
        "not reached: it does not accept our key ({found})",
        "`ssh {host} true` must work without a question (key, agent, user)",
    ),
    r"Unmatched '": (
        "not reached: its login shell does not read what sh reads (csh?)",
        "give that user another (`chsh -s /bin/sh`), or log in as one who has",
    ),
    r"Could not resolve hostname": (
        "not reached: no such host is known by name",
        "give it a HostName in ~/.ssh/config; a port of this host is no HOST: "
        "`nodrop drops`, `nodrop audit --port {host}`",
    ),
}
"""Pattern of ssh's message → its meaning here, and what to do. The first that fits counts."""
PASSING = {
    r"Connection refused": ("not reached: no ssh server listens there", "start sshd there"),
    r"(No route to host|Network is unreachable|[Tt]imed out)": (
        "not reached: {found}",
        "see whether it is up and the network goes there",
    ),
}
"""Failures that may pass, in the form of `FAILURES`."""
NO_SESSION = "Session open refused by peer"
"""ssh's message if sshd takes no further session into a connection."""
TOO_FEW_SESSIONS = (
    "its sshd takes too few conversations into one connection; `MaxSessions 10` in its sshd_config"
)
UNASKED = {"LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
"""ssh's words are read here, so they are to be in English. And nothing may ask: not the ssh of a
jump host either, which knows no BatchMode. So none has a terminal, or a window for it."""


def too_few_sessions(said: str) -> str:
    """The cause, where ssh said that sshd takes no further session into its connection; else ""."""
    return f": {TOO_FEW_SESSIONS}" if NO_SESSION in said else ""


class NotReached(LabProblem):
    """The host may be reached in a while: it boots, or the network is down."""


class SshConnection:
    """A connection to be opened, and closed. `host` is what the user would write after `ssh`."""

    def __init__(
        self,
        host: str,
        *,
        name: str | None = None,
        config: Path | None = None,
        label: str = "",
    ) -> None:
        """`label`: is carried by the ssh that holds the connection, here and there."""
        self.host = host
        carrying = {LABEL_VARIABLE: label} if label else {}
        self._environment = {**os.environ, **UNASKED}
        ours = {**carrying, CONTROLLER_VARIABLE: this_process()}
        self._holding = {**self._environment, **ours}
        self._greet = GREET.format(carrying=shlex.join(f"{k}={v}" for k, v in carrying.items()))
        self.name = name or host
        self.address = ""
        """The host's address as ssh reached it; empty before, and if ssh used no network."""
        self._config = config
        self._master: subprocess.Popen[bytes] | None = None
        self._socket = Path()

    def __enter__(self) -> Self:
        """LabProblem, in one sentence, if the host is not reached."""
        self._socket = socket_folder() / secrets.token_hex(6)
        argv = self._ssh(["-M", "-S", str(self._socket)], self._greet)
        try:
            self._master = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._holding,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise NotReady("program ssh is missing", hint="install openssh-client") from None
        try:
            self.address = self._greeted(self._master)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and whatever still goes by it."""
        master, self._master = self._master, None
        if master is None:
            return
        for pipe in (master.stdin, master.stdout, master.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        master.terminate()  # it would wait for a program that does not end
        try:
            master.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            master.kill()
            master.wait()
        self._socket.unlink(missing_ok=True)

    def hang_up(self) -> None:
        """The program that holds the connection ends there; we may hear of it yet."""
        if self._master is not None and self._master.stdin is not None:
            with suppress(OSError):
                self._master.stdin.close()

    def shared(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on the host through this connection, and no other way: with
        the connection gone it ends at once, for its ProxyCommand leads nowhere."""
        return self.command(shlex.join(argv))

    def command(self, words: str) -> list[str]:
        """The command that runs `words` in a shell of the host, through this connection alone."""
        ours = ["-S", str(self._socket), "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]
        return self._ssh(ours, words)

    def environment(self) -> Mapping[str, str]:
        """Environment for what `shared` says."""
        return self._environment

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        check: bool = True,
        stdin: str | IO[bytes] = "",
        shown: str = "",
    ) -> Completed:
        """A program on the host to its end; `stdin` may be a file. `shown` names it in a message.

        LabProblem on failure if `check`, and in any case if the connection is gone."""
        words = shown or shlex.join(argv)
        given: dict[str, Any] = (
            {"input": stdin.encode()} if isinstance(stdin, str) else {"stdin": stdin}
        )
        began_s = time.monotonic()
        try:
            done = subprocess.run(
                self.shared(argv),
                **given,
                capture_output=True,
                env=self._environment,
                timeout=timeout_s,
                check=False,
                process_group=0,
            )
        except subprocess.TimeoutExpired:
            raise LabProblem(f"{self.name}: `{words}` took longer than {timeout_s:g} s") from None
        out, err = (said.decode(errors="replace") for said in (done.stdout, done.stderr))
        if done.returncode == 255 and self.gone():
            raise NotReached(f"{self.name}: the ssh connection is gone (during `{words}`)")
        if done.returncode == 255 and (why := too_few_sessions(err)):
            raise LabProblem(f"{self.name}{why}")
        if check and done.returncode != 0:
            said = (err or out).strip()[-STDERR_SHOWN_CHARACTERS:]
            raise LabProblem(f"{self.name}: `{words}` failed ({done.returncode}): {said}")
        return Completed(
            argv=tuple(argv),
            returncode=done.returncode,
            stdout=out,
            stderr=err,
            seconds=time.monotonic() - began_s,
        )

    def gone(self, *, within_s: float = 0) -> bool:
        """Nothing can be started on the host any more."""
        if self._master is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            self._master.wait(within_s)
        return self._master.poll() is not None

    def _ssh(self, ours: Sequence[str], command: str) -> list[str]:
        config = ["-F", str(self._config)] if self._config else []
        options = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
        return ["ssh", *config, *ours, *options, "--", self.host, command]

    def _greeted(self, master: subprocess.Popen[bytes]) -> str:
        """Waits until the host's shell speaks; the address that it was reached by."""
        assert master.stdout is not None
        said = b""
        deadline = time.monotonic() + 2 * CONNECT_TIMEOUT_S
        while (left_s := deadline - time.monotonic()) > 0 and len(said) < GREETING_LIMIT_BYTES:
            if not select.select([master.stdout], [], [], left_s)[0]:
                break
            chunk = os.read(master.stdout.fileno(), 4096)
            if not chunk:
                raise self._failure(master)
            said += chunk
            if found := re.search(rb"^%s ?(.*)\n" % STANDS.encode(), said, re.MULTILINE):
                if noise := said[: found.start()].decode(errors="replace").strip():
                    shown = one_line(noise, longest=60)
                    raise LabProblem(
                        f"{self.name}: not reached: its login shell says {shown!r} before each "
                        "answer",
                        hint=self._quiet(),
                    )
                words = found[1].decode(errors="replace").split()
                return words[2] if len(words) == 4 else ""
        # ssh makes this socket once the host has let it in: before, no shell is to blame.
        raise (
            self._not_greeted()
            if self._socket.exists()
            else NotReached(
                f"{self.name}: not reached: it took the connection and gave ssh no answer for "
                f"{2 * CONNECT_TIMEOUT_S:g} s: the host or its sshd hangs",
                hint=f"`ssh -v {self.host} true` says where it stops",
            )
        )

    def _not_greeted(self) -> NotReached:
        words = f"{self.name}: not reached: its login shell says no word of ours"
        return NotReached(words, hint=self._quiet())

    def _quiet(self) -> str:
        return f"`ssh {self.host} true` must end at once, without output"

    def _failure(self, master: subprocess.Popen[bytes]) -> LabProblem:
        """Why there is no connection, in one sentence."""
        assert master.stderr is not None
        try:
            master.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            master.kill()
        said = master.stderr.read(GREETING_LIMIT_BYTES).decode(errors="replace")
        for failures, kind in ((FAILURES, LabProblem), (PASSING, NotReached)):
            for pattern, (words, hint) in failures.items():
                if found := re.search(pattern, said):
                    detail = found[found.re.groups].lower() if found.re.groups else ""
                    sentence = f"{words}; {hint}".format(found=detail, host=self.host)
                    return kind(f"{self.name}: {sentence}")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        if not lines:
            return self._not_greeted()
        return NotReached(f"{self.name}: not reached: {lines[-1]}")


def end_orphans() -> None:
    """Connections whose controller is gone: their ssh would wait for a line that is down. Their
    sockets, too, and those of an ssh that was killed."""
    folder = _socket_place()
    for path in folder.iterdir() if folder.is_dir() else ():
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(path))
                pid = listener_of(asking)
            except ConnectionRefusedError:
                pid = 0
            except OSError:
                continue  # it has just gone, or is none of ours
        if pid and not any(is_dead(words) for words in _controllers(pid)):
            continue
        if found := ProcessId.find(pid):
            end_process(found)
        path.unlink(missing_ok=True)


def _controllers(pid: int) -> list[str]:
    marked = f"{CONTROLLER_VARIABLE}=".encode()
    return [
        one.removeprefix(marked).decode(errors="replace")
        for one in environment(pid)
        if one.startswith(marked)
    ]


def socket_folder() -> Path:
    """Folder of the sockets of shared connections: of this user alone, with a short path."""
    folder = _socket_place()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NotReady(
            f"{folder}: must be a folder of this user alone, for the sockets of ssh",
            hint="remove it, or set XDG_RUNTIME_DIR to a folder of your own",
        )
    return folder


def _socket_place() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    fits = runtime.startswith("/") and len(runtime) <= LONGEST_SOCKET_FOLDER
    folder = Path(runtime if fits and Path(runtime).is_dir() else "/tmp")
    return folder / f"nodrop-ssh-{uid_of_host()}"
