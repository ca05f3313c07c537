"""Descriptions of capture programs: what their texts mean, and one line for each mistake."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput, LabProblem
from nodrop.plugins import build_sut
from nodrop.testbed.images import sut_bits
from nodrop.testbed.images.sut_bits import binary_bits
from nodrop.testbed.suts.command.description import (
    NoStatement,
    ProgramDescription,
    Statement,
    holds,
    read_program,
    shipped,
    value_of,
)
from nodrop.testbed.suts.command.sut import discard
from nodrop.untrusted import matching

SAID = {
    "tcpdump": (
        "tcpdump: listening on vb, link-type EN10MB\n4705 packets captured\n"
        "101171 packets received by filter\n96466 packets dropped by kernel\n",
        {"captured": 101171, "dropped_ring_full": 96466, "decoded": 4705},
    ),
    "dumpcap": (
        "Packets received/dropped on interface 'vb': 4476/96695 "
        "(pcap:96690/dumpcap:3/flushed:2/ps_ifdrop:0) (4.4%)\n",
        {"captured": 101166, "dropped_ring_full": 96690, "decoded": 4471},
    ),
    "tshark": (
        "96085 packets dropped from vb\ntshark: \n5086 packets captured\n",
        {"captured": 101171, "dropped_ring_full": 96085, "decoded": 5086},
    ),
    "netsniff-ng": (
        "            2612  packets incoming (98559 unread on exit)\n"
        "            2612  packets passed filter\n"
        "           98559  packets failed filter (out of space)\n       97.4182% packet droprate\n",
        {"captured": 101171, "dropped_ring_full": 98559, "decoded": 2612},
    ),
    "nfpcapd": (
        "Stat: received: 101171, dropped by OS/Buffer: 12, freeze_q_cnt: 0\n",
        {"captured": 101171, "dropped_ring_full": 12},
    ),
    "snort3": (
        "-" * 50 + "\nPacket Statistics\n" + "-" * 50 + "\ndaq\n"
        "                 received: 4\n                 analyzed: 4\n" + "-" * 50 + "\ncodec\n"
        "                    total: 4      \t(100.000%)\nPacket Statistics\n" + "-" * 50 + "\ndaq\n"
        "                 received: 365166\n                 analyzed: 323289\n"
        "                  dropped: 599240\n                    allow: 323289\n",
        {"captured": 964406, "dropped_ring_full": 599240, "decoded": 323289},
    ),
    "snort2": (
        "Packet I/O Totals:\n   Received:       791615\n   Analyzed:       702001 ( 88.680%)\n"
        "    Dropped:        89614 ( 10.169%)\n   Filtered:            0 (  0.000%)\n"
        "Outstanding:        89614 ( 11.320%)\n   Injected:            0\n",
        {"captured": 791615, "dropped_ring_full": 89614, "decoded": 702001},
    ),
    "zeek": (
        "listening on vb\n1700000002.5 received termination signal\n"
        "1700000002.5 5086 packets received on interface vb, 96085 (94.97%) dropped\n",
        {"captured": 101171, "dropped_ring_full": 96085, "decoded": 5086},
    ),
}
"""Text of each shipped program (of Zeek as documented) → what it means in the books."""


def _books(program: ProgramDescription, text: str) -> dict[str, int]:
    assert program.exit is not None
    counted = program.exit.read(text)
    assert all(holds(rule, counted) for rule in program.identities.values())
    sums = program.books.sums().items()
    return {at: value_of(rule, counted) for at, rule in sums if not at.startswith("lost.")}


def test_each_shipped_program_reads_its_own_text() -> None:
    assert set(SAID) == set(shipped())
    for name, (text, meaning) in SAID.items():
        program = read_program(shipped()[name])
        assert program.name == name
        assert _books(program, text) == meaning, name


def test_what_is_not_printed_because_it_is_zero() -> None:
    tshark = read_program(shipped()["tshark"])
    assert _books(tshark, "tshark: \n1 packet captured\n") == {
        "captured": 1,
        "dropped_ring_full": 0,
        "decoded": 1,
    }


def test_a_zero_that_snort_does_not_print_is_a_zero_and_a_lacking_block_is_none() -> None:
    snort = read_program(shipped()["snort3"])
    lines = "pcaps: 1", "received: 7", "analyzed: 7"
    text = "daq\n" + "".join(f"{line:>30}\n" for line in lines)
    assert _books(snort, text) == {"captured": 7, "dropped_ring_full": 0, "decoded": 7}
    assert snort.exit is not None
    with pytest.raises(NoStatement, match="nothing in it matches"):
        snort.exit.read("daq\n                    idle: 7\n")


def test_a_knob_that_is_a_file(tmp_path: Path) -> None:
    sut = build_sut({"kind": "command", "program": "snort3"}, base=tmp_path)
    assert sut.problems(None) == ["sut.config: missing; snort3 takes a file there"]
    (tmp_path / "snort.lua").write_text("")
    table = {"kind": "command", "program": "snort3", "config": "snort.lua"}
    assert build_sut(table, base=tmp_path).files() == {"config": tmp_path / "snort.lua"}


def _statement(**more: Any) -> Statement:
    table = {"from": "stderr", "regex": r"got (?P<got>[\d,.-]+)(?: lost (?P<lost>\d+))?", **more}
    return Statement.model_validate_json(json.dumps(table))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing in it matches"),
        ("gut 3", "nothing in it matches"),
        ("got 3\ngot 4", "2 statements match"),
        ("got -3", "no whole number"),
        ("got 18446744073709551615", "no host counts so many"),
    ],
)
def test_a_text_that_says_nothing_or_too_much(text: str, words: str) -> None:
    with pytest.raises(NoStatement, match=re.escape(words)):
        _statement().read(text)


def test_several_statements() -> None:
    text = "got 1,003 lost 2\ngot 4"
    assert _statement(take="last", absent={"lost": 0}).read(text) == {"got": 4, "lost": 0}
    assert _statement(take="sum", absent={"lost": 0}).read(text) == {"got": 1007, "lost": 2}
    with pytest.raises(NoStatement, match="lost is missing"):
        _statement(take="last", required=["lost"]).read(text)


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (
            "json_lines",
            'cut"}\n{"t":1,"daq":{"got":5,"lost":1}}\n{"alert":{}}\n{"daq":{"got":7}}\n{"d',
        ),
        ("csv", "t,daq.got,daq.lost\n1,5,1\n2,7,0\n"),
    ],
)
def test_json_lines_and_csv(format_: str, text: str) -> None:
    asked = {"format": format_, "regex": None, "take": "sum", "absent": {"lost": 0}}
    asked["fields"] = {"got": "daq.got", "lost": "daq.lost"}
    assert _statement(**asked).read(text) == {"got": 12, "lost": 1}


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (r"(?P<got>(aa?)+)$", "a" * 60 + "b"),
        (r"(?P<got>\d*\d*\d*\d*\d*x)", "1" * 4000),
    ],
)
def test_an_expression_that_does_not_end_is_stopped(
    regex: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form does not show that it is slow: other forms than nested choices can be, too."""
    monkeypatch.setattr(matching, "WITHIN_S", 0.1)
    with pytest.raises(NoStatement, match=r"takes more than 0\.1 s"):
        _statement(regex=regex).read(text)
    with pytest.raises(LabProblem, match=r"version of \w+: its regex takes"):
        binary_bits(Path("/bin/sh"), (("-c", f"echo {text}"), regex))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("script", ["sleep 60", "echo 1; exec sleep 60"])
