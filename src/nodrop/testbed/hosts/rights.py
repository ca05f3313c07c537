"""Rights of a program that nodrop starts: no more capabilities, and no more of our environment,
than its work takes.

What they read others wrote: packets, traces, rules. A bug in them is then no root. nodrop itself
needs the right to make a lab: real root, or root of a user namespace that the kernel gives anyone.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nodrop.errors import LabProblem, NotReady

USERNS_VARIABLE = "NODROP_USERNS"
"""Variable of a user namespace of ours: "new" until it has a /run of its own, which children keep.
"""
CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 12, 13, 21
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")
ALL_USERS = ("--map-auto",)
"""The ids that this user has in /etc/subuid as well, by newuidmap: tcpdump gives up root, and can
do that only where there is another user."""
MASKED = "ro,nosuid,nodev,noexec"
"""Flags of a container's own /sys: no other is given to a namespace within it."""
TRY_TIMEOUT_S = 10.0
DOCKER = Path("/.dockerenv")
"""File that Docker makes in each container."""
OPENING = (
    "--cap-add SYS_ADMIN --security-opt systempaths=unconfined --security-opt apparmor=unconfined"
)
"""Options of `docker run` with which namespaces can be made in a container."""
SYSCTLS = {
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
    "user/max_user_namespaces": "0",
}
"""Setting → the value that forbids user namespaces (Debian up to 10, Ubuntu from 23.10, any)."""


def ensure_privileges() -> None:
    """Returns if labs can be made here; else begins this program again where they can.

    Call it before anything is opened or started: the new beginning forgets this process.
    """
    if in_user_namespace():
        if os.environ[USERNS_VARIABLE] == "new":
            _own_run_folder()
            os.environ[USERNS_VARIABLE] = "ready"
        return
    if may_make_namespaces():
        return
    unshare = user_namespace_command()
    sys.stdout.flush()
    sys.stderr.flush()
    again = [sys.executable, *sys.orig_argv[1:]]
    os.execvpe(unshare[0], [*unshare, "--", *again], {**os.environ, USERNS_VARIABLE: "new"})


def privileges_lacking() -> str:
    """Why no lab can be made here, in words; empty if this process or `ensure_privileges` can."""
    if in_user_namespace() or may_make_namespaces():
        return ""
    try:
        user_namespace_command()
    except NotReady as lacking:
        return str(lacking)
    return ""


def in_user_namespace() -> bool:
    """Root only of a namespace of our own: what needs the host's root cannot be done."""
    return USERNS_VARIABLE in os.environ


def is_root_of_the_host() -> bool:
    """Root, and not of a namespace alone."""
    return os.geteuid() == 0 and not in_user_namespace()


def may_make_namespaces() -> bool:
    """The effective capabilities allow it: a container's root may have been stripped of them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            wanted = (CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN)
            return all(effective >> number & 1 for number in wanted)
    return False


def user_namespace_command() -> tuple[str, ...]:
    """The command that makes one here, with all ids of this user if it has several."""
    if shutil.which(UNSHARE[0]) is None:
        raise NotReady("program unshare is missing", hint="install util-linux, or run as root")
    # Tried, not guessed from settings: security modules and containers have other ways to refuse,
    # and one that masks /sys refuses the /sys of each namespace.
    for unshare in ((*UNSHARE, *ALL_USERS), UNSHARE):
        try:
            tried = subprocess.run(
                [*unshare, "--", "mount", "-t", "sysfs", "-o", MASKED, "sysfs", "/mnt"],
                capture_output=True,
                text=True,
                timeout=TRY_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotReady("unshare does not answer", hint="run as root") from None
        if tried.returncode == 0:
            return unshare
    switches = [
        f"sudo sysctl -w {name.replace('/', '.')}={'0' if forbidding == '1' else '1'}"
        for name, forbidding in SYSCTLS.items()
        if _sysctl(name) == forbidding and name != "user/max_user_namespaces"
    ]
    if _sysctl("user/max_user_namespaces") == "0":
        switches.append("sudo sysctl -w user.max_user_namespaces=10000")
    said, options = tried.stderr.strip(), f"docker run needs {OPENING}"
    if os.geteuid() == 0:
        raise NotReady(f"root here may make no namespace ({said})", hint=options)
    if DOCKER.exists():
        raise NotReady(
            f"a container's user {os.geteuid()} may make no namespace ({said})",
            hint=options + "".join(f", and its host: {switch}" for switch in switches),
        )
    raise NotReady(
        f"not root, and this host gives normal users no user namespace ({said})",
        hint="run as root" + "".join(f", or allow it: {switch}" for switch in switches),
    )


def _sysctl(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


def _own_run_folder() -> None:
    """A /run of our own, because `ip netns` keeps names in /run/netns, which is root's.

    Everything else in /run is shown again: a trace may lie on a stick below /run/media.
    """
    run = Path("/run")
    handle = os.open(run, os.O_PATH | os.O_DIRECTORY)
    try:
        folders = [path.name for path in run.iterdir() if path.is_dir() and not path.is_symlink()]
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(run))
        for name in folders:
            if name != "netns":
                (run / name).mkdir(exist_ok=True)  # mount(8) makes /run/mount itself
                # By the handle, as the old /run has no other name any more; nothing may resolve it.
                _mount("--rbind", f"/proc/{os.getpid()}/fd/{handle}/{name}", str(run / name))
    finally:
        os.close(handle)


def _mount(*arguments: str) -> None:
    done = subprocess.run(
        ["mount", "--no-canonicalize", *arguments],
        capture_output=True,
        text=True,
        timeout=TRY_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise LabProblem(f"cannot make a /run of our own: {done.stderr.strip()}")


SUT = ("NET_RAW",)
"""Rights of a SUT, the same in every setup: capturing takes no more. Overhearing frames takes no
more either."""
GENERATOR = ("NET_RAW", "NET_ADMIN", "SYS_NICE", "IPC_LOCK", "DAC_READ_SEARCH")
"""Sockets and AF_XDP; a real-time class; memory that stays; a user's own trace."""
SAMPLER = ("SYS_PTRACE", "DAC_READ_SEARCH")
"""Rights to read /proc of whoever is measured."""
WATCHER = (*SAMPLER, "BPF", "PERFMON")
"""A sampler that watches capture rings: the kernel walks over its own table of sockets."""
FLOOD = (*GENERATOR, "BPF")
"""A flood is a program of the kernel."""

