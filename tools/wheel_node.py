"""Hatchling hook: puts the static node and the commit into a wheel, the commit into an sdist.

A wheel of one machine gets that machine's tags. The node is static, so the oldest glibc and musl
that a tag can name are right for it. An editable install takes the node from the cargo target
folder instead. CARGO_BUILD_TARGET chooses another machine, as it does for cargo.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = "nodrop-node"
REVISION = "revision.txt"
MACHINES = {62: "x86_64", 183: "aarch64"}
"""ELF's number of a machine → the name in tags and triples."""
OLDEST = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
NO_CARGO = (
    "nodrop brings a program in Rust, nodrop-node, and this machine has no cargo to build it: "
    "install Rust >= 1.85 (Debian 13: apt-get install cargo; elsewhere rustup), or install the "
    "wheel of nodrop for this machine"
)
OLD_RUST = (
    "nodrop brings a program in Rust, nodrop-node, and the Rust {version} of this machine is too "
    "old to build it: install Rust >= 1.85 (elsewhere than on Debian 13: rustup), or install the "
    "wheel of nodrop for this machine"
)
OLDEST_RUST = (1, 85)
RUST_OF_ATTACH = (1, 88)
PT_INTERP = 3


class WheelNode(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root, out = Path(self.root), Path(self.directory)
        inside = "" if self.target_name == "sdist" else "nodrop/"
        if commit := revision(root):
            out.mkdir(parents=True, exist_ok=True)
            (out / REVISION).write_text(f"{commit}\n")
            build_data["force_include"][str(out / REVISION)] = inside + REVISION
        # Manual page and completions, if tools/manual.py has written them.
        share = root / "share"
        if self.target_name == "sdist":
            build_data["force_include"] |= {str(share): "share"} if share.is_dir() else {}
            return
        files = [path for path in share.rglob("*") if path.is_file()] if share.is_dir() else []
        build_data["shared_data"] |= {str(path): str(path.relative_to(root)) for path in files}
        node, target = build(root)
        machine = machine_of_static(node)
        build_data["force_include"][str(node)] = f"nodrop/node/bin/{target}/{PROGRAM}"
        tags = ".".join(sorted(f"{oldest}_{machine}" for oldest in OLDEST))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tags}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        (Path(self.directory) / REVISION).unlink(missing_ok=True)


def revision(root: Path) -> str | None:
    """Commit of the checkout, or of the one that the sdist was made from."""
    if (root / REVISION).is_file():
        return (root / REVISION).read_text().strip()
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    said = [
        subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()
        for words in (
            ("rev-parse", "--short=12", "HEAD"),
            ("status", "--porcelain", "--untracked-files=no"),
        )
    ]
    return f"{said[0]}-dirty" if said[1] else said[0]


def build(root: Path) -> tuple[Path, str]:
    """The node, and the triple of its machine."""
    if shutil.which("cargo") is None:
        raise SystemExit(NO_CARGO)
    target = os.environ.get("CARGO_BUILD_TARGET") or best_target()
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or root / "target" / "wheel")
    words = ["--package", PROGRAM, "--target", target, "--target-dir", str(folder), *features()]
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", *words],
        cwd=root,
        env={**os.environ, "RUSTFLAGS": rust_flags(root, target)},
        check=True,
    )
    return folder / target / "release" / PROGRAM, target


def features() -> list[str]:
    said = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return features_of(said.stdout)


def features_of(rustc: str) -> list[str]:
    """Without the jobs `attach` and `reference-mme` if this Rust is older than their codecs ask for
    (Makefile, `OLD_RUST`); SystemExit if it is older than nodrop-node itself does."""
    version = rustc.split()[1]
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < OLDEST_RUST:
        raise SystemExit(OLD_RUST.format(version=version))
    return ["--no-default-features"] if (int(major), int(minor)) < RUST_OF_ATTACH else []


def best_target() -> str:
    """musl where Rust has it, else glibc, linked statically."""
    musl = f"{platform.machine()}-unknown-linux-musl"
    said = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", musl], capture_output=True, text=True
    )
    there = said.returncode == 0 and Path(said.stdout.strip()).is_dir()
    return musl if there else f"{platform.machine()}-unknown-linux-gnu"


def rust_flags(root: Path, target: str) -> str:
    """With them the bytes do not depend on where the sources and crates lie."""
    cargo = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    flags = [f"--remap-path-prefix={cargo}=/cargo", f"--remap-path-prefix={root}=/nodrop"]
    return " ".join(["-C target-feature=+crt-static"] * ("gnu" in target) + flags)


def machine_of_static(program: Path) -> str:
    """Machine that an ELF program is for; SystemExit if it needs a loader that a host may lack."""
    head = program.read_bytes()[:4096]
    if head[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{program} is no 64-bit little-endian ELF file")
    number = struct.unpack_from("<H", head, 18)[0]
    at = struct.unpack_from("<Q", head, 32)[0]
    size, count = struct.unpack_from("<HH", head, 54)
    kinds = [struct.unpack_from("<I", head, at + size * i)[0] for i in range(count)]
    if PT_INTERP in kinds:
        raise SystemExit(f"{program} is linked dynamically: a wheel brings a static one")
    if number not in MACHINES:
        raise SystemExit(f"{program}: no wheel tag is known for ELF machine {number}")
    return MACHINES[number]


def get_build_hook() -> type[WheelNode]:
    return WheelNode
