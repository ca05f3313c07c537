"""The folder of one trial: the files that are put there while it is measured."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nodrop.results.names import LIVE, RUNS, SUT, TRIAL, safe_name, samples_of
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import GUEST_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFolder:
    """The folder into which one trial puts its files while it is measured."""

    run: str
    path: Path

    @classmethod
    def within(cls, above: Path, run: str) -> TrialFolder:
        """A new one, of a trial that is measured where the run directory is not."""
        folder = Folder(above, (safe_name(run),))
        folder.make()
        folder.folder(SUT).make()
        return cls(run=run, path=folder.path)

    @property
    def sut(self) -> Path:
        return self.path / SUT

    def packed(self) -> dict[str, bytes]:
        """Its files, by their paths in it: to be sent to who writes the run directory."""
        return dict(_files(Folder(self.path)))

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Writes the files that `packed` gave of another folder."""
        for name, content in files.items():
            *folders, file = name.split("/")
            folder = Folder(self.path, tuple(folders))
            folder.make_all()
            folder.write(file, content, durable=False)

    def samples(self, host: str) -> Path:
        """Rows of that host's sampler."""
        return self.path / samples_of(host)

    def append_live(self, row: Mapping[str, Any]) -> None:
        """A reading of the trial under way; for watching, so nothing waits for the disk."""
        with Folder(self.path).open_to_change(LIVE, append=True) as file:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of this trial: `ledger`, `offered`, `counters` …; not `trial`."""
        if f"{name}.json" == TRIAL:
            raise ValueError("trial.json marks a trial as whole: RunWriter.finish writes it")
        write_json(Folder(self.path), f"{safe_name(name)}.json", content)


def _files(folder: Folder) -> Iterator[tuple[str, bytes]]:
    for name in folder.names():
        path = "/".join((*folder.below, name))
        if folder.is_file(name):
            yield path, folder.read(name, most_bytes=GUEST_FILE_BYTES)
        elif name in folder.folders():
            yield from _files(folder.folder(name))


def _sha256_of(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()


def files_of_trial(run_directory: Path, run: str) -> Iterator[tuple[Folder, str, int, str]]:
    """Folder, name, bytes and hash of each, that last by which the trial counts."""
    top = Folder(run_directory)
    last: list[tuple[Folder, str, int, str]] = []
    waiting = [top.folder(RUNS, safe_name(run))]
    while waiting:
        folder = waiting.pop()
        for name in folder.names():
            if folder.is_file(name):
                with folder.open(name) as file:
                    size = os.fstat(file.fileno()).st_size
                    found = (folder, name, size, _sha256_of(file))
                if name == TRIAL:
                    last.append(found)
                else:
                    yield found
        waiting += [folder.folder(name) for name in folder.folders()]
    yield from last


def write_json(folder: Folder, name: str, content: Mapping[str, Any]) -> None:
    folder.write(name, json_text(content))


def json_text(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    return text.encode() + b"\n"
