"""nodrop itself, copied to a host by its content: what measuring needs, and no more.

The package, the distributions that it needs for measuring, those that bring plugins, and the node.
They lie in /var/lib/nodrop/control/SHA256, root's, and are run by the host's own python3. If that
is of another version, packages with compiled parts come from the package index.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import nodrop
from nodrop import plugins
from nodrop.errors import LabProblem, NodropError
from nodrop.installation import REVISION, revision
from nodrop.testbed.hosts.content_store import ContentStore
from nodrop.testbed.hosts.folders import cache_folder
from nodrop.testbed.hosts.local import run_command
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
OLDEST_PYTHON = (3, 11)
WHEEL_TIMEOUT_S = 120.0
PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"),
)
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
    python, version = _python(host)
    files = dict(_files({*machines} - {host.machine}, version))
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


def _python(host: SshHost) -> tuple[str, str]:
    """Path and version (3.12) of a Python on the host: of ours, else of another that nodrop runs
    on. LabProblem if there is none of our machine, which the packages' compiled parts need."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = platform.machine()
    asked = ["sh", "-c", WHICH_PYTHON, "nodrop", ours, machine]
    done = host.run(asked, timeout_s=WHICH_TIMEOUT_S, check=False)
    found = [words for line in done.stdout.splitlines() if len(words := line.split()) == 3]
    fit = [(path, version) for path, version, its in found if its == machine and _runs_on(version)]
    if fit:
        return next((one for one in fit if one[1] == ours), fit[0])
    there = ", ".join(f"python{version} for {its}" for _, version, its in found)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    raise LabProblem(
        f"{host.name}: nodrop needs python {oldest} or newer for {machine} there, and finds "
        f"{there or 'no python3'}",
        hint="install the package python3 of a newer release there, or measure on another host",
    )


def _runs_on(version: str) -> bool:
    return tuple(map(int, version.split("."))) >= OLDEST_PYTHON


def _files(machines: set[str], python: str) -> Iterator[tuple[str, Path | bytes]]:
    """Files of an installed nodrop: name below the folder → content, or the file that has it.
    `python`: version of the one that is to run it."""
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
    for distribution in _distributions():
        yield from _installed(distribution, python)


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


def _distributions() -> Iterator[metadata.Distribution]:
    """Packages needed from site-packages, and those that they need in turn."""
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
        yield found


def _installed(
    distribution: metadata.Distribution, python: str
) -> Iterator[tuple[str, Path | bytes]]:
    """Files of a package as it is here; of one with compiled parts, those of its wheel for another
    version of Python."""
    files = [
        (file.as_posix(), Path(str(file.locate())))
        for file in distribution.files or ()
        if not LEFT_OUT.intersection(file.parts) and ".." not in file.parts
    ]
    compiled = any(name.endswith(".so") for name, _ in files)
    if compiled and python != f"{sys.version_info.major}.{sys.version_info.minor}":
        with zipfile.ZipFile(_wheel(distribution, python)) as wheel:
            names = (one.filename for one in wheel.infolist() if not one.is_dir())
            yield from ((name, wheel.read(name)) for name in names)
        return
    yield from ((name, path) for name, path in files if path.is_file())


def _wheel(distribution: metadata.Distribution, python: str) -> Path:
    """The wheel of that very version of a package for another Python, from the package index."""
    asked = f"{distribution.name}=={distribution.version}"
    folder = cache_folder() / "wheels" / f"{asked}-python{python}"
    if wheels := [*folder.glob("*.whl")]:
        return wheels[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fetched:
        command = [*PIP_DOWNLOAD, "--python-version", python, "--dest", fetched, asked]
        done = run_command(command, where="pip", timeout_s=WHEEL_TIMEOUT_S, check=False)
        for path in Path(fetched).glob("*.whl"):
            return path.replace(folder / path.name)
    why = next(iter(done.stderr.strip().splitlines()[-1:]), f"pip ended with {done.returncode}")
    raise LabProblem(
        f"the receiver has python{python}, and {asked} for it could not be fetched: {why}",
        hint=f"install python{sys.version_info.major}.{sys.version_info.minor} there, as it is "
        "here, or run nodrop where pip reaches a package index",
    )
