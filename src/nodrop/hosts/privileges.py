"""The right to make a lab: real root, or root of a user namespace that the kernel gives anyone.

A run of a normal user becomes `unshare --user --map-root-user --net --mount`, which becomes nodrop
again: the same process throughout, so signals and exit code need no one to pass them on, and what
it made is gone with it, even after kill -9.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from nodrop.errors import LabProblem, NotReady

USERNS_VARIABLE = "NODROP_USERNS"
"""Set in a user namespace of ours: "new" until it has a /run of its own, which children keep."""
CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 12, 13, 21
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")
TRY_TIMEOUT_S = 10.0
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
    _must_have_user_namespaces()
    sys.stdout.flush()
    sys.stderr.flush()
    again = [sys.executable, *sys.orig_argv[1:]]
    os.execvpe(UNSHARE[0], [*UNSHARE, "--", *again], {**os.environ, USERNS_VARIABLE: "new"})


def privileges_lacking() -> str:
    """Why no lab can be made here, in words; empty if this process or `ensure_privileges` can."""
    if in_user_namespace() or may_make_namespaces():
        return ""
    try:
        _must_have_user_namespaces()
    except NotReady as lacking:
        return str(lacking)
    return ""


def in_user_namespace() -> bool:
    """Root only of a namespace of our own: what needs the host's root cannot be done."""
    return USERNS_VARIABLE in os.environ


def may_make_namespaces() -> bool:
    """By the effective capabilities: a container's root may have been stripped of them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            wanted = (CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN)
            return all(effective >> number & 1 for number in wanted)
    return False


def _must_have_user_namespaces() -> None:
    if shutil.which(UNSHARE[0]) is None:
        raise NotReady("program unshare is missing", hint="install util-linux, or run as root")
    # Tried, not guessed from settings: security modules and containers have other ways to refuse.
    try:
        tried = subprocess.run(
            [*UNSHARE, "--", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            capture_output=True,
            text=True,
            timeout=TRY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotReady("unshare does not answer", hint="run as root") from None
    if tried.returncode == 0:
        return
    switches = [
        f"sudo sysctl -w {name.replace('/', '.')}={'0' if forbidding == '1' else '1'}"
        for name, forbidding in SYSCTLS.items()
        if _sysctl(name) == forbidding and name != "user/max_user_namespaces"
    ]
    if _sysctl("user/max_user_namespaces") == "0":
        switches.append("sudo sysctl -w user.max_user_namespaces=10000")
    said = tried.stderr.strip()
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
