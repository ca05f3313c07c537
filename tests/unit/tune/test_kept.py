"""Journals of tunings: what cannot be read stands in no other's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli import main
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.hosts.journal import DiskJournal, tuned_folder
from nodrop.tune.applying import State
from nodrop.tune.kept import tunings
from nodrop.untrusted.json_text import NotJson


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def kept(label: str, text: str) -> Path:
    journal = DiskJournal.create(label, folder=tuned_folder())
    journal.push(what="settings", action=UndoAction.RESTORE_SETTINGS, arguments=[text])
    journal.close()
    return journal.path


GOOD: dict[str, Any] = {
    "space": 1,
    "ports": {"eth0": [3, "02:00:00:00:00:01"]},
    "before": [["eth0", "mtu", "1500"]],
}
BAD = [
    {"ports": {"eth0": [-1, "02:00:00:00:00:01"]}},
    {"ports": {"eth0": ["3"]}},
    {"ports": {"eth0": 3}},
    {"before": [["eth0", "channels", "zz"]]},
    {"before": [["eth0", "channels", "00"]]},
    {"before": [["eth0"]]},
    {"before": [["eth0", "rings", 7]]},
    {"space": "x"},
]


@pytest.mark.parametrize("changed", BAD)
def test_a_journal_with_nonsense_is_named_and_the_others_are_read(changed: dict[str, Any]) -> None:
    kept("tuned-good", json.dumps(GOOD))
    bad = kept("tuned-bad", json.dumps({**GOOD, **changed}))
    found = tunings()
    assert [one.journal.label for one in found.whole] == ["tuned-good"]
    (words,) = found.unreadable
    assert words.startswith(f"{bad}: ") and "its settings are not put back" in words


@pytest.mark.parametrize("content", [b"", b"\0\xff\n", b'{"controller": 3}\n'])
def test_an_empty_journal_does_not_block_the_commands(
    content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = kept("tuned-bad", json.dumps(GOOD))
    bad.write_bytes(content)
    for command in ("status", "restore"):
        assert main.exit_code(["tune", command]) == 3
        said = capsys.readouterr().err
        assert "tuned-bad.jsonl" in said and "defect" not in said
    assert bad.exists()


def test_a_state_is_read_as_it_was_written() -> None:
    state = State.of(json.dumps({**GOOD, "before": [["eth0", "private", "28" + "00" * 7]]}))
    assert State.of(state.text()) == state
    with pytest.raises(NotJson):
        State.of(json.dumps({**GOOD, "before": [["eth0", "private", "28" + "00" * 6]]}))
