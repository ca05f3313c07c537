"""The same bits in every setup: what runs is hashed inside the place, not at its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from nodrop.hosts.binary import file_sha256
from nodrop.hosts.seam import Json
from nodrop.images.bits import Bits
from nodrop.images.image_tree import first_difference
from nodrop.ledger.reasons import Problem, Reason
from nodrop.setups.seam import Proof


def prove(
    proof: Proof | None, bits: Bits | None, files_sha256: Mapping[str, str]
) -> tuple[Json | None, Sequence[Problem]]:
    """What is said of it in the trial's facts, and what is not as the run says it is.

    `files_sha256`: of the host's files that the SUT is shown (rules), when the run began.
    """
    found = []
    if other_bits := first_difference(bits):
        found.append(Problem(code=Reason.OTHER_BITS, words=f"the image changed: {other_bits}"))
    if proof is None:
        return None, found
    facts: Json = {**asdict(proof), "expected_files": dict(files_sha256)}
    if bits is not None:
        wanted = bits.sha256 if bits.kind == "binary" else _sha256_in(bits.path, proof.exe)
        facts["expected_exe_sha256"] = wanted
        if why := _other(proof.exe_sha256, wanted):
            words = f"what runs is not the {bits.kind}'s: {proof.exe} {why}"
            found.append(Problem(code=Reason.OTHER_BITS, words=words))
    if bits is not None and bits.kind == "image" and not other_bits:
        loaded = {path: _sha256_in(bits.path, path) for path in proof.libraries}
        found += [
            Problem(code=Reason.OTHER_BITS, words=f"a library is not the image's: {path} {why}")
            for path, sha256 in proof.libraries.items()
            if (why := _other(sha256, loaded[path]))
        ]
    other = [name for name, sha256 in files_sha256.items() if proof.files.get(name) != sha256]
    if other:
        words = (
            f"{', '.join(other)}: what the SUT was shown is not the file that the run began with "
            "(another sha256 where it runs)"
        )
        found.append(Problem(code=Reason.OTHER_FILES, words=words))
    return facts, found


def _other(sha256: str | None, wanted: str | None) -> str:
    if wanted is None:
        return "is not in it"
    return "" if sha256 == wanted else "has another sha256"


@cache
def _sha256_in(image: Path, program: str) -> str | None:
    """Of a program of the unpacked image; `program` is its path inside, or on the host.

    /proc/PID/exe of another mount namespace is a path from its root: if nodrop itself runs in a
    chroot, the path begins with whatever lies outside of it. The kernel shows the path with its
    links resolved, so ours may have no links.
    """
    image = image.resolve()
    within = program.rpartition(f"{image}/")[2]
    path = image / within.lstrip("/")
    return file_sha256(path) if path.is_file() else None
