"""The programs that really ran, held against those that the run says it measures."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.ledger.outcome import Reason
from nodrop.measure.standing import prove
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.api import Proof

PROGRAM = b"the program"
RULES = {"rules-0-et": "a" * 64}


def image(folder: Path) -> Bits:
    root, tar = folder / "rootfs", folder / "rootfs.tar"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/suricata").write_bytes(PROGRAM)
    (root / "usr/lib").mkdir()
    (root / "usr/lib/libhtp.so").write_bytes(b"a library")
    with tarfile.open(tar, "w") as packed:
        packed.add(root, ".")
    return Bits(kind="image", path=root, sha256=hashlib.sha256(tar.read_bytes()).hexdigest())


def ran(content: bytes = PROGRAM, files: dict[str, str] = RULES) -> Proof:
    sha256 = hashlib.sha256(content).hexdigest()
    return Proof(exe="/usr/bin/suricata", exe_sha256=sha256, files=files)


def test_the_same_bits_and_rules_leave_nothing_to_say(tmp_path: Path) -> None:
    facts, problems = prove(ran(), image(tmp_path), RULES)
    assert problems == []
    assert facts is not None
    assert facts["expected_exe_sha256"] == facts["exe_sha256"]
    assert facts["expected_files"] == facts["files"] == RULES


def test_the_path_may_be_told_from_inside_or_from_a_root_outside_of_ours(tmp_path: Path) -> None:
    """Seen on a fresh Debian 13 in a chroot: every trial was invalid."""
    bits = image(tmp_path)
    for begins in ("", str(bits.path), f"/srv/chroot/{bits.path}"):
        _, problems = prove(replace(ran(), exe=f"{begins}/usr/bin/suricata"), bits, RULES)
        assert problems == []


@pytest.mark.parametrize("link", ["home", "home/cache", "home/cache/image"])
def test_a_cache_reached_through_a_link(tmp_path: Path, link: str) -> None:
    """The kernel says where the program lies, whichever way it was reached."""
    there = tmp_path / "elsewhere"
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    real = image(there / "home/cache/image".removeprefix(link).lstrip("/"))
    (tmp_path / link).symlink_to(there)
    bits = replace(real, path=tmp_path / "home/cache/image/rootfs")
    exe = f"{real.path}/usr/bin/suricata"
    assert prove(replace(ran(), exe=exe), bits, RULES)[1] == []
    _, problems = prove(replace(ran(b"another"), exe=exe), bits, RULES)
    assert [p.words for p in problems] == [
        f"what runs is not the image's: {exe} has another sha256"
    ]


def test_a_program_from_elsewhere_is_not_said_to_have_another_hash(tmp_path: Path) -> None:
    _, problems = prove(replace(ran(), exe="/opt/suricata"), image(tmp_path), RULES)
    assert [p.words for p in problems] == [
        "what runs is not the image's: /opt/suricata is not in it"
    ]


def test_a_library_that_changed_during_the_run_is_other_bits(tmp_path: Path) -> None:
    bits = image(tmp_path)
    assert prove(ran(), bits, RULES)[1] == []
    with (bits.path / "usr/lib/libhtp.so").open("ab") as file:
        file.write(b"x")
    for proof in (ran(), None):
        _, problems = prove(proof, bits, RULES)
        assert [p.code for p in problems] == [Reason.OTHER_BITS]
        assert "usr/lib/libhtp.so is not what" in problems[0].words


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("/usr/lib/libhtp.so", b"a librarY", "has another sha256"),
        ("/usr/lib/libhtp.so", b"", "has another sha256"),
        ("/usr/lib/libhtp.so", None, "has another sha256"),  # gone from where it ran
        ("/usr/lib/libhtp.so (deleted)", None, "is not in it"),
        ("/opt/libhook.so", b"a library", "is not in it"),
    ],
)
def test_a_library_of_other_bytes_where_the_program_runs_is_other_bits(
    tmp_path: Path, path: str, content: bytes | None, why: str
) -> None:
    """A guest's disk, a layer of Docker's: the image of the cache is what it was."""
    bits = image(tmp_path)
    right = {"/usr/lib/libhtp.so": hashlib.sha256(b"a library").hexdigest()}
    assert prove(replace(ran(), libraries=right), bits, RULES)[1] == []
    sha256 = None if content is None else hashlib.sha256(content).hexdigest()
    _, problems = prove(replace(ran(), libraries={**right, path: sha256}), bits, RULES)
    assert [(p.code, p.words) for p in problems] == [
        (Reason.OTHER_BITS, f"a library is not the image's: {path} {why}")
    ]


def test_another_program_and_other_rules_each_make_a_trial_invalid(tmp_path: Path) -> None:
    other = ran(b"another program", {"rules-0-et": "b" * 64})
    _, problems = prove(other, image(tmp_path), RULES)
    assert [p.code for p in problems] == [Reason.OTHER_BITS, Reason.OTHER_FILES]
    assert "rules-0-et" in problems[1].words


def test_rules_that_nobody_saw_there_are_not_proved() -> None:
    _, problems = prove(ran(files={}), None, RULES)
    assert [p.code for p in problems] == [Reason.OTHER_FILES]


def test_nobody_could_look() -> None:
    assert prove(None, None, RULES) == (None, [])
