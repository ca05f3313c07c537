"""A run directory in a store: nothing measured depends on it, and whoever reads there reads the
same. S3 is a server of moto here; what needs no S3 is held on a folder, which fsspec knows too."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import BadInput, NotReady
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results import layout
from nodrop.results import store as stored
from nodrop.results.rundir import find_run, open_run, read_trials
from nodrop.results.store import Copy, Store, StoreLost, put_run
from nodrop.results.writer import RunWriter
from nodrop.terminal.arguments import out_folder, run_directory
from nodrop.testbed.hosts.rights import USERNS_VARIABLE
from tests.made.outcome_runs import trial
from tests.made.rundirs import Fake, make_run
from tests.s3 import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def s3(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    server.known_to(monkeypatch)
    return server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is gone is asked once at a time: the library waits seconds between tries."""
    monkeypatch.setitem(stored.PATIENT, "retries", {"max_attempts": 0})


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The one we are on: a call goes to another. It reaches its stores, whoever runs the tests."""
    monkeypatch.delenv(USERNS_VARIABLE, raising=False)
    numbers = itertools.count()

    def another() -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"machine{next(numbers)}"))

    another()
    return another


def create(out: Path, name: str = "demo") -> RunWriter:
    given = {"experiment": "name = 'x'\n", "lab": "", "plan_sha256": "p", "manifest": {"seed": 7}}
    return RunWriter.create(out, name, **given)


def measure(writer: RunWriter, run: str, index: int = 0, **files: str) -> None:
    folder = writer.trial(run)
    folder.write("ledger", {"hops": []})
    (folder.sut / "suricata.log").write_text("ready\n")
    for name, content in files.items():
        (folder.path / name).write_text(content)
    record = trial(run=run, cell={}, repetition=1, index=index, valid=True, verdict="no loss")
    writer.finish(record, {"drain_s": 0.5})


def files_of(path: Path) -> dict[str, bytes]:
    """Files of a run, but for those of one machine alone."""
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and p.name not in stored.OURS
    }


def test_a_run_in_s3_is_read_as_it_was_measured(
    s3: Server, machine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path, Fake(name="made", cells=({"load.multiplier": 4},), repetitions=2))
    assert exit_code(["put", str(made), s3.url]) == 0
    url = capsys.readouterr().out.strip()
    assert url == f"{s3.url}/{made.name}"
    machine()
    assert exit_code(["report", url, "--out", str(tmp_path / "there")]) == 0
    write_report(read_story([made]), tmp_path / "here")
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    for command in ("compare", "history"):
        assert exit_code([command, url, url]) == exit_code([command, str(made), str(made)])
    assert exit_code(["baseline", url, str(tmp_path / "side.json")]) == 0


def test_each_trial_is_there_when_it_has_ended(s3: Server, machine: Any) -> None:
    with create(out_folder(f"{s3.url}/each")) as writer:
        url = f"{s3.url}/each/{writer.path.name}"
        for number in range(3):
            measure(writer, f"000{number}", number)
            machine()
            assert [r.run for r in open_run(run_directory(url)).trials.records] == [
                f"000{n}" for n in range(number + 1)
            ]
    machine()
    there = run_directory(url)
    here = files_of(writer.path)
    assert {n: here[n] for n in here if "/sut/" not in n} == files_of(there)
    assert f"{url}: not a run directory" not in str(Store.of(url).files())


def test_another_machine_goes_on(s3: Server, machine: Any) -> None:
    with create(out_folder(f"{s3.url}/on")) as first:
        measure(first, "0000", 0, profile="of the first")
        measure(first, "0001", 1)
    machine()  # with an empty state folder
    with RunWriter.resume(find_run(out_folder(f"{s3.url}/on"), "demo"), plan_sha256="p") as second:
        assert [r.run for r in second.records()] == ["0000", "0001"]
        measure(second, "0000", 0)  # it was void, say
        measure(second, "0002", 2)
    assert second.path != first.path
    machine()
    found = run_directory(f"{s3.url}/on/{first.path.name}")
    assert [r.run for r in read_trials(found).records] == ["0001", "0000", "0002"]
    assert not (found / "runs/0000/profile").exists()
    # And the first one, which has an older copy.
    copy = Copy.of(first.path)
    assert copy is not None
    copy.bring()
    assert not (first.path / "runs/0000/profile").exists()
    assert {r.run for r in first.records()} == {"0000", "0001", "0002"}


def test_one_machine_writes_and_readers_are_told(
    s3: Server, machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    above = f"{s3.url}/one"
    writer = create(out_folder(above))
    measure(writer, "0000", 0)
    url = f"{above}/{writer.path.name}"
    run_directory(url)
    assert "a run on this host writes there" in capsys.readouterr().err
    machine()
    found = run_directory(url)
    assert f"(pid {os.getpid()}) writes there since" in capsys.readouterr().err
    assert len(read_trials(found).records) == 1
    with pytest.raises(BadInput, match=r"writes there since .*; wait for it"):
        RunWriter.resume(find_run(out_folder(above), "demo"), plan_sha256="p")
    writer.close()
    run_directory(url)
    assert capsys.readouterr().err == ""
    with RunWriter.resume(found, plan_sha256="p") as second:
        assert len(second.records()) == 1


def test_a_run_that_is_not_gone_on_with_is_left_to_others(machine: Any, tmp_path: Path) -> None:
    """A nodrop that is too old to read its lines leaves a run so."""
    above = f"file://{tmp_path}/store"
    with create(out_folder(above)) as writer:
        measure(writer, "0000", 0)
        measure(writer, "0001", 1)
    there = tmp_path / "store" / writer.path.name
    readable = {path: path.read_bytes() for path in there.rglob("trial*.json*")}
    assert len(readable) == 3
    for path in readable:
        path.write_text('{"format": 99}\n')
    machine()
    found = find_run(out_folder(above), "demo")
    with pytest.raises(BadInput, match=r"format: 99 .*; to go on would remove 0000, 0001"):
        RunWriter.resume(found, plan_sha256="p")
    assert not [*tmp_path.rglob("writing.json")]
    for path, content in readable.items():
        path.write_bytes(content)
    machine()
    with RunWriter.resume(find_run(out_folder(above), "demo"), plan_sha256="p") as again:
        measure(again, "0002", 2)
        assert len(again.records()) == 3


def test_a_store_that_takes_nothing_begins_no_run(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(store: Store, files: Mapping[str, bytes]) -> None:
        raise StoreLost(f"{store.url}: access denied")

    out = out_folder(f"file://{tmp_path}/store")
    monkeypatch.setattr(Store, "put", put)
    with pytest.raises(NotReady, match="access denied"):
        create(out)
    assert not [p for p in out.iterdir() if p.is_dir()]
    assert not [p for p in (tmp_path / "store").rglob("*") if p.is_file()]


def test_a_run_that_was_killed_goes_on_where_it_was(s3: Server, machine: Any) -> None:
    above = f"{s3.url}/killed"
    writer = create(out_folder(above))
    measure(writer, "0000", 0)
    measure(writer, "0002", 2)
    writer._lock.close()  # as the kernel does
    lines = writer.path / "trials.jsonl"
    lines.write_bytes(lines.read_bytes()[:-9])  # in the middle of its last line
    with RunWriter.resume(find_run(out_folder(above), "demo"), plan_sha256="p") as again:
        measure(again, "0001", 1)
    machine()
    trials = read_trials(run_directory(f"{above}/{writer.path.name}"))
    assert len(trials.records) == 3 and not trials.damage


def test_a_store_that_was_emptied_takes_nothing_from_here(machine: Any, tmp_path: Path) -> None:
    above = f"file://{tmp_path}/store"
    with create(out_folder(above)) as writer:
        measure(writer, "0000", 0, profile="kept")
    before = files_of(writer.path)
    shutil.rmtree(tmp_path / "store")
    url = f"{above}/{writer.path.name}"
    run_directory(url)
    assert files_of(writer.path) == before
    put_run(writer.path, Store.of(above))
    assert files_of(Path(url.removeprefix("file://"))) == before


WITHOUT = """
import sys
from nodrop.cli.main import exit_code
from nodrop.terminal.arguments import out_folder
from nodrop.results.writer import RunWriter
out_folder("here")
print([name for name in ("fsspec", "s3fs", "botocore") if name in sys.modules])
for name in ("fsspec", "s3fs"):
    sys.modules[name] = None
    print(exit_code(["report", "s3://bucket/run"]))
    del sys.modules[name]
