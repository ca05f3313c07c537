"""Raw files of a run follow to another place; whatever becomes of it, none is lost."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.results import layout
from nodrop.results.layout import LARGE_BYTES, RawFiles
from nodrop.results.rundir import open_run
from nodrop.results.writer import RunWriter
from nodrop.untrusted.folder import Folder
from tests.made.outcome_runs import trial

ROWS = b'{"mono_ns": 1}\n' * 50
LARGE = b"x" * LARGE_BYTES


@dataclass
class Kept:
    """A Keeper that may be lost."""

    host: str = "nas"
    path: str = "/srv"
    lost: bool = False
    files: dict[str, bytes] = field(default_factory=dict)

    def keep(self, folder: Folder, name: str, sha256: str, *, there: str) -> None:
        if self.lost:
            raise LabProblem("storage nas: No space left on device")
        with folder.open(name) as file:
            content = file.read()
        assert hashlib.sha256(content).hexdigest() == sha256
        self.files[f"{there}/{name}"] = content


def begun(out: Path, keeper: Kept) -> RunWriter:
    writer = RunWriter.create(
        out, "kept", experiment="", lab="", plan_sha256="p", manifest={"controller": "blocks"}
    )
    writer.followed_by(RawFiles(writer.path, keeper))
    return writer


def measure(writer: RunWriter, run: str) -> Path:
    folder = writer.trial(run)
    folder.samples("receiver").write_bytes(ROWS)
    (folder.sut / "eve.json").write_bytes(LARGE)
    (folder.sut / "suricata.log").write_bytes(b"ready\n")
    folder.write("ledger", {"hops": []})
    writer.finish(trial(run=run, cell={}, repetition=1, index=0, valid=True, verdict="no loss"))
    return folder.path


def files(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


def test_raw_files_lie_there_by_their_hash_and_the_rest_here(tmp_path: Path) -> None:
    keeper = Kept()
    with begun(tmp_path, keeper) as writer:
        here = measure(writer, "0001")
    there = f"/srv/{writer.path.name}/0001"
    assert keeper.files == {f"{there}/samples-receiver.jsonl": ROWS, f"{there}/sut/eve.json": LARGE}
    assert files(here) == {"trial.json", "ledger.json", "elsewhere.json", "sut/suricata.log"}
    said = json.loads((here / "elsewhere.json").read_text())
    assert (said["host"], said["folder"]) == ("nas", there)
    assert sorted(said["files"], key=lambda one: str(one["name"])) == [
        {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in (("samples-receiver.jsonl", ROWS), ("sut/eve.json", LARGE))
    ]
    run = open_run(writer.path)
    assert len(run.trials.records) == 1 and not run.damage and not [*run.damaged_rows("0001")]
    command = f"scp -rp 'nas:/srv/{writer.path.name}/*' {writer.path}/runs/"
    assert run.elsewhere("0001") == command
    (here / "samples-receiver.jsonl").write_bytes(ROWS)  # brought back
    assert run.elsewhere("0001") is None


@pytest.mark.parametrize(
    ("host", "folder"),
    [("-oProxyCommand=x", "/srv/a/1"), ("nas", "/srv/$(x)/1"), ("nas", "srv/a/1"), (None, 7)],
)
def test_a_strangers_words_are_no_command(tmp_path: Path, host: object, folder: object) -> None:
    with begun(tmp_path, Kept()) as writer:
        here = measure(writer, "0001")
    said = json.loads((here / "elsewhere.json").read_text()) | {"host": host, "folder": folder}
    (here / "elsewhere.json").write_text(json.dumps(said))
    assert open_run(writer.path).elsewhere("0001") is None


def test_a_place_that_is_lost_is_said_once_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Kept(lost=True)
    writer = begun(tmp_path, keeper)
    first, second = measure(writer, "0001"), measure(writer, "0002")
    (note,) = writer.notes()
    assert (
        note
        == f"storage nas: No space left on device; files stay in {writer.path} until it answers"
    )
    monkeypatch.setattr(layout, "AGAIN_S", 0.0)
    measure(writer, "0003")
    assert writer.notes() == []
    with pytest.raises(LabProblem, match=r"raw files of 3 trials lie in .* alone; nothing is lost"):
        writer.close()
    assert {"samples-receiver.jsonl", "sut/eve.json"} < files(first)
    with RunWriter.resume(writer.path, plan_sha256="p") as again:
        again.followed_by(RawFiles(again.path, keeper))
        measure(again, "0004")
        keeper.lost = False
        measure(again, "0005")
        assert again.notes()[-1].endswith("is there again, and has what it lacked")
        assert "samples-receiver.jsonl" not in files(second)
    assert len(keeper.files) == 10


def test_a_trial_that_is_measured_again_follows_again(tmp_path: Path) -> None:
    keeper = Kept()
    with begun(tmp_path, keeper) as writer:
        measure(writer, "0001")
        keeper.files.clear()
        measure(writer, "0001")
    assert len(keeper.files) == 2


def test_what_ended_a_run_is_said_and_not_that_its_storage_is_lost_as_well(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), begun(tmp_path, Kept(lost=True)) as writer:
        measure(writer, "0001")
        raise ZeroDivisionError
