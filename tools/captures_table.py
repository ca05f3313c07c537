"""A folder of captures, read by nodrop and by two independent readers, and sent: one table.

python tools/captures_table.py FOLDER [--sink N] [--suricata N]: each file is read by `nodrop-node
trace info` and `trace prepare`, by capinfos (tshark's) and by scapy; packets, bytes, times and what
was written are compared. Then at most N of them are offered to the sink and to Suricata, in one run
each, and their books must close. Needs capinfos on PATH; trials need root. Exit code 1 if anything
differs, crashes or does not close.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scapy.error import Scapy_Exception
from scapy.utils import RawPcapReader

from nodrop.testbed.hosts.node import find_node_binary

MAGICS = {
    b"\xd4\xc3\xb2\xa1": "pcap, µs",
    b"\xa1\xb2\xc3\xd4": "pcap, µs",
    b"\x4d\x3c\xb2\xa1": "pcap, ns",
    b"\xa1\xb2\x3c\x4d": "pcap, ns",
    b"\x34\xcd\xb2\xa1": "pcap, modified",
    b"\xa1\xb2\xcd\x34": "pcap, modified",
    b"\x0a\x0d\x0d\x0a": "pcapng",
    b"snoo": "snoop",
    b"\x1f\x8b\x08\x08": "gzip",
    b"\x1f\x8b\x08\x00": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zX": "xz",
}
PACKED = ("gzip", "zstd", "xz")
NAMES = (".pcap", ".pcapng", ".cap", ".ntar", ".snoop", ".dmp", ".trace", ".pkt")
ORDERLY = {0, 2}
"""Exit codes of the node for a capture: done, and bad input."""
TIMEOUT_S = 120
MOST = 1 << 20
"""Bytes of a frame: scapy cuts at fewer if it is not asked."""
LAST_S = 1 << 32
"""Readers differ beyond what a pcap file holds."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One capture, and all that was found."""

    path: Path
    format: str
    link: str = ""
    read: bool = False
    refused: str = ""
    differs: list[str] = field(default_factory=list)
    compared: int = 0
    trials: dict[str, str] = field(default_factory=dict)
    """By SUT: empty if the books closed, else why not."""


def captures(folder: Path) -> Iterator[Row]:
    for path in sorted(found for found in folder.rglob("*") if found.is_file()):
        with path.open("rb") as file:
            kind = MAGICS.get(file.read(4))
        named = any(name in path.suffixes for name in NAMES)
        if named or (kind is not None and kind not in PACKED):
            yield Row(path=path, format=kind or "other")


