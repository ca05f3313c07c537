"""A release as a dry run, the end of `make release`: everything but tag and upload.

What was built is held against the commit, the version, the changelog and the locks; dist/ then has
every file of the release, its notes, and SHA256SUMS. NODROP_ADVISORIES names folders of advisories
for tools/audit.py, with `:` between them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.container import pack, sha256

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
EXTRAS_OF_LOCK = {
    "requirements.lock": ("build", "docker", "parquet", "s3", "scaling"),
    "requirements-dev.lock": ("dev",),
    "requirements-dist.lock": ("dist",),
}
"""As `make lock` compiles them."""


def main() -> None:
    version = versions(ROOT)
    commit = git("rev-parse", "--short=12", "HEAD")
    if changed := git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"changed files, so no commit is what is released:\n{changed}")
    if git("tag", "--list", f"v{version}"):
        raise SystemExit(f"v{version} is a tag already: raise the version")
    (wheel,) = DIST.glob(f"nodrop-{version}-*.whl")
    built_of(wheel, commit)
    for lock, extras in EXTRAS_OF_LOCK.items():
        hashed(ROOT, lock, extras)
    crates_hashed(ROOT)
    (DIST / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
    with (DIST / f"nodrop-{version}-site.tar").open("wb") as file:
        pack(ROOT / ".make/site", file, int(git("log", "-1", "--format=%ct")))
    image = DIST / f"nodrop-{version}-image.tar"
    image.unlink(missing_ok=True)
    image.hardlink_to(ROOT / ".make/image/nodrop.tar")
    audited()
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(f"{sums}dry run: nothing was tagged or uploaded. A maintainer's steps from here:")
    print(f"  git tag --sign v{version} {commit} --message 'nodrop {version}'")
    print("  the files of dist/, with NOTES.md as the text, to wherever nodrop is published")


def git(*words: str) -> str:
    argv = ["git", "-C", str(ROOT), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def siblings(root: Path) -> list[dict[str, Any]]:
    """The [project] tables of the packages beside nodrop."""
    found = sorted((root / "packages").glob("*/pyproject.toml"))
    return [tomllib.loads(one.read_text())["project"] for one in found]


def versions(root: Path) -> str:
    """The version, which both languages must agree on."""
    python = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    rust = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    if python != rust:
        raise SystemExit(f"pyproject.toml has version {python}, Cargo.toml {rust}")
    for one in siblings(root):
        if one["version"] != python or f"nodrop=={python}" not in one["dependencies"]:
            raise SystemExit(f"{one['name']} is not of version {python}, or for another nodrop")
    return str(python)


def built_of(wheel: Path, commit: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        said = archive.read("nodrop/revision.txt").decode().strip()
    if said != commit:
        raise SystemExit(f"{wheel.name} was built of {said}, and this is {commit}: make dist")


def hashed(root: Path, lock: str, extras: tuple[str, ...]) -> None:
    """Each pin of a lock has hashes, and each package that is asked for a pin that satisfies it."""
    text = (root / lock).read_text()
    pins = re.findall(
        r"^([\w.-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})*)", text, re.MULTILINE
    )
    if bare := [name for name, _, hashes in pins if not hashes]:
        raise SystemExit(f"{lock}: no hash of {', '.join(bare)}: make lock")
    pinned = {canonicalize_name(name): version for name, version, _ in pins}
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    if lock == "requirements.lock":
        for package in siblings(root):
            asked += [each for each in package["dependencies"] if not each.startswith("nodrop==")]
    for one in map(Requirement, asked):
        version = pinned.get(canonicalize_name(one.name))
        if version is None or not one.specifier.contains(version, prereleases=True):
            raise SystemExit(
                f"{lock} has {one.name} {version}, pyproject.toml asks {one}: make lock"
            )
    print(f"{lock}: {len(pins)} packages, each with its hashes")


def crates_hashed(root: Path) -> None:
    crates = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    foreign = [crate for crate in crates if "source" in crate]
    if bare := [crate["name"] for crate in foreign if "checksum" not in crate]:
        raise SystemExit(f"Cargo.lock: no checksum of {', '.join(bare)}")
    print(f"Cargo.lock: {len(foreign)} crates, each with its checksum")


def notes(changelog: str, version: str) -> str:
    """The part of the changelog that is new: under the version, or still under Unreleased."""
    parts = re.split(r"^## \[(.+?)\].*$", changelog, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    text = texts.get(version, "").strip()
    waiting = texts.get("Unreleased", "").strip()
    if text and waiting:
        raise SystemExit(
            f"CHANGELOG.md has changes that are neither in {version} nor in a later one"
        )
    if not text and not waiting:
        raise SystemExit(f"CHANGELOG.md has nothing of {version}")
    return f"# nodrop {version}\n\n{text or waiting}\n"


def audited() -> None:
    if not (folders := os.environ.get("NODROP_ADVISORIES")):
        print("audit: left out, as NODROP_ADVISORIES names no advisories (tools/audit.py)")
        return
    subprocess.run([sys.executable, ROOT / "tools/audit.py", *folders.split(":")], check=True)


if __name__ == "__main__":
    main()