READER = ("DAC_READ_SEARCH",)
"""A user's own trace, read by root."""
LOOKS = frozenset({"counters", "process", "proof", "processes", "usage", "account"})
"""Words of a probe that only read: kernel counters, /proc, and the files that a SUT maps."""
QEMU = ("SETUID", "SETGID", "DAC_OVERRIDE")
"""Rights to open its files and to become nobody; it has none of them after that."""

KEEPER = ("KILL", "SYS_PTRACE", "DAC_READ_SEARCH")
"""Rights to read the label of any process, and to end it (hosts/processes.py)."""


KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables of our environment that a program gets: the others may hold keys."""
KEPT_BY_OURS = (*KEPT, "TMPDIR", "NODROP_BOUNDS_TIMES")
"""Variables that the node and QEMU get. A SUT has a folder of its own, and bounds of its own."""


def of_job(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    """None keeps what nodrop has: a `profile` asks the kernel for samples, and other words of a
    `probe` try something out (a namespace, a register), and read no file of others."""
    if str(spec.get("backend", "")).startswith("flood"):
        return FLOOD
    if spec.get("levels_path"):
        return WATCHER
    if spec["job"] == "probe":
        return SAMPLER if LOOKS.issuperset(spec["what"]) else None
    return {
        "replay": GENERATOR, "sink": SUT, "overhear": SUT, "sample": SAMPLER, "trace": READER
    }.get(spec["job"])  # fmt: skip


def entering(
    node: object,
    *more: str,
    cpus: str | None = None,
    caps: Sequence[str] | None = None,
    user: int | None = None,
    cgroup: Path | None = None,
) -> list[str]:
    """Words before a program that the node is to start on these CPUs, with these capabilities alone
    (None: all that it has itself), as this user, in this control group. `more`: further options."""
    words = [str(node), "enter", *more]
    words += ["--cpus", cpus] if cpus else []
    words += [] if caps is None else ["--caps", ",".join(caps)]
    words += [] if user is None else ["--user", str(user)]
    words += ["--cgroup", str(cgroup)] if cgroup else []
    return [*words, "--"]


def limited(node: Path, caps: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The program with these capabilities alone; without any, if the user has none."""
    return [*entering(node, caps=caps), *argv]


def environment(names: Sequence[str], **more: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ} | more


SUT_USER = 65530
"""No distribution gives it to anybody (systemd's list of users, Debian's policy 9.2.2)."""
CAP_CHOWN, CAP_SETGID, CAP_SETUID = 0, 6, 7


@cache
def sut_user() -> int | None:
    """None if it runs as nodrop's: a normal user's namespace has one user and no other."""
    if os.geteuid() != 0 or not all(map(_is_mapped, ("uid_map", "gid_map"))):
        return None
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    may = all(effective >> number & 1 for number in (CAP_CHOWN, CAP_SETGID, CAP_SETUID))
    return SUT_USER if may else None


def _is_mapped(file: str) -> bool:
    rows = (line.split() for line in Path("/proc/self", file).read_text().splitlines())
    return any(int(first) <= SUT_USER < int(first) + int(many) for first, _, many in rows)


def give(folder: Path, user: int | None) -> None:
    """Gives the folder and everything in it to this user; no link is followed."""
    if user is None:
        return
    for _, folders, files, handle in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, user)


def readable_by(user: int | None, file: Path, copy: Path) -> Path:
    """The file, or this copy of it if the user may not read it. The way there is not looked at: a
    file is shown at another place."""
    if user is None or file.stat().st_mode & stat.S_IROTH:
        return file
    shutil.copyfile(file, copy)
    os.chown(copy, user, user)
    return copy
