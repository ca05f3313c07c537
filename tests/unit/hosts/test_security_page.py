"""docs/reference/security.md says of each job what it may do: what is said is what is given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodrop.protocol import ProbeResult
from nodrop.remote import inputs, outbox, upload
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.processes import keep_words
from nodrop.testbed.hosts.rights import (
    KEEPER,
    KEPT,
    KEPT_BY_OURS,
    LOOKS,
    QEMU,
    SUT,
    SUT_USER,
    of_job,
)
from nodrop.testbed.hosts.ssh import KEPT_FOLDER, NODE_FOLDER, TAKE

SOURCES = Path(__file__).parents[3] / "src/nodrop"
PAGE = (Path(__file__).parents[3] / "docs/reference/security.md").read_text()

SECURITY = (Path(__file__).parents[3] / "SECURITY.md").read_text()


def rows() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Program → user, capabilities."""
    found = {}
    for line in PAGE.partition("| what runs |")[2].partition("\n\n")[0].splitlines()[2:]:
        what, user, caps = (cell.strip() for cell in line.strip("|").split("|"))
        found[what] = user, tuple(re.findall(r"`([A-Z_]+)`", caps))
    return found


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("job `replay`, and tcpreplay", {"job": "replay"}),
        ('job `replay` with `backend = "flood"`', {"job": "replay", "backend": "flood"}),
        ("job `sample`", {"job": "sample"}),
        (
            "job `overhear`: `nodrop lab check`, and a run before its first trial, count their own "
            "marked frames; the ports are promiscuous as long as it runs",
            {"job": "overhear"},
        ),
        (
            "job `trace`: reads a capture, or makes one; also `nodrop trace info`",
            {"job": "trace"},
        ),
        (
            "job `probe`, for `counters`, `process`, `proof`, `processes`, `usage` and `account`",
            {"job": "probe", "what": ["counters", "proof"]},
        ),
        ("the SUT: Suricata, or the sink", {"job": "sink"}),
        ("the sink in setup `bare`", {"job": "sink"}),
    ],
)
def test_the_page_says_what_a_job_may(what: str, spec: Mapping[str, str]) -> None:
    assert rows()[what][1] == of_job(spec)


def test_every_word_of_a_probe_is_on_the_page() -> None:
    limited, free = (
        {*re.findall(r"`(\w+)`", what)} - {"probe", "profile"}
        for what in rows()
        if what.startswith("job `probe`")
    )
    assert limited == LOOKS
    assert limited | free == {*ProbeResult.__annotations__}
    assert all(of_job({"job": "probe", "what": [word]}) is None for word in free)
    assert of_job({"job": "probe", "what": ["usage", min(free)]}) is None
    assert of_job({"job": "profile"}) is None


def test_the_page_says_what_a_sut_may() -> None:
    assert rows()["the SUT: Suricata, or the sink"] == (
        f"{SUT_USER}, which no distribution gives to anybody; in a normal user's namespace that "
        "user",
        SUT,
    )


def test_the_page_says_what_qemu_begins_with() -> None:
    assert rows()["QEMU of setup `vm`"] == ("nobody", QEMU)


def test_the_page_names_each_variable_that_programs_get() -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("Of nodrop's environment"))
    sut, _, others = line.partition("; ")
    assert tuple(re.findall(r"`(\w+)`", sut)) == KEPT
    assert set(re.findall(r"`(\w+)`", others)) == {*KEPT_BY_OURS} - {*KEPT}
    numbers = {8: "eight"}
    assert f"[{numbers[len(KEPT_BY_OURS)]} variables]" in SECURITY


def test_security_md_lists_each_undo_action() -> None:
    said = re.search(r"one of (\w+) actions \(([^)]*)\)", SECURITY)
    assert said is not None
    assert re.findall(r"`(\w+)`", said[2]) == [str(action) for action in UndoAction]
    assert {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}[said[1]] == len(UndoAction)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD"])
def test_a_program_gets_no_key_of_our_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/of/ours")
    monkeypatch.setenv("NODROP_BOUNDS_TIMES", "3")
    host = LocalHost(name="here", node=Path("/node"), label="label1")
    found = dict(line.split("=", 1) for line in host.run(["env"]).stdout.splitlines())
    assert {*found} <= {*KEPT_BY_OURS, "NODROP_LAB"}
    assert (found["NODROP_LAB"], found["NODROP_BOUNDS_TIMES"]) == ("label1", "3")


def test_the_page_says_where_files_lie_on_another_host() -> None:
    assert f"`{NODE_FOLDER}/SHA256/nodrop-node` | the node | root's, 755 |" in PAGE
    assert f"`{KEPT_FOLDER}/kept.XXXXXX`" in PAGE
    assert TAKE.splitlines()[1] == "umask 077"


def test_the_page_says_what_a_keeper_may() -> None:
    assert rows()["`keep`, on another host"] == ("root", KEEPER)
    assert ",".join(KEEPER) in keep_words("node", KEPT_FOLDER, "label")


def test_the_page_says_where_a_receiver_elsewhere_has_what() -> None:
    assert f"`{upload.CONTROL_FOLDER}/SHA256` | nodrop itself" in PAGE
    assert f"`{inputs.FILES_FOLDER}/SHA256` | the trace, rules and other files" in PAGE
    assert f"`{outbox.RUNS_FOLDER}/{outbox.RUN}XXXXXX` | the run" in PAGE
    assert f"`{outbox.RUNS_FOLDER}/{outbox.UNTAKEN}` | the last trial" in PAGE


def test_every_folder_that_stays_on_this_host_is_on_the_page() -> None:
    sources = "".join(file.read_text() for file in SOURCES.rglob("*.py"))
    cached = {*re.findall(r'cache_folder\(\) / "(\w+)"', sources)}
    kept = {*re.findall(r'state_folder\(\) / "(\w+)"', sources)}
    assert {"images", "rules"} <= cached and {"undo", "calibrate"} <= kept
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| `~/.cache/nodrop` "))
    assert cached == {*re.findall(r"`(\w+)`", row)} - {"XDG_CACHE_HOME"}
    assert kept == {*re.findall(r"^\| `~/\.local/state/nodrop/(\w+)`", PAGE, re.MULTILINE)}


def test_every_temporary_folder_is_on_the_page() -> None:
    made = {
        prefix
        for file in SOURCES.rglob("*.py")
        for prefix in re.findall(
            r'(?:TemporaryDirectory|mkdtemp)\(prefix="(nodrop-[a-z-]*)"\)', file.read_text()
        )
    }
    assert "nodrop-" in made
    assert all(f"{prefix}XXXXXXXX`" in PAGE for prefix in made)
