"""The user namespace of a normal user: with all ids that the user has, or with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import NotReady
from nodrop.testbed.hosts import rights

REFUSES = '#!/bin/sh\nfor word; do [ "$word" != "{word}" ] || {{ echo no >&2; exit 1; }}; done\n'


@pytest.mark.parametrize(
    ("refused", "used"),
    [("--nothing", (*rights.UNSHARE, *rights.ALL_USERS)), (rights.ALL_USERS[0], rights.UNSHARE)],
)
def test_all_ids_where_the_host_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, used: tuple[str, ...]
) -> None:
    stand_in(tmp_path, monkeypatch, refused)
    assert rights.user_namespace_command() == used


@pytest.mark.parametrize(
    ("uid", "docker", "words"),
    [
        (1000, False, r"gives normal users no user namespace \(no\); run as root"),
        (1000, True, r"container's user 1000 .* \(no\); docker run needs --cap-add SYS_ADMIN"),
        (0, False, r"root here may make no namespace \(no\); docker run needs .* apparmor="),
    ],
)
def test_without_any_the_words_of_unshare_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, docker: bool, words: str
) -> None:
    stand_in(tmp_path, monkeypatch, "--user")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    (tmp_path / "dockerenv").touch()
    monkeypatch.setattr(rights, "DOCKER", tmp_path / ("dockerenv" if docker else "none"))
    with pytest.raises(NotReady, match=words):
        rights.user_namespace_command()


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    program = folder / "unshare"
    program.write_text(REFUSES.format(word=refused))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
