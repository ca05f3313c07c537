"""Settings that a port of this machine forgets when it moves to another network namespace, or its
driver is loaded anew: whether it is promiscuous, and its sysctls. Both are noted before, and put
back.

Queueing disciplines and filters (tc) go, too, and cannot be put back: a port with some is refused
(labs/far_hosts.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.hosts.local import run_command

SYSCTLS = Path("/proc/sys/net")
"""Sysctls of the reader's own network namespace."""
GROUPS = ("ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh")
VALUE = re.compile(r"[a-z0-9:._-]+")
COMMAND_TIMEOUT_S = 10.0


def settings_of(port: str) -> str:
    """`promisc=on ipv4/conf/rp_filter=2 …`: what is otherwise than a port gets it when it comes."""
    promisc = ["promisc=on"] if _is_promiscuous(port) else []
    now, at_first = _sysctls(port), _sysctls("default")
    return " ".join(
        [*promisc, *(f"{name}={v}" for name, v in now.items() if at_first.get(name) != v)]
    )


def put_back(port: str, settings: str) -> None:
    """Puts the settings back; it may be repeated. LabProblem if the kernel does not take one."""
    wanted = {name: value for name, _, value in (w.partition("=") for w in settings.split())}
    promisc = wanted.pop("promisc", "off")
    argv = ["ip", "link", "set", port, "promisc", promisc]
    run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S)
    now = _sysctls(port)
    for name, value in wanted.items():
        if now.get(name) != value:
            try:
                _file(name, port).write_text(value)
            except OSError as error:
                raise LabProblem(
                    f"{port}: {name} does not take {value}: {error.strerror}"
                ) from None


def _is_promiscuous(port: str) -> bool:
    """Because somebody said so; a program that listens makes it so as well, and has no flag."""
    argv = ["ip", "-j", "link", "show", port]
    shown = run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S).stdout
    return "PROMISC" in json.loads(shown)[0]["flags"]


def _sysctls(port: str) -> Mapping[str, str]:
    """`ipv4/conf/rp_filter` → its value; what cannot be read (no IPv6, a secret) is left out."""
    return dict(_read(port))


def _read(port: str) -> Iterator[tuple[str, str]]:
    for group in GROUPS:
        folder = SYSCTLS / group / port
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(OSError):
                value = path.read_text().strip()
                if VALUE.fullmatch(value):
                    yield f"{group}/{path.name}", value


def _file(name: str, port: str) -> Path:
    group, _, key = name.rpartition("/")
    return SYSCTLS / group / port / key
