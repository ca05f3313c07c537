"""The lease of a run on a far host: a keeper there, which hears of us every few seconds.

`nodrop-node keep` holds the host for one run, and a folder for its files. If we end, or are not
heard for a term, it ends every process there that carries our label, removes the files, and ends.
"""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from nodrop.errors import LabProblem
from nodrop.hosts.node import NOISE_LIMIT_BYTES, start_child
from nodrop.hosts.processes import this_process
from nodrop.hosts.rights import KEEPER
from nodrop.hosts.seam import Json
from nodrop.untrusted.json_text import NotJson, counted, decode_object, member
from nodrop.untrusted.words import making_sense, one_line

BEAT_S = 5.0
TERM_S = 20
"""Longer than ssh needs to find a line cut (ssh_connection.py): a controller that lives knows."""
END_TIMEOUT_S = 15.0
"""Seconds that a keeper has to end its processes after it is asked to; then it is killed."""


class Lease:
    """To be closed. LabProblem if another run has the host, or nothing can be kept there."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        where: str,
    ) -> None:
        """`argv`: what `keep_words` says, as it is run there."""
        self._where = where
        self._over = threading.Event()
        self._keeper = start_child(argv, env)
        try:
            self.folder = self._kept()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._beat, daemon=True, name="beats").start()

    def gone(self) -> bool:
        """Nothing of ours is safe there any more."""
        return self._keeper.poll() is not None

    def close(self, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Its end is awaited, so that nothing is left. `meanwhile` ends what would hold it up."""
        self._over.set()
        keeper = self._keeper
        assert keeper.stdin is not None
        with suppress(OSError):
            keeper.stdin.close()
        meanwhile()
        try:
            keeper.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        for pipe in (keeper.stdout, keeper.stderr):
            assert pipe is not None
            pipe.close()

    def _beat(self) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None
        with suppress(OSError, ValueError):  # it is gone, or closed
            while not self._over.wait(BEAT_S):
                stdin.write(b"\n")
                stdin.flush()

    def _kept(self) -> str:
        said = self._answer()
        if "held" in said:
            with making_sense(f"what the keeper of {self._where} says"):
                raise LabProblem(
                    f"{self._where}: {run_words(member(said, 'held', dict))} has this host",
                    hint="wait for its end, or end it from there (`nodrop undo LAB --all`)",
                )
        with making_sense(f"what the keeper of {self._where} says"):
            return member(said, "kept", str)

    def _answer(self) -> Json:
        """Its one line. What a login shell says before it is passed over."""
        assert self._keeper.stdout is not None and self._keeper.stderr is not None
        left_bytes = NOISE_LIMIT_BYTES
        while left_bytes > 0 and (line := self._keeper.stdout.readline(left_bytes)):
            left_bytes -= len(line)
            with suppress(NotJson):
                return decode_object(line)
        self._keeper.kill()
        said = self._keeper.stderr.read(NOISE_LIMIT_BYTES).decode(errors="replace")
        raise LabProblem(f"{self._where}: no file can be kept there: {one_line(said)}")


def keep_words(node: str, folder: str, label: str, *, instead_of: str = "") -> list[str]:
    """The command that holds a host. It carries no label itself, or it would end itself."""
    words = [node, "enter", "--caps", ",".join(KEEPER), "--", node, "keep", "--folder", folder]
    words += ["--label", label, "--holder", holder(), "--controller", this_process()]
    words += ["--term-s", str(TERM_S)]
    return [*words, "--instead-of", instead_of] if instead_of else words


HOLDER_VARIABLE = "NODROP_HOLDER"
"""Who has begun us from another host."""
HOST_VARIABLE = "NODROP_HOST"
"""By which name he knows this one."""


OPEN_JOURNALS = (
    "ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n 's|.* -> \\(/.*/nodrop/undo/.*[.]jsonl\\)$|\\1|p'"
)
"""For a shell of a host's root: the journal of each run that lives there, whosever it is. A run has
its own open, and it may lie in any home (XDG_STATE_HOME)."""


def this_host() -> str:
    """This host's name, as the user knows it."""
    return one_line(os.environ.get(HOST_VARIABLE) or socket.gethostname(), longest=120)


def holder() -> str:
    if begun_by := os.environ.get(HOLDER_VARIABLE):
        return one_line(begun_by, longest=120)
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.geteuid()}"
    return one_line(f"{user}@{socket.gethostname()}", longest=120)


def run_words(run: Json) -> str:
    """A run in words, from its `label`, `holder` and `since_unix_s` as a node or a journal gives
    them."""
    since = datetime.fromtimestamp(counted(run, "since_unix_s"), UTC)
    who = one_line(member(run, "holder", str), longest=120)
    label = one_line(member(run, "label", str), longest=60)
    return f"run {label} of {who}, since {since:%Y-%m-%d %H:%M:%S} UTC,"
