"""Files that an experiment names, where it is measured: copied there by their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.options import INPUTS, Inputs
from nodrop.measure.plan import Plan
from nodrop.testbed.hosts.content_store import ContentStore, Taking
from nodrop.testbed.hosts.ssh import SshHost

FILES_FOLDER = "/var/lib/nodrop/files"
"""On the host: root's, and no one else reads them; a folder below it for each content hash."""


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


def copy_of(host: Taking, path: Path) -> str:
    return ContentStore(host, FILES_FOLDER, mode="700").put_file(path).path
