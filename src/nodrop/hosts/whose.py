"""Whose a run is, in words for people on this host and on others."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import UTC, datetime

from nodrop.hosts.seam import Json
from nodrop.untrusted.json_text import counted, member
from nodrop.untrusted.words import one_line

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
