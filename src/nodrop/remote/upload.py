"""nodrop itself, copied to a host by its content: what measuring needs, and no more.

The package, the distributions that it needs for measuring, those that bring plugins, and the node.
They lie in /var/lib/nodrop/control/SHA256, root's, and are run by the host's own python3.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import nodrop
from nodrop import plugins
from nodrop.errors import LabProblem, NodropError
from nodrop.installation import REVISION, revision
from nodrop.testbed.hosts.content_store import ContentStore
from nodrop.testbed.hosts.node import ENVIRONMENT, PROGRAM, find_node_binary
from nodrop.testbed.hosts.ssh import SshHost

CONTROL_FOLDER = "/var/lib/nodrop/control"
"""On the host: root's, one folder below it for each content hash."""
NEEDED = ("pydantic", "pyyaml", "docker")
"""To measure. Controllers and reports, and their statistics, stay where the user is."""
MEASURE = ("controller", "knob", "lab", "load", "setup", "sut")
"""Kinds of plugins that a measurement is made of: their packages go along."""
LEFT_OUT = {"__pycache__", "tests", "testing"}
WHICH_TIMEOUT_S = 60.0
WHICH_PYTHON = """\
for name in "python$1" python3; do
  path=$(command -v "$name") || continue
  said=$("$path" -IS -c 'import platform, sys
print("%d.%d" % sys.version_info[:2], platform.machine())') || continue
  echo "$path $said"
  [ "$said" != "$1 $2" ] || break
done
"""
"""Until one is of version $1 and machine $2: those that run, with theirs."""


def placed(host: SshHost, *, machines: Sequence[str] = ()) -> list[str]:
    """The command there that runs a module of nodrop: to be followed by its name. It is copied if
    it is not there. `machines`: of other hosts, whose node it needs."""
    python = _python(host)
    files = dict(_files({*machines} - {host.machine}))
    where = ContentStore(host, CONTROL_FOLDER).put_tree(files, shown="nodrop").path
    variables = {
        # Whatever a login there sets: testbed/labs/far_hosts.py looks for what it leaves in these.
        "HOME": "/root",
        "XDG_CACHE_HOME": "/root/.cache",
        "XDG_STATE_HOME": "/root/.local/state",
        "LC_ALL": "C.UTF-8",
        ENVIRONMENT: host.node,
        "PYTHONPATH": where,
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
    }
    # -S: what a host has set up for its own programs (sitecustomize, .pth) is not ours.
    return ["env", *(f"{name}={value}" for name, value in variables.items()), python, "-S", "-m"]


def _python(host: SshHost) -> str:
    """Path of a Python on the host with our minor version and machine, which compiled code needs.
    LabProblem if there is none."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = platform.machine()
    asked = ["sh", "-c", WHICH_PYTHON, "nodrop", wanted, machine]
    done = host.run(asked, timeout_s=WHICH_TIMEOUT_S, check=False)
    found = [words for line in done.stdout.splitlines() if len(words := line.split()) == 3]
    for path, version, its in found:
        if (version, its) == (wanted, machine):
            return path
    there = ", ".join(f"python{version} for {its}" for _, version, its in found)
    raise LabProblem(
        f"{host.name}: nodrop needs python{wanted} for {machine} there, as it has here, and finds "
        f"{there or 'no python3'}",
        hint=f"install the package python{wanted}, or run nodrop here with a version that it has",
    )


def _files(machines: set[str]) -> Iterator[tuple[str, Path | bytes]]:
    """Files of an installed nodrop: name below the folder → content, or the file that has it."""
    package = Path(nodrop.__file__).parent
    yield from _tree(package, "nodrop")
    checkout = package.parents[1]
    for name in ("images", "labs"):
        if (checkout / "pyproject.toml").is_file():
            yield from _tree(checkout / name, f"nodrop/{name}")
    for machine in sorted(machines):
        node = find_node_binary(machine)
        yield f"nodrop/node/bin/{machine}-unknown-linux-musl/{PROGRAM}", node
    if commit := revision():  # there is no checkout there to ask for it
        yield f"nodrop/{REVISION}", commit.encode()
    about = f"nodrop-{nodrop.__version__}.dist-info"
    yield f"{about}/METADATA", f"Name: nodrop\nVersion: {nodrop.__version__}\n".encode()
    yield f"{about}/entry_points.txt", _entry_points().encode()
    yield from _distributions()


def _tree(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.is_file() and not LEFT_OUT.intersection(below.parts) and below.parts[0] != "node":
            yield f"{name}/{below}", path


def _entry_points() -> str:
    """Text of entry_points.txt for nodrop's own plugins."""
    lines: list[str] = []
    for table, group in plugins.GROUPS.items():
        own = [p for p in plugins.plugins() if p.table == table and p.built_in]
        lines += [f"[{group}]", *(f"{p.kind} = {p.entry.value}" for p in own), ""]
    return "\n".join(lines)


def _distributions() -> Iterator[tuple[str, Path]]:
    """Files of the packages needed from site-packages, and of the packages that those need in
    turn."""
    others = (p for p in plugins.plugins() if p.table in MEASURE and not p.built_in)
    brought = {p.origin.rpartition(" ")[0] for p in others}
    wanted, seen = [*NEEDED, *sorted(brought)], {"nodrop"}
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in NEEDED[:2]:
                raise NodropError(f"{name} is not installed here as a package") from None
            continue  # an extra that is not installed, or a requirement of another platform
        wanted += [
            requirement
            for line in found.requires or ()
            if "extra ==" not in line
            for requirement in re.findall(r"^[A-Za-z0-9._-]+", line)
        ]
        for file in found.files or ():
            path = Path(str(file.locate()))
            if not LEFT_OUT.intersection(file.parts) and ".." not in file.parts and path.is_file():
                yield file.as_posix(), path
