"""`nodrop compare` and `baseline` on the command line: what they read, refuse and write."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from nodrop.cli import main
from nodrop.compare.sides import read_side
from nodrop.results.layout import locked
from tests.made.rundirs import DEMO, SETUPS, again
from tools.schemas import schemas

Made = Callable[[str], Path]
TWO = replace(DEMO, cells=({"load.multiplier": 1},), repetitions=2, samples=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run of this name, made once: it is only read."""
    folder = tmp_path_factory.mktemp("made")
    return cache(lambda name: again(folder, name))


def test_of_run_directories_and_a_baseline(
    tmp_path: Path, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = made("one"), made("other")
    stored, junit = tmp_path / "base.json", tmp_path / "junit.xml"
    assert main.exit_code(["baseline", str(a), str(stored)]) == 0
    Draft202012Validator(schemas()["baseline"]).validate(json.loads(stored.read_text()))
    assert read_side(str(stored)) == read_side(str(a))
    capsys.readouterr()
    code = main.exit_code(["compare", str(a), str(b), "--json", "--junit", str(junit)])
    direct = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["compare"]).validate(direct)
    assert code == direct["exit_code"]
    assert main.exit_code(["compare", str(stored), str(b), "--json"]) == code
    assert json.loads(capsys.readouterr().out) == direct
    suite = ElementTree.fromstring(junit.read_bytes())
    assert [c.get("name") for c in suite] == [row["metric"] for row in direct["rows"]]
    again_too = main.exit_code(["compare", str(a), str(b), "--junit", str(junit)])
    assert again_too == code, "its own may be written anew"
    assert main.exit_code(["compare", str(a), str(b), "--markdown"]) == code
    assert "| cell | metric |" in capsys.readouterr().out
    page = tmp_path / "compare.html"
    for _ in range(2):
        assert main.exit_code(["compare", str(a), str(b), "--page", str(page)]) == code
        said = capsys.readouterr().out
        assert f"  answer    {direct['card']['headline']}" in said and f"page: {page}" in said
    assert direct["card"]["headline"] in page.read_text()


