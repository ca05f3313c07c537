"""Trials that come from another machine, file by file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.results.layout import files_of_trial
from nodrop.results.rundir import open_run
from nodrop.results.writer import RunWriter
from nodrop.untrusted.folder import RefusedFile
from tests.unit.results.test_rundir import record

RUN = "0001-r01"


def begun(folder: Path) -> RunWriter:
    return RunWriter.create(
        folder, "x", experiment="", lab="", plan_sha256="", manifest={"controller": "blocks"}
    )


@pytest.fixture
def here(tmp_path: Path) -> Iterator[RunWriter]:
    with begun(tmp_path / "here") as writer:
        writer.trial(RUN)
        yield writer


def test_what_was_measured_elsewhere_is_the_same_here(here: RunWriter, tmp_path: Path) -> None:
    with begun(tmp_path / "there") as there:
        trial = there.trial(RUN)
        trial.write("ledger", {"hops": []})
        (trial.sut / "eve.json").write_bytes(b"x" * 100_000)
        there.finish(record(RUN))
        names = []
        for folder, name, size, sha256 in files_of_trial(there.path, RUN):
            with folder.open(name) as file:
                chunks = iter(lambda: file.read(1000), b"")
                here.take([*folder.below, name], chunks, sha256=sha256)
            assert (here.path / Path(*folder.below) / name).stat().st_size == size
            names.append(name)
        here.finish_elsewhere(record(RUN))
    assert names[-1] == "trial.json", "what makes it count comes last"
    assert open_run(here.path).trials == open_run(there.path).trials
    assert here.completed() == {RUN}


def test_a_file_that_is_not_what_was_said_gets_no_name(here: RunWriter) -> None:
    with pytest.raises(BadInput, match=f"runs/{RUN}/a: did not arrive as it was sent"):
        here.take(["runs", RUN, "a"], [b"other"], sha256=hashlib.sha256(b"this").hexdigest())
    assert not (here.path / "runs" / RUN / "a").exists()


def test_a_file_that_came_in_part_goes_on_where_it_ended(here: RunWriter) -> None:
    def cut() -> Iterator[bytes]:
        yield b"the first and "
        raise LabProblem("the line is cut")

    path, sha256 = ["runs", RUN, "a"], hashlib.sha256(b"the first and the rest").hexdigest()
    with pytest.raises(LabProblem):
        here.take(path, cut(), sha256=sha256)
    with pytest.raises(BadInput, match="goes on after 15 bytes, which are not here"):
        here.take(path, [], sha256=sha256, begun=15)
    assert here.trial(RUN, goes_on=True).path.joinpath("a.part").read_bytes() == b"the first and "
    here.take(path, [b"the rest"], sha256=sha256, begun=14)
    assert (here.path / "runs" / RUN / "a").read_bytes() == b"the first and the rest"


@pytest.mark.parametrize(
    "path", [["manifest.json"], ["runs", "a"], ["runs", "..", "a"], ["runs", RUN, "../../a"]]
)
def test_a_file_is_of_a_trial_and_nowhere_else(here: RunWriter, path: list[str]) -> None:
    with pytest.raises((BadInput, RefusedFile)):
        here.take(path, [b""], sha256=hashlib.sha256(b"").hexdigest())


def test_no_link_is_followed(here: RunWriter, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (here.path / "runs" / RUN / "sut").rmdir()
    (here.path / "runs" / RUN / "sut").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="File exists"):
        here.take(["runs", RUN, "sut", "a"], [b""], sha256=hashlib.sha256(b"").hexdigest())
    assert not list((tmp_path / "outside").iterdir())
