"""nodrop's own files: experiments that init writes, caches that clean removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.cli.files import Find, experiment_text
from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("find", Find)
@pytest.mark.parametrize("sut", ["suricata", "sink"])
def test_init_writes_what_can_be_run(home: Path, find: Find, sut: str) -> None:
    words = ["--trace", "make:demo", "--sut", sut, "--find", find.value, "--rules", ""]
    assert exit_code(["init", "my.toml", *words]) == 0
    asked = load_experiment(home / "my.toml")
    assert (asked.base, asked.search is not None) == (home, find is Find.CAPACITY)
    assert asked.matrix.cell_count() == (1 if find is Find.CAPACITY else 2)


def test_init_names_a_schema_that_is_there(home: Path) -> None:
    text = experiment_text(trace='a "b".pcap', sut="suricata", rules="my.rules", find=Find.CAPACITY)
    first = text.splitlines()[0]
    assert first.startswith("#:schema file://")
    assert Path(first.partition("file://")[2]).is_file()
    assert 'trace = "a \\"b\\".pcap"' in text and 'rules = ["my.rules"]' in text


def test_init_overwrites_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "my.toml").write_text("mine")
    assert exit_code(["init", "my.toml", "--trace", "make:demo"]) == 2
    assert (home / "my.toml").read_text() == "mine"
    assert exit_code(["init", "no.toml", "--trace", "make:demo", "--sut", "nothing"]) == 2
    assert not (home / "no.toml").exists()


def test_shipped_files_name_their_schema() -> None:
    for folder in ("experiments", "labs"):
        for path in (ROOT / folder).glob("*.toml"):
            first = path.read_text().splitlines()[0]
            assert first.startswith("#:schema "), path
            assert (path.parent / first.split()[1]).is_file(), path


def test_clean_removes_caches_and_named_runs_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "cache/nodrop/images").mkdir(parents=True)
    (home / "cache/nodrop/images/one").write_bytes(bytes(2_000_000))
    run, other = home / "results/one", home / "results/other"
    for folder in (run, other):
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    assert exit_code(["clean", str(run)]) == 2, "it asks, and nobody can answer"
    said = capsys.readouterr()
    assert "2.0 MB" in said.out and "--yes" in said.err
    assert run.is_dir()
    assert exit_code(["clean", str(run), "--yes"]) == 0
    assert not (home / "cache/nodrop").exists() and not run.exists()
    assert other.is_dir()
    assert exit_code(["clean", str(other.parent), "--yes"]) == 0
    assert not other.parent.exists(), "the folder of the runs is empty"
    assert exit_code(["clean", str(other.parent)]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("nothing to remove\n") and "results: is not there" in said.err


def test_clean_keeps_what_is_no_run_or_not_undone(home: Path) -> None:
    (home / "cache/nodrop/traces").mkdir(parents=True)
    (home / "pictures").mkdir()
    assert exit_code(["clean", str(home / "pictures"), "--yes"]) == 2
    assert (home / "pictures").is_dir() and (home / "cache/nodrop/traces").is_dir()
    (home / "state/nodrop/undo").mkdir(parents=True)
    (home / "state/nodrop/undo/abc.jsonl").write_text("")
    assert exit_code(["clean", "--yes"]) == 2
    assert (home / "cache/nodrop/traces").is_dir()
