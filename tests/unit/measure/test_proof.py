"""What really ran, held against what the run says it measures."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from nodrop.lab.seam import Bits
from nodrop.ledger.reasons import Reason
from nodrop.measure.proof import prove
from nodrop.setups.seam import Proof

PROGRAM = b"the program"
RULES = {"rules-0-et": "a" * 64}


def image(folder: Path) -> Bits:
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/suricata").write_bytes(PROGRAM)
    return Bits(kind="image", path=folder, sha256="of the tar")


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
    bits = image(tmp_path / "rootfs")
    for begins in ("", str(bits.path), f"/srv/chroot/{bits.path}"):
        _, problems = prove(replace(ran(), exe=f"{begins}/usr/bin/suricata"), bits, RULES)
        assert problems == []


def test_another_program_and_other_rules_each_make_a_trial_invalid(tmp_path: Path) -> None:
    other = ran(b"another program", {"rules-0-et": "b" * 64})
    _, problems = prove(other, image(tmp_path), RULES)
    assert [p.code for p in problems] == [Reason.OTHER_BITS, Reason.OTHER_FILES]
    assert "rules-0-et" in problems[1].words


def test_rules_that_nobody_saw_there_are_not_proved() -> None:
    _, problems = prove(ran(files={}), None, RULES)
    assert [p.code for p in problems] == [Reason.OTHER_FILES]


def test_nobody_could_look() -> None:
    assert prove(None, None, RULES) == (None, ())
