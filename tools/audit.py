"""Known vulnerabilities of what nodrop locks: `python tools/audit.py FOLDER…`.

FOLDER holds advisories in the OSV format, as files of JSON or YAML at any depth: a checkout of
pypa/advisory-database, or of the branch `osv` of rustsec/advisory-db. No network is asked. The exit
code is 1 if an advisory holds for a locked version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOCKS = tuple(f"requirements{part}.lock" for part in ("", "-dev", "-dist", "-uv"))
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)

Package = tuple[str, str]
"""Ecosystem as OSV names it, and name."""


def locked(root: Path) -> Mapping[Package, set[str]]:
    """Versions of each package that a lock file names."""
    found: dict[Package, set[str]] = {}
    for lock in LOCKS:
        for name, version in PINNED.findall((root / lock).read_text()):
            found.setdefault(("PyPI", canonicalize_name(name)), set()).add(version)
    for crate in tomllib.loads((root / "Cargo.lock").read_text())["package"]:
        if "source" in crate:
            found.setdefault(("crates.io", crate["name"]), set()).add(crate["version"])
    return found


def advisories(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".yaml", ".yml") and ".git" not in path.parts:
            read = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
            if isinstance(read, dict) and "affected" in read and not read.get("withdrawn"):
                yield read


def affected(advisory: Mapping[str, Any], package: Package, version: str) -> bool:
    """OSV's rule: listed, or at or after an `introduced` without a later end."""
    for one in advisory["affected"]:
        named = one.get("package", {})
        name = named.get("name", "")
        name = canonicalize_name(name) if named.get("ecosystem") == "PyPI" else name
        if (named.get("ecosystem"), name) != package:
            continue
        if version in one.get("versions", ()):
            return True
        for span in one.get("ranges", ()):
            if span.get("type") != "GIT" and within(span["events"], version):
                return True
    return False


def within(events: Iterable[Mapping[str, str]], version: str) -> bool:
    ours, inside = Version(version), False
    for at, kind in sorted(
        (number(text), kind) for event in events for kind, text in event.items() if kind != "limit"
    ):
        if kind == "introduced":
            inside = inside or ours >= at
        elif kind == "fixed":
            inside = inside and ours < at
        else:  # last_affected
            inside = inside and ours <= at
    return inside


def number(text: str) -> Version:
    """RustSec's 0.0.0-0 and 1.2.0-0 are before every version of that number."""
    plain = str(text).removesuffix("-0")
    try:
        return Version(plain)
    except InvalidVersion:
        raise SystemExit(f"{text!r} of an advisory is no version") from None


def main() -> None:
    if not (folders := [Path(word) for word in sys.argv[1:]]):
        raise SystemExit("usage: python tools/audit.py FOLDER…, with advisories in the OSV format")
    packages, counts, newest, found = locked(ROOT), dict.fromkeys(("PyPI", "crates.io"), 0), "", []
    for folder in folders:
        for advisory in advisories(folder):
            newest = max(newest, str(advisory.get("modified", "")))
            for ecosystem in {
                one.get("package", {}).get("ecosystem") for one in advisory["affected"]
            }:
                counts[ecosystem] = counts.get(ecosystem, 0) + 1
            for package, versions in packages.items():
                found += [
                    f"{package[1]} {version}: {advisory['id']} {advisory.get('summary') or ''}"
                    for version in sorted(versions)
                    if affected(advisory, package, version)
                ]
    for ecosystem in ("PyPI", "crates.io"):
        if not counts[ecosystem]:
            raise SystemExit(f"{', '.join(map(str, folders))}: no advisory of {ecosystem}")
    print(
        f"audit: {len(packages)} locked packages and crates, {counts['PyPI']} advisories of PyPI, "
        f"{counts['crates.io']} of crates.io, the newest of {newest}: {len(found)} hold"
    )
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