def node(*argv: object) -> tuple[int, Any, str]:
    """Exit code, JSON object and words of one command of the node."""
    try:
        done = subprocess.run(
            [str(find_node_binary()), "trace", *map(str, argv)],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, {}, f"hangs for {TIMEOUT_S} s"
    said = done.stdout.decode()
    words = " ".join(done.stderr.decode().removeprefix("nodrop-node trace: ").split())
    return done.returncode, json.loads(said) if said.startswith("{") else {}, words


def capinfos(path: Path) -> Mapping[str, str]:
    """What tshark's capinfos says, by the names of its columns; empty if it reads nothing."""
    argv = ["capinfos", "-T", "-m", "-Q", "-S", "-t", "-E", "-c", "-d", "-a", "-e", "-o", str(path)]
    done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    return next(iter(csv.DictReader(lines)), {}) if done.returncode in (0, 1) else {}


def number(text: str | None) -> Decimal | None:
    with suppress(ArithmeticError, TypeError):
        return Decimal(str(text))
    return None


def scapy_counts(path: Path) -> tuple[int, int] | None:
    """Packets and captured bytes, as far as scapy reads; None if it does not."""
    packets = captured = 0
    try:
        with RawPcapReader(str(path)) as reader, suppress(EOFError):
            while True:
                captured += len(reader._read_packet(MOST)[0])
                packets += 1
    except (Scapy_Exception, OSError, AttributeError, ValueError):
        return None
    return packets, captured


def compare(row: Row, what: str, ours: object, theirs: object) -> None:
    if theirs is None or ours is None:
        return
    row.compared += 1
    if ours != theirs:
        row.differs.append(f"{what}: nodrop {ours}, {theirs}")


def look(row: Row, out: Path) -> None:
    """Reads one capture with all readers."""
    tolerant = ["--tolerate-truncated"]
    code, _, words = node("prepare", row.path, out)
    if code == 2 and tolerant[0] in words:
        code, _, _ = node("prepare", row.path, out, *tolerant)
    else:
        tolerant = []
    info_code, info, info_words = node("info", "--json", row.path, *tolerant)
    theirs = capinfos(row.path)
    row.link = theirs.get("File encapsulation", "")
    if code not in ORDERLY or info_code not in ORDERLY:
        row.differs.append(f"exit code {code} and {info_code}: {words} {info_words}")
    row.read = code == 0
    if code != 0:
        row.refused = words.partition(f"{row.path}: ")[2] or words
        if out.exists():
            row.differs.append("refused, and a file was written")
    prepared = node("prepare", row.path, out, *tolerant)[1] if row.read else {}
    packets = prepared.get("read_packets", info.get("packets"))
    compare(row, "packets and capinfos'", packets, number(theirs.get("Number of packets")))
    wire = number(theirs.get("Data size (bytes)"))
    if info.get("given_header_packets"):
        info |= {"original_bytes": None, "frame_bytes": None}  # with Ethernet headers
    compare(row, "bytes on the wire and capinfos'", info.get("original_bytes"), wire)
    if (counts := scapy_counts(row.path)) is not None and not tolerant:
        compare(row, "packets and scapy's", packets, counts[0])
        compare(row, "captured bytes and scapy's", info.get("frame_bytes"), counts[1])
    last, first = (number(theirs.get(f"{end} time")) for end in ("End", "Start"))
    for what, at, shown in (("first", info.get("first_timestamp_ns"), first),
                            ("last", info.get("last_timestamp_ns"), last)):  # fmt: skip
        in_order = theirs.get("Strict time order") == "True" or what == "last"
        in_order &= not info.get("odd_fraction_packets")  # capinfos' numbers are too small
        in_order &= not info.get("left_out")  # capinfos counts them
        if at is not None and shown is not None and in_order and 0 <= shown < LAST_S:
            at_s = (Decimal(at) / 10**9).quantize(shown)
            compare(row, f"time of the {what} packet and capinfos'", at_s, shown)
    if row.read:
        look_at_prepared(row, out, prepared)


def look_at_prepared(row: Row, out: Path, said: Mapping[str, Any]) -> None:
    """Whether what was written is what was read, but for the list of changes."""
    more = said["split_into_packets"] - said["split_packets"]
    more += said["fragmented_into_packets"] - said["fragmented_packets"]
    left = sum(one["packets"] for one in said["left_out"].values())
    expected = said["read_packets"] + more - left
    compare(row, "written packets and the list of changes", said["written_packets"], expected)
    theirs = capinfos(out)
    written, link = number(theirs.get("Number of packets")), theirs.get("File encapsulation")
    compare(row, "written packets and capinfos'", said["written_packets"], written)
    compare(row, "link type written", "ether", link)
    code, again, words = node("prepare", out, out.with_suffix(".again"))
    compare(row, f"prepared again {words}", code, 0)
    compare(row, "changed again", again.get("changed"), False)


def trials(rows: Sequence[Row], sut: str, folder: Path) -> None:
    """One short trial of each in one run."""
    traces = json.dumps([str(row.path.resolve()) for row in rows])
    experiment = folder / f"{sut}.toml"
    experiment.write_text(
        f'name = "captures-{sut}"\n[matrix]\n"load.trace" = {traces}\n[sut]\nkind = "{sut}"\n'
        '[load]\nkind = "replay"\npps = 2000\nduration_s = 1.5\ntolerate_truncated = true\n'
        "[measure]\nrepetitions = 1\nlate_p99_us = 100000\n"
    )
    argv = [str(Path(sys.executable).with_name("nodrop")), "run", str(experiment), "--yes"]
    argv += ["--quiet", "--out", str(folder)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    found = {}
    with suppress(OSError):
        lines = (Path(done.stdout.strip()) / "trials.jsonl").read_text().splitlines()
        found = {record["cell"]["load.trace"]: record for record in map(json.loads, lines)}
    for row in rows:
        record = found.get(str(row.path.resolve()))
        if record is None:
            row.trials[sut] = f"no trial: nodrop run ended with {done.returncode}"
            continue
        body = record["body"]
        closed = body["residual_packets"] == 0 and body["residual_bytes"] in (0, None)
        good = record["outcome"] == "measured" and closed and not body["lost_packets"]
        row.trials[sut] = "" if good else f"{record['outcome']}: {record['verdict']}"


def table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| format | files | read | refused | agree | differ | trials: sink | Suricata |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for kind in [*sorted({row.format for row in rows}), "all"]:
        of = [row for row in rows if kind in (row.format, "all")]
        agree = sum(bool(row.compared) and not row.differs for row in of)
        tried = [
            f"{sum(row.trials.get(sut) == '' for row in of)} of "
            f"{sum(sut in row.trials for row in of)}"
            for sut in ("sink", "suricata")
        ]
        counts = (len(of), sum(row.read for row in of), sum(not row.read for row in of), agree)
        cells = [kind, *map(str, counts), str(sum(bool(row.differs) for row in of)), *tried]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sink", type=int, default=0, help="captures that are sent to the sink")
    parser.add_argument("--suricata", type=int, default=0, help="and to Suricata")
    parser.add_argument("--seed", type=int, default=1, help="which captures, if not all")
    args = parser.parse_args()
    rows = list(captures(args.folder))
    with TemporaryDirectory(prefix="captures-") as name:
        folder = Path(name)
        for row in rows:
            look(row, folder / "prepared.pcap")
            (folder / "prepared.pcap").unlink(missing_ok=True)
        sent = [row for row in rows if row.read]
        for sut, most in (("sink", args.sink), ("suricata", args.suricata)):
            some = random.Random(args.seed).sample(sent, min(most, len(sent)))
            if some:
                trials(some, sut, folder)
    print("\n".join(table(rows)))
    reasons = Counter(row.refused.partition(":")[0] for row in rows if not row.read)
    for reason, count in reasons.most_common():
        example = next(row for row in rows if row.refused.startswith(reason))
        print(f"refused {count}: {example.refused} ({example.path.name})")
    bad = 0
    for row in rows:
        for words in [*row.differs, *(f"{k}: {w}" for k, w in row.trials.items() if w)]:
            bad += 1
            print(f"{row.path.relative_to(args.folder)} ({row.format}, {row.link}): {words}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
