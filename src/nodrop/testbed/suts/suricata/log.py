"""Suricata's engine log, one JSON object per line, and its own check of a configuration."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nodrop.errors import LabProblem, TrialFailed
from nodrop.ledger.outcome import Reason
from nodrop.testbed.hosts.api import AS_OURS, SpawnRequest, Surroundings
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.suts.suricata import counters
from nodrop.testbed.suts.suricata.config import ENGINE_LOG
from nodrop.testbed.suts.suricata.sut_options import CaptureKind
from nodrop.untrusted.folder import RefusedFile, read_end, read_from
from nodrop.untrusted.json_text import SMALL_FILE_BYTES, NotJson, decode_object, member, optional

_STARTED = "Engine started"
_VERSION = re.compile(r"This is Suricata version (\S+)")
_LOADED = re.compile(
    r"(?<!\d)(\d{1,18}) rules? successfully loaded, (\d{1,18}) rules? failed"
    r"(?:, (\d{1,18})(?: rules? skipped)?)?"
)
_NOT_UTF8 = "rule is not valid UTF-8"
_NO_RULES = "no rules were loaded"
_BAD_RULE = re.compile(r'error parsing signature "(.*)" from file (.+) at line (\d{1,18})')
_SID = re.compile(r"\bsid\s*:\s*(\d{1,18})\b")
_EXIT = re.compile(r"^(?:device: )?(\S+): packets: (\d{1,19}), drops: (\d{1,19})")
_PCAP_EXIT = re.compile(r"^(\S+): pcap total:\d+ recv:\d+ drop:(\d{1,19})")
_CAPTURE_MODULES = frozenset({"ioctl", "runmodes", "unix-manager", "af-packet"})
"""The first word of one of these follows the last rule, in Suricata 7 and 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    seen_mono_ns: int
    """The time at which the line was first read: the log's own clock may be set meanwhile."""
    level: str
    module: str
    thread: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Suricata's report on the rules it read."""

    loaded: int
    failed: int
    skipped: int | None
    """Rules left out for want of something they require; None if this version does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRule:
    """A rule that Suricata would not load."""

    file: str
    """Rule file as the user calls it, if that is known."""
    line: int | None
    """None: Suricata does not say it."""
    sid: int | None
    reason: str

    def __str__(self) -> str:
        sid = "without sid" if self.sid is None else f"sid {self.sid}"
        where = self.file if self.line is None else f"{self.file} line {self.line}"
        return f"{where} ({sid}: {self.reason})"


class EngineLog:
    """Reads on from where it last stopped; a line that is still being written waits. TrialFailed if
    it is not a plain file, or is larger than an engine log can be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines: list[LogLine] = []

    def lines(self) -> Sequence[LogLine]:
        try:
            new = read_from(self._path, self._offset, most_bytes=SMALL_FILE_BYTES - self._offset)
        except FileNotFoundError:
            return self._lines
        except RefusedFile as refused:
            raise TrialFailed(
                f"Suricata's engine log {refused.strerror}: {self._path}",
                reason=reason_before_start(self._lines),
            ) from None
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        now_ns = time.monotonic_ns()
        parsed = (parse_line(text, seen_mono_ns=now_ns) for text in whole.splitlines())
        self._lines += filter(None, parsed)
        return self._lines


def parse_line(text: bytes, *, seen_mono_ns: int) -> LogLine | None:
    """None for what is no line of the engine log: it is read while others may write it."""
    try:
        event = decode_object(text)
        engine = member(event, "engine", dict)
        return LogLine(
            seen_mono_ns=seen_mono_ns,
            level=member(event, "log_level", str),
            module=optional(engine, "module", str) or "",
            thread=optional(engine, "thread_name", str) or "",
            message=" ".join(member(engine, "message", str).split()),
        )
    except NotJson:
        return None


def started(lines: Sequence[LogLine]) -> LogLine | None:
    return next((line for line in lines if _STARTED in line.message), None)


def version(lines: Sequence[LogLine]) -> str | None:
    found = (_VERSION.search(line.message) for line in lines)
    return next((match[1] for match in found if match), None)


