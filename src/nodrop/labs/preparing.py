"""What a host of a lab needs before nodrop can work there, and how it gets it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nodrop.hosts.seam import Completed
from nodrop.hosts.ssh import BECOMING, PATH, Become
from nodrop.labs.seam import Prepared
from nodrop.untrusted.words import one_line

LOOK_TIMEOUT_S = 30.0
APT_TIMEOUT_S = 600.0
LOOK = """\
user=$(id -un 2>/dev/null || id -u)
echo "user $user"
. /etc/os-release 2>/dev/null
echo "system ${PRETTY_NAME:-unknown}"
command -v apt-get >/dev/null && echo "apt yes"
for program in "$@"; do
  command -v "$program" >/dev/null && echo "has $program"
done
exit 0
"""
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get")
INSTALL = ("install", "--yes", "--no-install-recommends")
LOGIN = 'a login as root (`User root` in ~/.ssh/config), or become = "sudo" in the lab file'

Run = Callable[[Sequence[str], float], Completed]
"""A program on the host, as the user who logs in there, for so many seconds at most."""


@dataclass(slots=True)
class _Seen:
    user: str = "unknown"
    system: str = "unknown"
    has_apt: bool = False
    has: list[str] = field(default_factory=list)
    is_root: bool = False


def prepare(
    name: str,
    run: Run,
    *,
    become: Become | None,
    packages: Mapping[str, str],
    do_it: bool,
    or_else: str = LOGIN,
) -> Prepared:
    """`packages`: programs that nodrop runs there → the Debian package of each. With `do_it` they
    are installed if the host is Debian's, and nothing else is done. `or_else`: how a user who is
    not root is to become it."""
    if become:
        packages = {become: become, **packages}
    seen = _look(run, become, packages)
    did: list[str] = []
    failed = ""
    missing = _missing(seen, packages)
    if do_it and missing and seen.is_root and seen.has_apt:
        failed = _install(run, become, missing, did)
        seen = _look(run, become, packages)
        missing = _missing(seen, packages)
    needs = [] if seen.is_root else [_root_words(seen, become, or_else)]
    if missing:
        needs.append(_package_words(seen, missing) + failed)
    root = ["root by sudo" if become else "root"] if seen.is_root else []
    has = [program for program in seen.has if program != become]
    return Prepared(host=name, has=[seen.system, *root, *has], needs=needs, did=did)


def _look(run: Run, become: Become | None, packages: Mapping[str, str]) -> _Seen:
    seen = _Seen()
    said = run(["env", f"PATH={PATH}", "sh", "-c", LOOK, "nodrop", *packages], LOOK_TIMEOUT_S)
    for line in said.stdout.splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "user":
                seen.user = one_line(rest, longest=60)
            case "system":
                seen.system = one_line(rest, longest=60)
            case "apt":
                seen.has_apt = True
            case "has" if rest in packages:
                seen.has.append(rest)
    root = run([*BECOMING[become], "id", "-u"], LOOK_TIMEOUT_S)
    seen.is_root = root.returncode == 0 and root.stdout.strip() == "0"
    return seen


def _missing(seen: _Seen, packages: Mapping[str, str]) -> list[str]:
    return sorted({package for program, package in packages.items() if program not in seen.has})


def _root_words(seen: _Seen, become: Become | None, or_else: str) -> str:
    if become is None:
        return f"{or_else}: user {seen.user} is not root"
    line = f"{seen.user} ALL=(ALL) NOPASSWD: ALL"
    return f"one line in sudoers, by `visudo -f /etc/sudoers.d/nodrop` as its root: {line}"


def _package_words(seen: _Seen, missing: Sequence[str]) -> str:
    named = "package" if len(missing) == 1 else "packages"
    how = (
        f"`{shlex.join(['apt-get', 'install', '--no-install-recommends', *missing])}` as its root"
        if seen.has_apt
        else "by the package manager of that system, where they may be called otherwise"
    )
    return f"{named} {', '.join(missing)}: {how}"


def _install(run: Run, become: Become | None, missing: Sequence[str], did: list[str]) -> str:
    """Why it did not work; "" if it did. The lists of packages are made new only if need be."""
    rooted = [*BECOMING[become], *APT]
    said = Completed(argv=(), returncode=1, stdout="", stderr="", seconds=0)
    for words in ((*INSTALL, *missing), ("update",), (*INSTALL, *missing)):
        said = run([*rooted, *words], APT_TIMEOUT_S)
        shown = shlex.join(["apt-get", *words])
        did.append(f"`{shown}`" + ("" if said.returncode == 0 else f" failed ({said.returncode})"))
        if said.returncode == 0 and words[0] == "install":
            return ""
    lines = [line for line in said.stderr.splitlines() if line.strip()]
    return f"; apt-get says: {one_line(lines[-1] if lines else 'nothing', longest=300)}"
