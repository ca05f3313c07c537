"""Suricata's own check of a configuration (`suricata -T`), before anything is touched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nodrop.errors import LabProblem, TrialFailed
from nodrop.hosts.binary import find_node_binary
from nodrop.hosts.local import LocalHost
from nodrop.hosts.seam import AS_OURS, Surroundings
from nodrop.images.image_tree import Bits
from nodrop.suts.suricata import log
from nodrop.suts.suricata.config import ENGINE_LOG
from nodrop.untrusted.folder import read_end

TIMEOUT_S = 20.0
"""It takes 0.1 s without rules."""
WITH_RULES_TIMEOUT_S = 180.0
LONGEST_WORDS = 1 << 20
CONFIG = "suricata.yaml"
WORK_INSIDE = "/run/nodrop"
WORK = "@work@"
"""Stands for the work folder in options, as Suricata sees it."""
WRITABLE = ("run", "tmp", "var/log", "var/lib/suricata")
"""Folders of the image into which Suricata may write: empty folders lie over them."""
_ERROR = re.compile(r"^(?:\[\d+\] )?(?:Error|E): (.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    refused: str | None
    """Suricata's own words; None if it takes the configuration."""
    rules: log.Rules | None
    """None: it says of no rule that it loads."""
    lines: Sequence[log.Line] = ()
    """Its engine log."""
    looked_for_rules: bool
    """It came so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A Suricata that ran once, beside any lab."""

    status: int
    work: Path
    """Its work folder, as long as it is there."""
    words: bytes
    """The end of what it said on stdout and stderr."""


@contextmanager
def ran(
    bits: Bits,
    configuration: Callable[[str], bytes],
    files: Mapping[str, bytes | Path],
    *options: str,
    timeout_s: float,
) -> Iterator[Ended | None]:
    """With a configuration that is made for the work folder, as Suricata sees that folder, and the
    files there. None if it cannot be started, or takes too long."""
    image = bits.kind == "image"
    with TemporaryDirectory(prefix="nodrop-") as folder:
        work = Path(folder) / "work"
        seen = WORK_INSIDE if image else str(work)
        over = [name for name in WRITABLE if (bits.path / name).is_dir()] if image else []
        binds = {Path(folder) / name: f"/{name}" for name in over}
        for place in (work, *binds):
            place.mkdir(parents=True)
        shown: dict[Path, str] = {}
        for name, content in {CONFIG: configuration(seen), **files}.items():
            _put(work / name, content, link=not image)
            if image and isinstance(content, Path):
                shown[content.absolute()] = f"{seen}/{name}:ro"
        program = "suricata" if image else str(bits.path)
        given = [one.replace(WORK, seen) for one in options]
        argv = (program, "-c", f"{seen}/{CONFIG}", "-l", seen, *given)
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        try:
            host = LocalHost(name="this host", node=find_node_binary(), label="acceptance")
            of_image = Surroundings(root=bits.path, binds={**binds, work: seen, **shown})
            around = of_image if image else AS_OURS
            child = host.spawn(argv, stdout=stdout, stderr=stderr, caps=(), around=around)
        except LabProblem:
            yield None
            return
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            yield None
            return
        words = b"".join(read_end(path, bytes_from_end=LONGEST_WORDS) for path in (stdout, stderr))
        yield Ended(status=status, work=work, words=words)


def asked(
    bits: Bits,
    configuration: Callable[[str], bytes],
    files: Mapping[str, bytes | Path],
    *,
    timeout_s: float = TIMEOUT_S,
) -> Answer | None:
    """Suricata's answer to a configuration and its files. None if it cannot be asked."""
    with ran(bits, configuration, files, "-T", "--af-packet", timeout_s=timeout_s) as ended:
        if ended is None:
            return None
        status, words, work = ended.status, ended.words, ended.work
        said = _ERROR.findall(words.decode(errors="replace"))
        try:
            lines = log.EngineLog(work / ENGINE_LOG).lines()
        except TrialFailed:  # larger than a log can be: of a file that holds no rules
            lines = ()
        return Answer(
            refused="; ".join(said) if status and said else None,
            rules=log.rules_loaded(lines),
            lines=lines,
            looked_for_rules=log.looked_for_rules(lines),
        )


def _put(path: Path, content: bytes | Path, *, link: bool) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif link:
        path.symlink_to(content.absolute())
    else:
        path.touch()
