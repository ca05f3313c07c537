"""Files that an experiment names, where it is measured: copied there by their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.options import INPUTS, Inputs
from nodrop.errors import LabProblem
from nodrop.measure.plan import Plan
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.ssh import FOUND, SshHost, file_timeout_s

FILES_FOLDER = "/var/lib/nodrop/files"
"""On the host: root's, and no one else reads them; a folder below it for each content hash."""
LOOK = f"""\
[ "$(sha256sum 2>/dev/null <"$1/$2/$3")" = "$2  -" ] && echo {FOUND} || :
"""
TAKE = """\
set -eu
umask 022
mkdir -p "$1"
chmod 700 "$1"
case "$(stat -c %u:%a "${1%/*}")" in
0:7[0145][0145]) ;;
*) echo "${1%/*} is not root's alone" >&2; exit 1 ;;
esac
mkdir -p "$1/$2"
new=$(mktemp "$1/$2/.begun.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP TERM
cat >"$new"
[ "$(sha256sum <"$new")" = "$2  -" ] || { echo "it did not arrive whole" >&2; exit 1; }
chmod 644 "$new"
mv -f "$new" "$1/$2/$3"
"""
"""$1: the folder, $2: the hash, $3: the name of what comes by stdin."""


@dataclass(slots=True)
class NamedInputs(Inputs):
    """Here: what the tables of an experiment name, while they are checked."""

    found: dict[str, Path] = field(default_factory=dict)
    """Path as written → the file of this machine."""

    def find(self, written: Path, base: Path) -> Path:
        path = self.found[str(written)] = Inputs.find(self, written, base)
        return path

    def matching(self, pattern: Path) -> list[Path]:
        files = Inputs.matching(self, pattern)
        self.found |= {str(path): path for path in files}
        return files


@dataclass(frozen=True, slots=True)
class Copies(Inputs):
    """There: as written → the copy."""

    of: Mapping[str, str]
    images: Mapping[str, str] = field(default_factory=dict)
    """Name of an image as written → its hash."""

    def image(self, name: str) -> str:
        return self.images.get(name, name)

    def find(self, written: Path, base: Path) -> Path:
        copy = self.of.get(str(written))
        return Inputs.find(self, written, base) if copy is None else Path(copy)

    def matching(self, pattern: Path) -> list[Path]:
        wanted = pattern.parts
        return [
            Path(copy)
            for written, copy in sorted(self.of.items())
            if len(parts := Path(written).parts) == len(wanted)
            and all(map(fnmatchcase, parts, wanted))
        ]


def named_files(experiment: Experiment, plan: Plan) -> Mapping[str, Path]:
    """Files that the plan's cells name: path as written → the file here."""
    named = NamedInputs()
    before = INPUTS.set(named)
    try:
        for cell in plan.cells:
            sut = plugins.build_sut(cell.sut, base=experiment.base)
            sut.files()
            if binary := cell.sut.get("binary"):
                named.find(Path(str(binary)), experiment.base)
            plugins.build_setup(cell.setup, base=experiment.base)
            plugins.build_load(cell.load, base=experiment.base)
    finally:
        INPUTS.reset(before)
    return {written: path for written, path in named.found.items() if path.is_file()}


def copied(host: SshHost, files: Mapping[str, Path]) -> Mapping[str, str]:
    """Copies files: path as written → the path there. A file that is there already stays."""
    return {written: copy_of(host, path) for written, path in files.items()}


def copy_of(host: SshHost, path: Path) -> str:
    words = ["nodrop", FILES_FOLDER, file_sha256(path), path.name]
    timeout_s = file_timeout_s(path.stat().st_size)
    look = host.run(["sh", "-c", LOOK, *words], timeout_s=timeout_s)
    if FOUND not in look.stdout:
        with path.open("rb") as content:
            done = host.copied(["sh", "-c", TAKE, *words], content, path.name)
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise LabProblem(f"{host.name}: {path.name} cannot be copied there: {said}")
    return "/".join(words[1:])
