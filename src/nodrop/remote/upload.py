"""nodrop itself, copied to a host by its content: what measuring needs, and no more.

The package, the distributions that it needs for measuring, those that bring plugins, and the node.
They lie in /var/lib/nodrop/control/SHA256, root's, and are run by the host's own python3.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO

import nodrop
from nodrop import plugins
from nodrop.errors import LabProblem, NodropError
from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.node import ENVIRONMENT, PROGRAM, file_sha256, find_node_binary
from nodrop.testbed.hosts.ssh import FOUND, SshHost

CONTROL_FOLDER = "/var/lib/nodrop/control"
"""On the host: root's, one folder below it for each content hash."""
NEEDED = ("pydantic", "pyyaml", "docker")
"""To measure. Controllers and reports, and their statistics, stay where the user is."""
MEASURE = ("controller", "knob", "lab", "load", "setup", "sut")
"""Kinds of plugins that a measurement is made of: their packages go along."""
SUMS = "SHA256SUMS"
LEFT_OUT = {"__pycache__", "tests", "testing"}
LOOK_TIMEOUT_S = 60.0
LOOK = f"""\
cd "$1/$2" 2>/dev/null || exit 0
[ "$(sha256sum <{SUMS})" = "$2  -" ] && sha256sum --check --quiet {SUMS} >/dev/null 2>&1 || exit 0
echo {FOUND}
"""
COPY = f"""\
set -eu
umask 022
mkdir -p "$1"
for folder in "${{1%/*}}" "$1"; do
  case "$(stat -c %u:%a "$folder")" in
  0:7[0145][0145]) ;;
  *) echo "$folder is not root's alone" >&2; exit 1 ;;
  esac
done
new=$(mktemp -d "$1/.begun.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP TERM
tar -xz --no-same-owner -f - -C "$new"
cd "$new"
[ "$(sha256sum <{SUMS})" = "$2  -" ] && sha256sum --check --quiet {SUMS} >&2 || {{
  echo "it did not arrive whole" >&2
  exit 1
}}
chmod 755 "$new"
rm -rf "${{1:?}}/$2"
mv -T "$new" "$1/$2"
"""
"""$1: the folder, $2: the hash of its list of hashes. A folder has its name once it is whole."""
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
    sums = "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items()))
    digest = hashlib.sha256(sums.encode()).hexdigest()
    words = ["nodrop", CONTROL_FOLDER, digest]
    look = host.run(["sh", "-c", LOOK, *words], timeout_s=LOOK_TIMEOUT_S)
    if FOUND not in look.stdout:
        with tempfile.TemporaryFile() as packed:
            _pack({**files, SUMS: sums.encode()}, packed)
            done = host.copied(["sh", "-c", COPY, *words], packed, "nodrop")
        if done.returncode != 0:
            raise LabProblem(
                f"{host.name}: nodrop cannot be copied to {CONTROL_FOLDER}: {said_first(done)}"
            )
    where = f"{CONTROL_FOLDER}/{digest}"
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
    done = host.run(asked, timeout_s=LOOK_TIMEOUT_S, check=False)
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


def said_first(done: Completed) -> str:
    """The first line that a program complains of, or the line about a full disk: further lines are
    of the same kind."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    full = (line for line in lines if os.strerror(errno.ENOSPC) in line)
    return next(full, lines[0]).strip() if lines else f"status {done.returncode}"


def _pack(files: Mapping[str, Path | bytes], into: IO[bytes]) -> None:
    with tarfile.open(fileobj=into, mode="w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, Path):
                entry.size, entry.mode = content.stat().st_size, content.stat().st_mode & 0o755
                with content.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
    into.seek(0)


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, Path):
        return file_sha256(content)
    return hashlib.sha256(content).hexdigest()


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
