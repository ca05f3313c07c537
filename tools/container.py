"""A container image with nodrop, for `docker load`: `python tools/container.py WHEEL OUT`.

Below lies an image of nodrop's own builder (images/nodrop: Suricata, and the programs of a lab),
above it the wheel with what it needs, as locked. The same inputs give the same bytes. It needs pip
and a package registry, as `make build` does.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from nodrop import __version__
from nodrop.testbed.images.bootstrap import build_image
from nodrop.testbed.images.image_cache import Image, list_images
from nodrop.testbed.images.image_tree import image_tar

ROOT = Path(__file__).resolve().parents[1]
RECIPE = "nodrop"
TAG = f"nodrop:{__version__}"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")
ENVIRONMENT = (
    "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "HOME=/tmp",  # for `docker run --user`: a user without a home gets / from Docker
)
PROGRAM = """#!/usr/bin/python3
import sys
from nodrop.cli.main import main
sys.exit(main())
"""


def main() -> None:
    wheel, out = (Path(word).resolve() for word in sys.argv[1:])
    image = next(iter(list_images(RECIPE)), None) or build_image(RECIPE)
    with tempfile.TemporaryDirectory() as folder:
        below = image_tar(image.rootfs)
        above = Path(folder) / "layer.tar"
        tree = Path(folder) / "tree"
        install(wheel, image, tree)
        with above.open("wb") as file:
            pack(tree, file, epoch())
        write(out, [below, above], epoch=epoch(), architecture=machine(wheel))
    print(f"{out}: {TAG}, {out.stat().st_size / 1e6:.0f} MB; docker load --input {out}")


def epoch() -> int:
    return int(os.environ["SOURCE_DATE_EPOCH"])


def machine(wheel: Path) -> str:
    return next(name for name in ARCHITECTURES if wheel.name.endswith(f"_{name}.whl"))


def install(wheel: Path, image: Image, tree: Path) -> None:
    """What the image's Python finds: the wheel and what it needs, as requirements.lock has it."""
    (python,) = (path.name for path in image.rootfs.glob("usr/lib/python3.*"))
    version = python.removeprefix("python")
    packages = tree / f"usr/local/lib/{python}/dist-packages"
    locked = tree.with_name("locked")
    text = (ROOT / "requirements.lock").read_text()
    locked.write_text(re.sub(r" *\\\n( +--hash=\S+( \\)?\n)+", "\n", text))
    platforms = [f"--platform={name}_{machine(wheel)}" for name in PLATFORMS]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", packages,
         "--only-binary=:all:", f"--python-version={version}", *platforms, "--constraint", locked,
         wheel],
        check=True,
    )  # fmt: skip
    shutil.rmtree(packages / "bin", ignore_errors=True)  # they name the builder's own Python
    for made_here in packages.glob("*.dist-info/direct_url.json"):
        made_here.unlink()
    record_what_is_there(packages)
    program = tree / "usr/local/bin/nodrop"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tree / "work").mkdir()


def record_what_is_there(packages: Path) -> None:
    """Programs and addresses that went had hashes of this machine's paths."""
    for record in packages.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        named = (row[0] for row in csv.reader(lines))
        there = [
            line for line, name in zip(lines, named, strict=True) if (packages / name).exists()
        ]
        record.write_text("".join(there))


def pack(tree: Path, to: BinaryIO, mtime: int) -> None:
    """Root's files in the order of their names, all of one time."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = mtime
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(fileobj=to, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(tree.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(tree)), recursive=False, filter=plain)


def write(out: Path, layers: Sequence[Path], *, epoch: int, architecture: str) -> None:
    """An archive as `docker save` writes it; each file is named by its hash."""
    hashes = [sha256(layer) for layer in layers]
    config = as_bytes(
        {
            "architecture": ARCHITECTURES[architecture],
            "os": "linux",
            "created": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "config": {
                "Entrypoint": ["nodrop"],
                "Cmd": ["--help"],
                "Env": ENVIRONMENT,
                "WorkingDir": "/work",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in hashes]},
        }
    )
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    files = [f"{one}/layer.tar" for one in hashes]
    manifest = as_bytes([{"Config": named, "RepoTags": [TAG], "Layers": files}])
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in ((named, config), ("manifest.json", manifest)):
            add(tar, name, io.BytesIO(content), len(content), epoch)
        for name, layer in zip(files, layers, strict=True):
            with layer.open("rb") as file:
                add(tar, name, file, layer.stat().st_size, epoch)


def add(tar: tarfile.TarFile, name: str, content: Any, size: int, mtime: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, mtime, 0o644
    tar.addfile(entry, content)


def as_bytes(said: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