"""


def test_no_store_needs_no_library_and_a_store_says_which() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.stdout == "[]\n2\n2\n", done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all("pip install s3fs" in line for line in lines)


@pytest.mark.usefixtures("impatient")
def test_a_store_that_goes_away_loses_nothing(
    s3: Server, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "AGAIN_S", 0.0)
    writer = create(out_folder(f"{s3.url}/away"))
    measure(writer, "0000", 0)
    s3.end()
    measure(writer, "0001", 1)
    measure(writer, "0002", 2)
    _, lost = writer.notes()
    assert "files stay in" in lost and "\n" not in lost
    with pytest.raises(
        StoreLost, match=r"files of 2 of its trials lie in .* alone; nothing is lost"
    ) as end:
        writer.close()
    s3.begin_again()
    command = str(end.value).rpartition("`nodrop ")[2].rstrip("`").split()
    assert exit_code(command) == 0
    machine()
    found = run_directory(f"{s3.url}/away/{writer.path.name}")
    assert files_of(found) == {n: c for n, c in files_of(writer.path).items() if "/sut/" not in n}


@pytest.mark.usefixtures("impatient")
def test_it_says_when_a_store_is_there_again(
    s3: Server, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "AGAIN_S", 0.0)
    with create(out_folder(f"{s3.url}/again")) as writer:
        s3.end()
        measure(writer, "0000", 0)
        s3.begin_again()
        measure(writer, "0001", 1)
        assert "has what it lacked" in writer.notes()[-1]
    machine()
    found = run_directory(f"{s3.url}/again/{writer.path.name}")
    assert [r.run for r in read_trials(found).records] == ["0000", "0001"]


@pytest.mark.parametrize("after", range(24))
def test_wherever_it_breaks_the_rest_follows(
    after: int, machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken after the n-th thing that is done to the store, for each n."""
    above = f"file://{tmp_path}/store"
    left = after
    real: Mapping[str, Any] = {name: getattr(Store, name) for name in ("put", "remove", "files")}

    def counted(name: str) -> Any:
        def call(store: Store, *given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreLost("gone")
            return real[name](store, *given)

        return call

    writer = create(out_folder(above))
    for name in real:
        monkeypatch.setattr(Store, name, counted(name))
    for run in ("0000", "0001", "0000"):
        measure(writer, run, int(run), profile=f"{run}")
    try:
        writer.close()
    except StoreLost as lost:
        assert "nothing is lost" in str(lost)
    # Another machine sees only whole trials, and then all.
    left = sys.maxsize
    machine()
    url = f"{above}/{writer.path.name}"
    for seen in open_run(run_directory(url)).trials.records:
        assert seen in [*read_trials(writer.path).records]
    assert put_run(writer.path, Store.of(above)) == url
    machine()
    found = run_directory(url)
    assert {r.run for r in read_trials(found).records} == {"0000", "0001"}
    whole = {n: c for n, c in files_of(writer.path).items() if "/sut/" not in n}
    assert files_of(found) == whole


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert exit_code([*words]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


@pytest.mark.usefixtures("impatient")
def test_what_is_wrong_is_said_before_anything_is_touched(
    s3: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem  # here, because each worker collects this file

    monkeypatch.chdir(tmp_path)
    experiment = tmp_path / "x.toml"
    experiment.write_text('name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\n')
    run = ("run", str(experiment), "--out")
    assert "is in no store that fsspec knows" in said(capsys, *run, "nope://a/b")
    assert "names no place" in said(capsys, *run, "s3://")
    assert "bucket" in said(capsys, *run, "s3://no-such-bucket/b").lower()
    assert "not a run directory" in said(capsys, "report", f"{s3.url}/no-such-run")
    assert "names no run directory" in said(capsys, "report", "s3://a")
    monkeypatch.setenv("NODROP_USERNS", "ready")
    assert "leads to no store" in said(capsys, *run, s3.url)
    monkeypatch.delenv("NODROP_USERNS")
    S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "127.0.0.1:1" in said(capsys, *run, "s3://a-bucket/b")
    for words in (["report"], ["compare", "here"]):
        assert "127.0.0.1:1" in said(capsys, *words, "s3://a-bucket/a-run"), "no one could look"
    S3FileSystem.clear_instance_cache()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "credentials" in said(capsys, *run, "s3://b-bucket/b")
    assert not [*tmp_path.glob("machine*")] and not Path("results").exists()


def test_a_name_in_a_store_leads_nowhere_else(tmp_path: Path) -> None:
    """Whoever writes there does not write here."""
    made = make_run(tmp_path / "made", Fake(name="made"))
    (tmp_path / "store").mkdir()
    shutil.copytree(made, tmp_path / "store/run")
    real = Store.files

    def files(store: Store, below: str = "") -> Any:
        found = real(store, below)
        one = next(iter(found.values()))
        return found | {"runs/../../../../evil.json": one}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "files", files)
        run_directory(f"file://{tmp_path}/store/run")
    assert not [*tmp_path.rglob("evil.json")]