def rules_loaded(lines: Sequence[LogLine]) -> Rules | None:
    """None without such a statement: Suricata makes none if no rule in the files loads."""
    for line in lines:
        if match := _LOADED.search(line.message):
            skipped = None if match[3] is None else int(match[3])
            return Rules(loaded=int(match[1]), failed=int(match[2]), skipped=skipped)
    return None


def looked_for_rules(lines: Sequence[LogLine]) -> bool:
    """The log says that some rule loads, or that none does."""
    none = any(_NO_RULES in line.message for line in lines)
    return none or rules_loaded(lines) is not None or bool(bad_rules(lines))


def bad_rules(
    lines: Sequence[LogLine],
    names: Mapping[str, str] | None = None,
    not_utf8: Sequence[BadRule] = (),
) -> list[BadRule]:
    """Rules that do not load, in the order of the files. `names`: of a file in the work folder →
    what the user calls it. `not_utf8`: those that Suricata cannot name, as JSON cannot hold them;
    if they are not as many as it refuses for that, none of them is named."""
    found = [
        replace(rule, file=(names or {}).get(name := Path(rule.file).name, name))
        for rule in _rules_and_errors(lines)[0]
    ]
    nameless = [number for number, rule in enumerate(found) if rule.line is None]
    if len(nameless) == len(not_utf8):
        for number, rule in zip(nameless, not_utf8, strict=True):
            found[number] = replace(rule, reason=found[number].reason)
    return found


def errors(lines: Sequence[LogLine]) -> list[str]:
    """Errors, apart from rules that do not load."""
    return _rules_and_errors(lines)[1]


def warnings(lines: Sequence[LogLine]) -> list[str]:
    return [line.message for line in lines if line.level == "Warning"]


def _rules_and_errors(lines: Sequence[LogLine]) -> tuple[list[BadRule], list[str]]:
    """A bad rule is named after the error that says what is wrong: that one is its reason."""
    rules: list[BadRule] = []
    others: list[str] = []
    reason = ""
    for line in lines:
        if line.level != "Error":
            continue
        match = _BAD_RULE.search(line.message)
        if match is None and line.message == _NOT_UTF8:
            # The line that names it is no JSON.
            rules.append(BadRule(file="a rule file", line=None, sid=None, reason=_NOT_UTF8))
            reason = ""
            continue
        if match is None:
            others.append(line.message)
            reason = line.message
            continue
        if reason:
            others.pop()
        rules.append(
            BadRule(
                file=match[2],
                line=int(match[3]),
                sid=_sid(match[1]),
                reason=reason or "no reason given",
            )
        )
        reason = ""
    return rules, others


