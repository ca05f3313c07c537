"""Pairs that would lock each other out are refused before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.errors import BadInput
from nodrop_fleet.file import load_fleet
from nodrop_fleet.run import must_share_nothing

EXPERIMENT = """
name = "shared"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 1
"""


def fleet(folder: Path, *pairs: tuple[str, str], more: str = "") -> Path:
    """Each a sender and a receiver, `host:port` or `:port`."""
    names = []
    for number, ends in enumerate(pairs):
        names.append(f"{number}.toml")
        text = f'name = "{number}"\nkind = "ssh"\n'
        for role, end in zip(("sender", "receiver"), ends, strict=True):
            host, _, port = end.partition(":")
            text += f'[{role}]\nport = "{port}"\n' + (f'host = "{host}"\n' if host else "")
        (folder / names[-1]).write_text(text)
    path = folder / "fleet.toml"
    path.write_text(f'name = "f"\npairs = {names}\n{more}')
    return path


@pytest.mark.parametrize(
    ("pairs", "what"),
    [
        ((("g1:a", "s1:a"), ("g2:a", "s1:b")), "host s1"),
        ((("g1:a", "s1:a"), ("s1:b", "s2:a")), "host s1"),
        ((("g1:a", ":a"), ("g2:a", ":a")), "port a of this machine"),
    ],
)
def test_one_line_says_what_they_share(
    tmp_path: Path, pairs: tuple[tuple[str, str], ...], what: str
) -> None:
    path = fleet(tmp_path, *pairs)
    with pytest.raises(BadInput) as said:
        must_share_nothing(load_fleet(path))
    assert str(said.value).startswith(f"{path}: {tmp_path}/0.toml and {tmp_path}/1.toml ")
    assert f" {what}, " in str(said.value)


def test_a_run_says_it_before_anything_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    path, out = fleet(tmp_path, ("g1:a", "s1:a"), ("g1:b", "s2:a")), tmp_path / "out"
    words = ["run", str(tmp_path / "x.toml"), "--fleet", str(path), "--out", str(out)]
    assert exit_code(words) == 2
    assert " host g1, " in capsys.readouterr().err
    assert not out.exists()


def test_what_may_be_others_is_not_refused(tmp_path: Path) -> None:
    apart = (("g1:a", ":a"), ("g2:a", ":b"), ("g3:a", "s3:a"))
    must_share_nothing(load_fleet(fleet(tmp_path, *apart)))
    workers = 'cluster = "scheduler"\naddress = "tcp://control:1"\n'
    must_share_nothing(load_fleet(fleet(tmp_path, ("g1:a", ":a"), ("g2:a", ":a"), more=workers)))