def test_a_version_that_does_not_end_is_stopped(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 30 s without a word."""
    monkeypatch.setattr(sut_bits, "VERSION_TIMEOUT_S", 0.1)
    with pytest.raises(LabProblem, match=r"took longer than 0\.1 s") as error:
        binary_bits(Path("/bin/sh"), (("-c", script), "(.*)"))
    assert "it has to print its version and end" in str(error.value)


FILE = """
name = "mine"
argv = ["mine", "-i", "{interface}", "-B", "{ring}"]
[knobs.ring]
default = 4
max = 64
is = "ring"
[exit]
from = "stderr"
regex = '(?P<got>\\d+) packets'
[books]
captured = "got"
[identities]
"""


def _built(tmp_path: Path, text: str = FILE, **more: Any) -> Any:
    (tmp_path / "mine.toml").write_text(text)
    return build_sut({"kind": "command", "program": "./mine.toml", **more}, base=tmp_path)


def test_a_program_of_ones_own_is_one_file(tmp_path: Path) -> None:
    sut = _built(tmp_path, ring=8)
    assert (sut.name, sut.values, sut.needs_bits()) == ("mine", {"ring": 8}, "mine")
    assert "sut.ring for bursts" in sut.places[0].knob


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"{ring}"', '"{rong}"', "{rong}; did you mean ring?"),
        ("is =", "was =", "knobs.ring.was: no such key"),
        ("default = 4", "default = 99", "default must be"),
        ("knobs.ring", "knobs.cpus", "knobs.cpus: the name is taken"),
        ("\\d+) packets", "\\d+ packets", "is no regular expression"),
        ("(?P<got>\\d+)", "(?P<got>(\\d+)+)", "may take for ever"),
        ("(?P<got>\\d+)", "\\d+", "has no named group"),
        ('captured = "got"', 'captured = "gut"', "books.captured: gut is no counter"),
        ('captured = "got"', 'captured = "got * 2"', "books.captured"),
        ('captured = "got"', "captured = \"__import__('os')\"", "books.captured"),
        ('captured = "got"', 'captured = "got +"', "is no expression"),
        ('captured = "got"', "", "[books]"),
        ("[identities]", '[identities]\nx = "got"', "must compare two sums"),
        ("[identities]", '[identities]\nx = "got == got == 1"', "one comparison"),
        ("[identities]", "[stop]\nsignal = 'KILL'", "allowed are INT, TERM"),
        ("[identities]", "[threads]\nall = 'x'", "threads"),
        ("[exit]", "[exit]\nformat = 'csv'", "no regex"),
        ("packets'", "packets(a|aa)+$'", "repeats a group"),
        ("packets'", "packets(?: x(?:in|out))*'", "repeats a group"),
        ('"-B"', '"-B\\u0000"', "argv: "),
        ("[exit]", "[exit]\nsignal = 'USR1'", "only [live]"),
        ("[exit]", "[exit]\nrequired = ['lost']", "lost is none"),
        ('from = "stderr"', 'from = "file:../x"', "exit.from"),
        ("[identities]", "[ready]\nsockets = 'threads'", "ready.sockets: threads is no knob"),
        ("[knobs.ring]", "discard = ['../../x']\n[knobs.ring]", 'discard.0 = "../../x"'),
        ("[knobs.ring]", "discard = ['/tmp/x']\n[knobs.ring]", "no leading /, no .."),
        ("[knobs.ring]", "folders = ['a/../b']\n[knobs.ring]", 'folders.0 = "a/../b"'),
        ("[knobs.ring]", "files = { '../a' = '' }\n[knobs.ring]", "files"),
        ("name =", "name = 1 #", "name = 1: "),
        ("[knobs.ring]", "[knobs.ring", "line 4"),
    ],
)
def test_one_line_for_each_mistake(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in FILE
    with pytest.raises(BadInput) as caught:
        _built(tmp_path, FILE.replace(old, new, 1))
    line = caught.value.message
    assert words in line and "mine.toml" in line and "\n" not in line


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("out.pcap", ["flows/a", "link", "log"]),
        ("flows/*", ["link", "log", "out.pcap"]),
        ("link/*", ["flows/a", "link", "log", "out.pcap"]),
        ("l*", ["flows/a", "link", "out.pcap"]),
    ],
)
def test_what_a_program_wrote_is_discarded_and_nothing_behind_a_link(
    tmp_path: Path, pattern: str, left: list[str]
) -> None:
    """A program that put a link in the place of its folder had nodrop empty another one, as
    root."""
    others, work = tmp_path / "others", tmp_path / "work"
    for name in ("work/out.pcap", "work/log", "work/flows/a", "others/mine"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    (work / "link").symlink_to(others)
    discard(work, [pattern])
    found = [p for p in work.rglob("*") if p.is_file() or p.is_symlink()]
    assert sorted(str(p.relative_to(work)) for p in found) == left
    assert (others / "mine").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ring": 65}, "sut.ring = 65: must be <= 64"),
        ({"rang": 1}, "sut.rang: "),
        ({"program": "tcpdum"}, 'sut.program = "tcpdum": '),
        ({"program": "x.toml"}, "no such file"),
        ({"program": None}, "sut.program: missing"),
    ],
)
def test_options_of_the_experiment(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        _built(tmp_path, **options)


def test_a_counter_that_runs_backwards_is_no_figure() -> None:
    assert value_of("a - b + 3", {"a": 5, "b": 1}) == 7
    assert not holds("a <= b - 1", {"a": 5, "b": 5})
    with pytest.raises(KeyError):
        value_of("a + c", {"a": 5})


VARIED = """
name = "two"
argv = ["two", "{interface}", "{daq}"]
[knobs.daq]
type = "choice"
default = "a"
choices = ["a", "b"]
[knobs.threads]
default = 2
max = 8
[exit]
from = "stderr"
regex = '(?P<got>\\d+) (?P<lost>\\d+)'
[books]
captured = "got"
[variants.daq.b]
argv = ["two", "-b"]
[variants.daq.b.books]
captured = "got + lost"
decoded = "got"
[variants.daq.b.knobs.threads]
default = 1
max = 1
"""


def varied(folder: Path, text: str = VARIED) -> Path:
    (folder / "two.toml").write_text(text)
    return folder / "two.toml"


@pytest.mark.parametrize(
    ("values", "argv", "books"),
    [
        ({}, ("two", "{interface}", "{daq}"), {"captured": "got"}),
        ({"daq": "a"}, ("two", "{interface}", "{daq}"), {"captured": "got"}),
        ({"daq": "b"}, ("two", "-b"), {"captured": "got + lost", "decoded": "got"}),
    ],
)
def test_a_variant_replaces_keys(
    tmp_path: Path, values: dict[str, str], argv: tuple[str, ...], books: dict[str, str]
) -> None:
    program = read_program(varied(tmp_path), values)
    assert (program.argv, program.books.sums()) == (argv, books)
    table = {"kind": "command", "program": "./two.toml", "threads": 2, **values}
    if "b" not in values.values():
        assert build_sut(table, base=tmp_path).name == "two"
        return
    with pytest.raises(BadInput, match=r"sut\.threads = 2: must be <= 1"):
        build_sut(table, base=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[variants.daq.b]", "[variants.daq.c]", "variants.daq.c: "),
        ("[variants.daq.b]", "[variants.threads.b]", "threads: "),
        (
            'captured = "got + lost"',
            'captured = "gut"',
            "variants.daq.b: books.captured: gut is no",
        ),
        ('argv = ["two", "-b"]', 'name = "b"', "variants.daq.b.name: "),
        ('argv = ["two", "-b"]', "args = 3", "variants.daq.b.args: no such key"),
    ],
)
def test_a_mistake_in_a_variant_is_seen_at_once(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    if "threads" in new:  # the tables of the other knob are left out
        text = VARIED[: VARIED.index("[variants.daq.b]")] + "[variants.threads.b]\nargv = ['x']\n"
    elif ".c]" in new:
        text = VARIED.replace("variants.daq.b", "variants.daq.c")
    else:
        text = VARIED.replace(old, new)
    with pytest.raises(BadInput, match=re.escape(words)):
        read_program(varied(tmp_path, text))


def test_snorts_daqs_differ_in_what_received_means() -> None:
    text = "daq\n" + "".join(
        f"{name:>25}: {n}\n"
        for name, n in (("received", 809368), ("analyzed", 451916), ("dropped", 357452))
    )
    path = shipped()["snort3"]
    pcap, own = read_program(path, {"daq": "pcap"}), read_program(path)
    assert _books(pcap, text)["captured"] == 809368 and pcap.stop.nudge
    assert own.exit is not None
    counted = own.exit.read(text)
    assert value_of(own.books.captured or "", counted) == 809368 + 357452
