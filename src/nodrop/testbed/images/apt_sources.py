"""Sources of this host's apt: its distribution, the mirrors of it, and the proxy to them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.local import run_command

APT = Path("/etc/apt")
PROXY_SETTINGS = ("Acquire::http::", "Acquire::https::")
"""Proxy, its exceptions by host, and the certificates a proxy may need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AptSource:
    """One place that apt fetches binary packages from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """Mirrors of one distribution. `security` is None if the host has none configured."""

    archive: str
    security: str | None


def find_mirrors(codename: str, sources: Iterable[AptSource]) -> Mirrors:
    """Mirrors among the sources for the host's own release `codename`.

    Third parties use release names too; only the distribution itself serves `-updates`.
    """
    known = list(sources)
    archives = [s.uri for s in known if codename in s.suites and "main" in s.components]
    with_updates = {s.uri for s in known if f"{codename}-updates" in s.suites}
    archives.sort(key=lambda uri: uri not in with_updates)
    if not archives:
        raise LabProblem(
            f"no apt source of this host serves {codename} main",
            hint="add your distribution's mirror to /etc/apt/sources.list, install Suricata "
            "yourself, or set sut.binary",
        )
    security = [s.uri for s in known if f"{codename}-security" in s.suites]
    return Mirrors(archive=archives[0], security=security[0] if security else None)


def host_sources(apt: Path = APT) -> list[AptSource]:
    """/etc/apt/sources.list and sources.list.d, in both formats of sources.list(5)."""
    sources: list[AptSource] = []
    parts = apt / "sources.list.d"
    for path in [apt / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            sources += one_line_sources(path.read_text(errors="replace"))
    for path in sorted(parts.glob("*.sources")):
        sources += deb822_sources(path.read_text(errors="replace"))
    return sources


def one_line_sources(text: str) -> Iterator[AptSource]:
    """`deb [options] uri suite component...`"""
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        match = re.fullmatch(r"deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)(.*)", line)
        if match:
            components = tuple(match[3].split())
            yield AptSource(uri=_uri(match[1]), suites=(match[2],), components=components)


def deb822_sources(text: str) -> Iterator[AptSource]:
    """Stanzas of `Field: values`, continued on lines that begin with a space."""
    unfolded = re.sub(r"\n[ \t]+", " ", re.sub(r"(?m)^#.*\n?", "", text))
    for stanza in re.split(r"\n\s*\n", unfolded):
        pairs = (line.split(":", 1) for line in stanza.splitlines() if ":" in line)
        fields = {key.strip().lower(): value.split() for key, value in pairs}
        if "deb" not in fields.get("types", ()) or fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", ()):
            yield AptSource(
                uri=_uri(uri),
                suites=tuple(fields.get("suites", ())),
                components=tuple(fields.get("components", ())),
            )


def proxy_options() -> list[str]:
    """apt options that let another apt reach the mirrors as this host's does."""
    dump = run_command(["apt-config", "dump"], where="apt", timeout_s=10).stdout
    return [
        line
        for line in dump.splitlines()
        if line.startswith(PROXY_SETTINGS) and not line.endswith(' "";')
    ]


def os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """ID, VERSION_CODENAME and the like."""
    if not path.is_file():
        return {}
    words = shlex.split(path.read_text(), comments=True)
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _uri(uri: str) -> str:
    """Cloud images name a file of mirrors (`mirror+file:/etc/apt/mirrors/…`): its first one."""
    match = re.fullmatch(r"mirror\+file:/*(/.+)", uri)
    if match and (path := Path(match[1])).is_file():
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                return line.split()[0].rstrip("/")
    return uri.rstrip("/")