@pytest.mark.parametrize("file", ["none/there.xml", "a/b/c", "."])
@pytest.mark.parametrize(
    "words",
    [
        ["compare", "A", "B", "--junit"],
        ["compare", "A", "B", "--page"],
        ["ab", "--a", "x", "--b", "y", "z.pcap", "--junit"],
        ["history", "A", "B", "--page"],
        ["baseline", "A"],
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything(
    words: list[str], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: it was found after the work was done, and called a failure of the lab."""
    assert main.exit_code([*words, str(tmp_path / file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(tmp_path / file) in said


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "A", "B", "--junit"],
        ["compare", "A", "B", "--page"],
        ["ab", "--a", "x", "--b", "y", "z.pcap", "--junit"],
        ["history", "A", "B", "--page"],
    ],
)
def test_a_file_of_something_else_is_not_written_over(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials.jsonl"
    file.write_text('{"run": "0001"}\n')
    assert main.exit_code([*words, str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{file}: is there, and no " in said
    assert file.read_text() == '{"run": "0001"}\n'


def test_a_full_disk_costs_no_earlier_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: the baseline that was there was empty afterwards, and no file was named."""
    run, stored = again(tmp_path, "one"), tmp_path / "base.json"
    words = ["baseline", str(run), str(stored)]
    assert main.exit_code(words) == 0
    before, (_, most) = stored.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, most))
    try:
        code = main.exit_code(words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert code == 2 and f"nodrop: {stored}: File too large" in capsys.readouterr().err
    assert stored.read_bytes() == before and not list(tmp_path.glob("*.part"))


def test_what_cannot_be_read_is_said_by_who_writes_a_file_of_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = again(tmp_path, "cut")
    lines = (run / "trials.jsonl").read_text().splitlines(keepends=True)
    lines[1] = "xxxx" + lines[1][4:]
    (run / "trials.jsonl").write_text("".join(lines))
    files = (tmp_path / "b.json", tmp_path / "t.parquet")
    for words in (["baseline", run, files[0]], ["export", run, "--parquet", files[1]]):
        assert main.exit_code([*map(str, words)]) == 0
        assert "nodrop: left out: trials.jsonl:2: " in capsys.readouterr().err
    with locked(run):
        assert main.exit_code(["baseline", str(run), str(files[0])]) == 0
    assert "is still being written" in capsys.readouterr().err


def test_cells_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = again(tmp_path, "setups", replace(SETUPS, samples=False))
    bare, docker = (f"{run}::setup.kind={kind}" for kind in ("bare", "docker"))
    assert main.exit_code(["compare", bare, docker]) == 2
    assert "--differs" in capsys.readouterr().err
    assert main.exit_code(["compare", bare, docker, "--differs", "setup.kind"]) in (0, 5, 6)
    assert "setup.kind" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("no-such", "{run}", "no such run directory or baseline file"),
        ("{run}", "{run}", "are one run"),
        ("{run}::load.multiplier=7", "{run}", "no such cell"),
        ("{run}::multiplier", "{run}", "key=value"),
        ("{junk}", "{run}", "no baseline file"),
    ],
)
def test_bad_input_is_one_line(
    a: str, b: str, said: str, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = tmp_path / "junk.json"
    junk.write_text('{"format": 1}')
    names = {"run": made("one"), "junk": junk}
    assert main.exit_code(["compare", a.format(**names), b.format(**names)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--differs", "nosuch"], "--differs nosuch: neither side has such a fact"),
        (["--differs", ""], "--differs ''"),
        (["--differs", "sut.", "--differs", "sut"], "--differs sut."),
        (["--differs", "set"], "--differs set"),
        (["--json", "--markdown"], "--json and --markdown"),
    ],
)
def test_slips_are_refused(
    words: list[str], said: str, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(["compare", str(made("one")), str(made("other")), *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


def test_a_baseline_is_made_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, again_stored = tmp_path / "stored.json", tmp_path / "again.json"
    assert main.exit_code(["baseline", str(again(tmp_path, "one")), str(stored)]) == 0
    assert main.exit_code(["baseline", str(stored), str(again_stored)]) == 2
    assert "no run directory" in capsys.readouterr().err
    assert not again_stored.exists()


@pytest.mark.parametrize("lines", [1, 3, 12])
def test_what_could_not_be_read_is_said(
    lines: int, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: a run with damaged lines was compared as if it were whole."""
    good, bad = made("one"), again(tmp_path, "bad")
    with (bad / "trials.jsonl").open("a") as file:
        file.write("nonsense\n" * lines)
    stored = tmp_path / "stored.json"
    assert main.exit_code(["baseline", str(bad), str(stored)]) == 0
    for b in (bad, stored):
        assert main.exit_code(["compare", str(good), str(b)]) in (0, 5, 6)
        said = capsys.readouterr().out
        assert said.count("B could not be read whole: trials.jsonl:") == min(lines, 8)
        assert ("such lines more" in said) == (lines > 8)


DAMAGED = "what was measured there is not known"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("manifest.json", b'{"host": {"cpu', "manifest.json cannot be read ("),
        ("manifest.json", b"", DAMAGED),
        ("manifest.json", b"[1, 2]", DAMAGED),
        ("manifest.json", b"\x00\xff" * 99, DAMAGED),
        ("manifest.json", None, "manifest.json cannot be read (No such file or directory)"),
        ("trials.jsonl", b"", "no trial to compare: none was measured"),
        ("trials.jsonl", b"nonsense\n", "no trial to compare: trials.jsonl:1: "),
        ("trials.jsonl", b'{"cell": {}', "no trial to compare: trials.jsonl:1: half-written"),
        ("trials.jsonl", None, "no trial to compare: trials.jsonl: No such file"),
    ],
)
def test_a_run_that_cannot_be_read_is_compared_with_nothing(
    file: str,
    content: bytes | None,
    said: str,
    made: Made,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seen: a baseline of no trials with exit code 0, and forty facts that "differ"."""
    good, bad = made("one"), again(tmp_path, "bad")
    (bad / file).unlink()
    if content is not None:
        (bad / file).write_bytes(content)
    stored = tmp_path / "stored.json"
    for words in (
        ["compare", str(good), str(bad)], ["compare", f"{bad}::load.multiplier=1", str(good)],
        ["history", str(good), str(bad)], ["baseline", str(bad), str(stored)],
    ):  # fmt: skip
        assert main.exit_code(words) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1 and len(error) < 500, error
    assert not stored.exists()


def test_a_baseline_that_cannot_be_opened_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in (["compare", str(loop), str(loop)], ["baseline", str(loop), str(tmp_path / "x")]):
        assert main.exit_code(words) == 2
        assert "symbolic links" in capsys.readouterr().err
