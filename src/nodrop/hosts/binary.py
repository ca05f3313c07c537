"""Finds the node binary: the one Rust program that works on hosts for the controller."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from nodrop.errors import LabProblem

PROGRAM = "nodrop-node"
ENVIRONMENT = "NODROP_NODE"


def find_node_binary(machine: str | None = None) -> Path:
    """The first executable of `candidates`; the error lists every place tried.

    `machine`: as the `uname -m` of a far host says; what the environment chooses is for this one.
    """
    here = machine in (None, platform.machine())
    chosen = os.environ.get(ENVIRONMENT) if here else None
    if chosen:
        path = Path(chosen)
        if not _runs(path):
            raise LabProblem(
                f"{ENVIRONMENT}={chosen} is not an executable file",
                hint=f"unset {ENVIRONMENT} or point it at a {PROGRAM} binary",
            )
        return path.resolve()
    tried = candidates(machine)
    for path in tried:
        if _runs(path):
            return path
    raise LabProblem(
        f"no {PROGRAM} binary found{'' if here else f' for {machine}'} "
        f"(looked at {', '.join(map(str, tried))})",
        hint=f"run `make build`, or set {ENVIRONMENT} to the binary"
        if here
        else "build one for that machine in this checkout (cargo build --release --target …)",
    )


def candidates(machine: str | None = None) -> list[Path]:
    """Packaged binary first, then the cargo target folder of the checkout we are in.

    Release before debug (a debug build cannot pace), musl before glibc (one file for every host).
    """
    here = platform.machine()
    machine = machine or here
    triples = [f"{machine}-unknown-linux-musl", f"{machine}-unknown-linux-gnu"]
    package = Path(__file__).resolve().parents[1]
    places = [package / "node" / "bin" / triple / PROGRAM for triple in triples]
    checkout = package.parents[1]
    if (checkout / "Cargo.toml").is_file():
        target = Path(os.environ.get("CARGO_TARGET_DIR", checkout / "target"))
        for profile in ("release", "debug"):
            places += [target / triple / profile / PROGRAM for triple in triples]
            if machine == here:
                places.append(target / profile / PROGRAM)
    return places


def file_sha256(path: Path) -> str:
    """Content hash, for the manifest."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
