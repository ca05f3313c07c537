"""A capture made into what an Ethernet port can send (`nodrop-node trace prepare`), and the list of
what was changed.

A capture that needs nothing is replayed from its own file. What another one becomes is kept in the
cache folder, with the list beside it, until the file, the options or the node change.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import IO, Any, TextIO

from nodrop.config.replay import ReplayOptions
from nodrop.config.units import count_of, format_seconds
from nodrop.errors import BadKey, LabProblem
from nodrop.ledger.verdict import percent
from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.folders import put_in_place, traces_folder
from nodrop.testbed.hosts.local import LABEL_VARIABLE
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.rights import KEPT_BY_OURS, environment
from nodrop.untrusted.json_text import counted, making_sense, one_line

_PROGRESS = re.compile(r"progress (0\.\d{1,6}|1\.0{1,6})\n")
LEAST_RATIO = 0.02
"""The time that is left is not guessed from less."""
LONGEST_WORDS = 64 << 10
"""Characters of a command's stderr after which nothing more is kept."""


class ReadingLine:
    """Share of a capture that is read, and the time left. Nothing is written where stderr is no
    terminal, and nothing by who is done before the node first says how far it is: a second."""

    def __init__(self, path: Path, out: TextIO | None = None) -> None:
        self._path, self._out = path, sys.stderr if out is None else out
        self._began_s, self._is_shown = monotonic(), False

    def at(self, ratio: float) -> None:
        if not self._out.isatty():
            return
        words = f"reading {self._path.name}: {100 * ratio:.0f} %"
        if ratio >= LEAST_RATIO:
            took_s = monotonic() - self._began_s
            words += f", about {format_seconds(took_s * (1 - ratio) / ratio)} left"
        self._is_shown = True
        self._out.write(f"\r\x1b[K{one_line(words)}")
        self._out.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._out.write("\r\x1b[K")
            self._out.flush()


@contextmanager
def reading(path: Path) -> Iterator[ReadingLine]:
    line = ReadingLine(path)
    try:
        yield line
    finally:
        line.clear()