def not_utf8(said: str, content: bytes) -> list[BadRule]:
    """Rules of a file, which a user calls `said`, that are not UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        lines = enumerate(content.split(b"\n"), 1)
        return [
            BadRule(file=said, line=number, sid=_sid(text), reason=_NOT_UTF8)
            for number, line in lines
            if not line.lstrip().startswith(b"#")
            and "\ufffd" in (text := line.decode(errors="replace"))
        ]
    return []


def _sid(rule: str) -> int | None:
    found = _SID.search(rule)
    return int(found[1]) if found else None


def rules_refused(said: Rules | None, bad: Sequence[BadRule], *, strict: bool) -> str:
    """Words if rules are named and none loads (Suricata then makes no statement), or if one does
    not load and the experiment is `strict`; else empty."""
    first = "; ".join(map(str, bad[:3]))
    if said is None or said.loaded == 0:
        return "rules are named, and Suricata loads none" + (f": {first}" if first else "")
    if said.failed == 0 or not strict:
        return ""
    more = f" and {said.failed - 3} more" if said.failed > 3 else ""
    return f"{said.failed} of {said.loaded + said.failed} rules do not load: {first}{more}"


def mend(said: Rules | None) -> str:
    """Advice on refused rules, in words."""
    if said is None or said.loaded == 0:
        return (
            "look into the files (one rule per line, UTF-8); without rules, name none: in "
            "sut.rules and in rule-files of sut.config"
        )
    return 'repair or remove them, or set sut.rules_errors = "warn"'


def reason_before_start(lines: Sequence[LogLine]) -> str:
    """Why it did not start, if Suricata only complained of rules: in a file that holds no rules, it
    complains of each line, and no load is the cause. Empty if not."""
    return Reason.NO_RULES if started(lines) is None and bad_rules(lines) else ""


def rules_end(lines: Sequence[LogLine]) -> LogLine | None:
    """The first line after the rules: Suricata turns to the capture sockets."""
    return next((line for line in lines if line.module in _CAPTURE_MODULES), None)


def exit_counts(lines: Sequence[LogLine], capture: CaptureKind = "af-packet") -> counters.PerPort:
    """`device: IF: packets: n, drops: n`, written after the capture sockets are closed; empty if
    Suricata did not end by itself. The drops of pcap are of the last second in which a packet came
    (PcapCallbackLoop, Suricata's src/source-pcap.c): its thread reads them again as it ends."""
    found = [m for line in lines if line.module == "device" and (m := _EXIT.match(line.message))]
    pcap = (_PCAP_EXIT.match(line.message) for line in lines if line.module == "pcap")
    fresh = {m[1]: int(m[2]) for m in pcap if m}
    return {m[1]: counters.of_port(int(m[2]), fresh.get(m[1], int(m[3])), capture) for m in found}


# Suricata's own check of a configuration (`suricata -T`), before anything is touched.

TIMEOUT_S = 20.0
"""Limit for a check that takes 0.1 s without rules."""
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
class ConfigTest:
    refused: str | None
    """Suricata's own words; None if it takes the configuration."""
    rules: Rules | None
    """None: it says of no rule that it loads."""
    lines: Sequence[LogLine] = ()
    """The engine log of the check."""
    looked_for_rules: bool
    """The check reached the point at which it looks for rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSuricata:
    """A Suricata that ran once, beside any lab."""

    status: int
    work: Path
    """The work folder, as long as it is there."""
    words: bytes
    """The end of what it said on stdout and stderr."""


@contextmanager
def ran(
    bits: Bits,
    configuration: Callable[[str], bytes],
    files: Mapping[str, bytes | Path],
    *options: str,
    timeout_s: float,
) -> Iterator[EndedSuricata | None]:
    """Runs Suricata with a configuration that is made for the work folder, as Suricata sees that
    folder, and the files there. None if it cannot be started, or takes too long."""
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
        given = [option.replace(WORK, seen) for option in options]
        argv = (program, "-c", f"{seen}/{CONFIG}", "-l", seen, *given)
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        try:
            host = LocalHost(name="this host", node=find_node_binary(), label="acceptance")
            of_image = Surroundings(root=bits.path, binds={**binds, work: seen, **shown})
            around = of_image if image else AS_OURS
            child = host.spawn(
                SpawnRequest(argv=argv, stdout=stdout, stderr=stderr, caps=(), around=around)
            )
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
        yield EndedSuricata(status=status, work=work, words=words)


def asked(
    bits: Bits,
    configuration: Callable[[str], bytes],
    files: Mapping[str, bytes | Path],
    *,
    timeout_s: float = TIMEOUT_S,
) -> ConfigTest | None:
    """Suricata's answer to a configuration and its files. None if it cannot be asked."""
    with ran(bits, configuration, files, "-T", "--af-packet", timeout_s=timeout_s) as ended:
        if ended is None:
            return None
        status, words, work = ended.status, ended.words, ended.work
        said = _ERROR.findall(words.decode(errors="replace"))
        try:
            lines = EngineLog(work / ENGINE_LOG).lines()
        except TrialFailed:  # larger than a log can be: of a file that holds no rules
            lines = ()
        return ConfigTest(
            refused="; ".join(said) if status and said else None,
            rules=rules_loaded(lines),
            lines=lines,
            looked_for_rules=looked_for_rules(lines),
        )


def _put(path: Path, content: bytes | Path, *, link: bool) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif link:
        path.symlink_to(content.absolute())
    else:
        path.touch()