def read_by(argv: Sequence[str], path: Path, *, timeout_s: float) -> Completed:
    """A command of the node that reads this capture, to its end."""
    began_s = monotonic()
    try:
        process = subprocess.Popen(
            [*argv, "--progress"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment(KEPT_BY_OURS, **{LABEL_VARIABLE: "trace"}),
            process_group=0,
        )
    except OSError as error:
        raise LabProblem(f"cannot start {argv[0]}: {error.strerror}") from error
    out_of_time = Timer(timeout_s, process.kill)
    with process, reading(path) as line:
        assert process.stdout is not None and process.stderr is not None
        out_of_time.start()
        try:
            said = _said(process.stderr, line)
            # One line, which the pipe holds.
            found = process.stdout.read()
            status = process.wait()
        finally:
            is_over = not out_of_time.is_alive()
            out_of_time.cancel()
            process.kill()
    if is_over:
        raise LabProblem(f"{path}: reading took longer than {format_seconds(timeout_s)}")
    return Completed(
        argv=tuple(argv),
        returncode=status,
        stdout=found,
        stderr=said,
        seconds=monotonic() - began_s,
    )


def _said(stderr: IO[str], line: ReadingLine) -> str:
    """Words of stderr, but for the progress lines."""
    said = ""
    for words in iter(lambda: stderr.readline(LONGEST_WORDS), ""):
        if found := _PROGRESS.fullmatch(words):
            line.at(float(found[1]))
        elif len(said) < LONGEST_WORDS:
            said += words
    return said


TIMEOUT_S = 1_800.0
WORTH_A_WORD = 0.01
"""Share of the packets: every long capture has a few odd ones."""
DUPLICATE = "equal to one at most 2 ms before"
ODD_GAP_S = 60.0
"""A longer time without a packet, in a capture of which it is most, is named: a wrong clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A capture as it is replayed, and what was changed for that."""

    path: Path
    """The capture itself if nothing was changed."""
    captured: Path
    changes: Mapping[str, Any]
    """Counts, as the node's list has them (crates/trace/src/prepare.rs)."""

    @property
    def changed(self) -> bool:
        return self.path != self.captured

    def words(self) -> Sequence[str]:
        """Changes and oddities, a sentence each, with the key of [load] that governs it, if any."""
        return tuple(_words(self.changes))


def prepared(path: Path, options: ReplayOptions, *, as_pcap: bool = False) -> Prepared:
    """The capture as these options want it sent; `as_pcap`: a pcap file even if nothing is changed.
    BadInput names what no port can send."""
    if not path.is_file():
        raise BadKey("load.trace", f"{path} does not exist or is no file")
    now, node = path.stat(), find_node_binary()
    made_by = node.stat()
    stamp = [now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns]
    stamp += [made_by.st_ino, made_by.st_size, made_by.st_mtime_ns]
    argv = [*_argv(options), *([] if as_pcap else ["--if-changed"])]
    return _prepared(path, node, tuple(stamp), tuple(argv))


def _argv(options: ReplayOptions) -> Iterator[str]:
    yield from ("--offloaded", options.offloaded, "--cut", options.cut, "--order", options.order)
    yield from ("--duplicates", options.duplicates)
    if options.skip_link_types:
        yield from ("--skip-link-types", ",".join(map(str, options.skip_link_types)))
    if options.longest_gap_s is not None:
        yield from ("--longest-gap-s", f"{options.longest_gap_s:.9f}")
    if options.nanoseconds:
        yield "--nanoseconds"
    if options.tolerate_truncated:
        yield "--tolerate-truncated"


@lru_cache(maxsize=256)
def _prepared(path: Path, node: Path, stamp: tuple[int, ...], argv: tuple[str, ...]) -> Prepared:
    of = hashlib.sha256(repr((stamp, argv)).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9+.-]+", "-", path.stem)[:80]
    made = traces_folder() / f"{name}-{of}.pcap"
    beside = made.with_name(f"{made.name}.changes.json")
    known = _known(made, beside, argv)
    if known is None:
        known = _make(path, node, made, argv)
        with put_in_place(beside) as partial:
            partial.write_text(json.dumps(known), encoding="utf-8")
    written = known["changed"] or "--if-changed" not in argv
    return Prepared(path=made if written else path, captured=path, changes=known)


def _known(made: Path, beside: Path, argv: Sequence[str]) -> Mapping[str, Any] | None:
    """None if it was not prepared before, or what it became is gone."""
    try:
        known: Mapping[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
        written = known["changed"] or "--if-changed" not in argv
        return known if made.is_file() or not written else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(path: Path, node: Path, made: Path, argv: Sequence[str]) -> Mapping[str, Any]:
    with put_in_place(made) as partial:
        command = [str(node), "trace", "prepare", str(path), str(partial), *argv]
        done = read_by(command, path, timeout_s=TIMEOUT_S)
        said = " ".join(done.stderr.removeprefix("nodrop-node trace: ").split())
        if done.returncode == 2:
            raise BadKey("load.trace", _as_settings(said))
        if done.returncode != 0:
            raise LabProblem(f"load.trace: {path} cannot be prepared: {said}")
        with making_sense("what `nodrop-node trace prepare` says"):
            changes: Mapping[str, Any] = json.loads(done.stdout)
            counted(changes, "read_packets")
            counted(changes, "written_packets")
        return changes


def _as_settings(said: str) -> str:
    """The options of the node by their names in the experiment."""

    def setting(match: re.Match[str]) -> str:
        key, value = match[1].replace("-", "_"), match[2]
        return f"--set load.{key}={f'[{value}]' if key == 'skip_link_types' else value}"

    return re.sub(r"--(skip-link-types|cut|longest-gap-s) (\S+)", setting, said)


def _words(changes: Mapping[str, Any]) -> Iterator[str]:
    of = changes.get
    if given := of("given_header_packets"):
        links = ", ".join(f"{count_of(n, 'packet')} of {link}" for link, n in given.items())
        own = changes["own_address_packets"]
        address = f", {own:,} of them with addresses of nodrop's" if own else ""
        yield f"{links} got an Ethernet header{address}"
    if split := of("split_packets"):
        yield (
            f"{count_of(split, 'frame')} that offloads joined became "
            f"{count_of(changes['split_into_packets'], 'TCP segment')} as the wire carries "
            "them (load.offloaded)"
        )
    if split := of("fragmented_packets"):
        yield (
            f"{count_of(split, 'datagram')} longer than a wire carries became "
            f"{count_of(changes['fragmented_into_packets'], 'fragment')} (load.offloaded)"
        )
    if padded := of("padded_packets"):
        yield (
            f"the capture cut {count_of(padded, 'frame')}: they are filled with "
            f"{changes['padded_bytes']:,} bytes of zeros to the length they had, so rules and "
            "parsers find nothing there and may be faster than on the real traffic (load.cut)"
        )
    if cut := of("cut_packets"):
        yield (
            f"the capture cut {count_of(cut, 'frame')}, and they are sent so: an IDS calls "
            "such stubs invalid and does no work for them (load.cut)"
        )
    short, read = of("short_packets"), changes["read_packets"]
    if short and short >= WORTH_A_WORD * read:
        yield (
            f"{count_of(short, 'frame')} ({percent(short / read)}) end before the length in their "
            f"own IP header (the first is packet {changes['first_short_packet']:,}), though the "
            "capture names no cut: an IDS calls them invalid and does no work for them. If a tool "
            'cut them, load.cut = "pad-ip" fills them with zeros'
        )
    copies = of("duplicate_packets")
    if copies and not (of("left_out") or {}).get(DUPLICATE) and copies >= WORTH_A_WORD * read:
        yield (
            f"{count_of(copies, 'packet')} ({percent(copies / read)}) equal one at most 2 ms "
            "before, as a mirror port or `any` on a bond copies them: the load is higher than the "
            'traffic was (load.duplicates = "drop" leaves them out)'
        )
    if beyond := of("timeless_packets"):
        yield (
            f"{count_of(beyond, 'packet')} have a time after the year 2554, which nanoseconds do "
            "not hold: all have one time"
        )
    if checked := of("fcs_packets"):
        yield f"the frame check sequence was taken off {count_of(checked, 'packet')}"
    if beyond := of("beyond_wire_packets"):
        yield (
            f"{count_of(beyond, 'packet')} were captured longer than they were on the wire: "
            f"{changes['beyond_wire_bytes']:,} bytes are left out"
        )
    if moved := of("reordered_packets"):
        yield (
            f"{count_of(moved, 'packet')} stood behind one of a later time, and are sent in "
            "the order of their time (load.order)"
        )
    back_s = (of("steps_back_ns") or 0) / 1e9
    if back_s > ODD_GAP_S:
        after = changes["steps_back_after_packet"]
        both = f"the clock goes back by {format_seconds(back_s)} after packet {after:,}"
        if moved:
            yield (
                f"{both}: if it was set there, two stretches of time are sent at once, and the "
                'load is higher than the traffic was (load.order = "file" sends one after the '
                "other)"
            )
        else:
            yield f"{both}: what follows is sent behind what was before it (load.order)"
    if late := of("late_packets"):
        yield (
            f"{count_of(late, 'packet')} ({percent(late / changes['read_packets'])}) stand behind "
            "one of a later time, and leave at once with it (load.order)"
        )
    if gaps := of("shortened_gaps"):
        seconds = format_seconds(changes["shortened_ns"] / 1e9)
        yield f"{count_of(gaps, 'gap')} between packets lost {seconds} (load.longest_gap_s)"
    for reason, left in (of("left_out") or {}).items():
        yield (
            f"{count_of(left['packets'], 'packet')} left out: {reason} (the first is packet "
            f"{left['first_packet']:,})"
        )
    if of("nanoseconds"):
        yield "fractions of a second are taken for nanoseconds (load.nanoseconds)"
    elif odd := of("odd_fraction_packets"):
        share = odd / changes["read_packets"]
        yield (
            f"{count_of(odd, 'packet')} ({percent(share)}) have a fraction of a second that "
            "is a second or more: the file holds nanoseconds though its header says microseconds, "
            "and its times are too far apart (load.nanoseconds = true reads them so)"
        )
    if earlier_ns := of("earlier_ns"):
        yield (
            f"all packets are {format_seconds(earlier_ns / 1e9)} earlier: a pcap file holds no "
            "time after 2106"
        )
    if (gap_s := changes["longest_gap_ns"] / 1e9) > ODD_GAP_S:
        yield (
            f"no packet for {format_seconds(gap_s)} after packet "
            f"{changes['longest_gap_after_packet']:,} (load.longest_gap_s makes it shorter)"
        )
