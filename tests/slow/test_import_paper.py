"""Every operation of the recipes, by hand-made samples with answers worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop_studies.check import ExpectedFigure, check, read_entries
from tests.slow.import_fixtures import EVE, SYSSTAT, published_data, write_workbook

RECEIVER = "data/bm,t.pcap,1,em2,enp34s0,4,5,1,receiver,sysstat.xlsx"
OTHER = "data/bm,t.pcap,2,em2,enp34s0,4,5,1,receiver,sysstat.xlsx"
COUNTS = "data/bm,t.pcap,1,em2,enp34s0,4,5,1,eve.xlsx"
SNORT = "data/bm,t.pcap,1,em2,enp34s0,4,5,1,snortout.xlsx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three samples of 4, 4 and 5 rows; the fifth row is one survivor's."""
    root = tmp_path_factory.mktemp("made")
    cpu = {1: (0, 10, 20, 30), 2: (0, 12, 22, 32), 3: (400, 17, 27, 37, 99)}
    for name, factor in ((RECEIVER, 1), (OTHER, 3)):
        rows = {
            sample: [[100 + 4 * i, 4 * i, 4, factor * c, 5.5] for i, c in enumerate(values)]
            for sample, values in cpu.items()
        }
        write_workbook(root / "original" / name, SYSSTAT, {**rows})
    # Two samples: the medians of odd sums are halves, and floored.
    decoded = {1: (10, 21, 30, 30), 2: (11, 20, 31, 31, 90)}
    write_workbook(
        root / "original" / COUNTS,
        EVE,
        {
            sample: [[8 + 7 * i, n + 1, 0, n, n * 1024, 3] for i, n in enumerate(values)]
            for sample, values in decoded.items()
        },
    )
    header = ("pkts_total.analyzed_pkts", "pkts_total.dropped_pkts", "pkts_total.recv_pkts")
    snort = {1: [[100, 5, 105]], 2: [[103, 6, 109]]}
    write_workbook(root / "original" / SNORT, header, {**snort})
    (root / "original" / "time.txt").write_text(TIME)
    (root / "original" / "report.txt").write_text(OPREPORT)
    return root


TIME = """time ./test_rdtsc
6.60user 0.00system 0:06.60elapsed 100%CPU (0avgtext+0avgdata 1136maxresident)k
               :Disassembly of section .text:
000000000000c470 <_dl_start+0x2c50>: /* _dl_start total:      1 5.7e-04 */
     1 5.7e-04 :    c470:\trdtsc
               :    c471:\tcpuid
0000000000400400 <main>: /* main total: 175260 99.9994 */
   701  0.4000 :  400410:\txor    %eax,%eax
               :  400412:\tcpuid
               :    __asm__ __volatile__ ("rdtsc" : "=a" (a), "=d" (d));
 75971 43.3474 :  400414:\trdtsc
 19137 10.9191 :  400416:\txor    %eax,%eax
               :  400418:\tcpuid
               :\tfor (i = 0; i < 100000000; ++i) {
 77710 44.3396 :  40041a:\tsub    $0x1,%esi
"""
OPREPORT = """CPU: Intel Core/i7, speed 2394.05 MHz (estimated)
Counted CPU_CLK_UNHALTED events with a unit mask of 0x00 (No unit mask) count 90000
samples  %        linenr info                 app name                 symbol name
60       60.0000  util-cpu.c:190              suricata                 UtilCpuGetTicks
30       30.0000  (no location information)   libjansson.so.4.7.0      /usr/lib/libjansson.so
9        9.0000   a.c:3                       suricata                 UtilCpuGetTicksSlow
1        1.0e-00  b.c:4                       suricata                 Rest
"""


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        # medians 12, 22, 32 at 4, 8, 12 s; both ends of the window count
        ({"op": "window", "column": "%CPU", "lo_s": 4, "hi_s": 12, "stat": "mean"}, 22),
        ({"op": "window", "column": "%CPU", "lo_s": 4, "hi_s": 12, "stat": "stdev"}, 10),
        ({"op": "window", "column": "%CPU", "lo_s": 4.5, "hi_s": 11.9, "stat": "mean"}, 22),
        ({"op": "window", "column": "%CPU", "lo_s": 13, "hi_s": 99, "stat": "mean"}, 99),
        (
            {
                "op": "window_difference",
                "file": OTHER,
                "minus": RECEIVER,
                "column": "%CPU",
                "lo_s": 4,
                "hi_s": 8,
                "stat": "mean",
            },
            (2 * 12 + 2 * 22) / 2,
        ),
        ({"op": "record", "column": "%CPU", "record": 3, "divide": 2}, 11),
        ({"op": "record", "file": COUNTS, "column": "decoder.pkts", "record": 1}, 10.5),
        (
            {"op": "record", "file": COUNTS, "column": "decoder.pkts", "record": 1, "floor": True},
            10,
        ),
        (
            {
                "op": "record",
                "file": COUNTS,
                "column": "decoder.bytes",
                "record": 2,
                "floor": True,
                "divide": 1024,
            },
            20.5,
        ),
        ({"op": "last_record", "column": "%CPU"}, 99),
        ({"op": "last_record", "file": COUNTS, "column": "decoder.pkts", "divide": 9}, 10),
        ({"op": "plateau", "file": COUNTS, "column": "decoder.pkts", "floor": True}, 30),
        ({"op": "plateau", "file": COUNTS, "column": "decoder.pkts"}, 30.5),
        (
            {
                "op": "plateau_time",
                "file": COUNTS,
                "columns": ["decoder.pkts", "capture.kernel_drops"],
                "floor": True,
            },
            22,
        ),
        ({"op": "plateau_time", "file": COUNTS, "columns": ["capture.kernel_drops"]}, 8),
        ({"op": "run_value", "file": SNORT, "column": "pkts_total.dropped_pkts"}, 5.5),
        (
            {"op": "run_value", "file": SNORT, "column": "pkts_total.dropped_pkts", "floor": True},
            5,
        ),
        ({"op": "run_sum", "column": "%CPU"}, 66),
        ({"op": "peak", "column": "%CPU", "divide": 4}, 99 / 4),
        ({"op": "time_user_s", "file": "time.txt"}, 6.6),
        ({"op": "opannotate_share", "file": "time.txt", "line": "rdtsc"}, 43.3474),
        ({"op": "opannotate_share", "file": "time.txt", "line": "after_second_cpuid"}, 44.3396),
        ({"op": "oprofile_share", "file": "report.txt", "symbol": "UtilCpuGetTicks"}, 60),
    ],
)
def test_an_operation_gives_what_its_definition_says(
    folder: Path, recipe: Mapping[str, Any], expected: float
) -> None:
    entry = ExpectedFigure.model_validate(
        {"id": "x", "recipe": {"file": RECEIVER, **recipe}, "expected": expected, "tolerance": 0}
    )
    (outcome,) = check([entry], folder).outcomes
    assert outcome.ours == pytest.approx(expected, rel=1e-12), outcome.problem
    assert outcome.hit


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"op": "record", "column": "%CPU", "record": 6}, "no row 6"),
        ({"op": "record", "column": "%GPU", "record": 1}, "no column %GPU"),
        ({"op": "window", "column": "%CPU", "lo_s": 50, "hi_s": 60, "stat": "mean"}, "between 50"),
        ({"op": "window", "column": "%CPU", "lo_s": 4, "hi_s": 4, "stat": "stdev"}, "one check"),
        ({"op": "run_value", "column": "%CPU"}, "4 rows"),
        ({"op": "peak", "file": "data/none.xlsx", "column": "%CPU"}, "not there"),
        ({"op": "peak", "file": "../../etc/passwd", "column": "%CPU"}, "not lie below"),
        ({"op": "time_user_s", "file": "report.txt"}, "no output of GNU time"),
        ({"op": "oprofile_share", "file": "report.txt", "symbol": "Nobody"}, "Nobody"),
        ({"op": "opannotate_share", "file": "report.txt", "line": "rdtsc"}, "annotates no"),
    ],
)
def test_what_cannot_be_computed_is_a_miss_with_a_reason(
    folder: Path, recipe: Mapping[str, Any], words: str
) -> None:
    entry = ExpectedFigure.model_validate(
        {"id": "x", "recipe": {"file": RECEIVER, **recipe}, "expected": 0, "tolerance": 1e9}
    )
    (outcome,) = check([entry], folder).outcomes
    assert outcome.ours is None
    assert not outcome.hit
    assert words in outcome.problem


def test_a_published_figure_that_disagrees_is_flagged_and_no_miss(folder: Path) -> None:
    recipe = {"op": "record", "file": RECEIVER, "column": "%CPU", "record": 2}
    made = {"id": "x", "recipe": recipe, "expected": 12, "tolerance": 0, "published": 12.3}
    loose = ExpectedFigure.model_validate({**made, "published_tolerance": 0.5})
    tight = ExpectedFigure.model_validate({**made, "published_tolerance": 0.2})
    wrong = ExpectedFigure.model_validate({**made, "expected": 12.1})
    outcomes = check([loose, tight, wrong], folder).outcomes
    assert [(o.hit, o.published_disagrees) for o in outcomes] == [
        (True, False),
        (True, True),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected.json"),
        ("[]", "entries"),
        ('{"entries": []}', "entries"),
        ('{"entries": [{"id": "x", "recipe": {"op": "guess"}, "expected": 1}]}', "recipe"),
        ('{"entries": [{"id": "x", "recipe": {"op": "peak"}, "expected": 1}]}', "file"),
    ],
)
def test_a_list_that_is_none_is_bad_input(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "expected.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_entries(path)


def test_every_published_entry_is_reproduced() -> None:
    folder = published_data()
    outcomes = check(read_entries(folder / "expected.json"), folder).outcomes
    assert [(o.entry.id, o.ours) for o in outcomes if not o.hit] == []
    flagged = {o.entry.id for o in outcomes if o.published_disagrees}
    suspect = {o.entry.id for o in outcomes if o.entry.status == "published_value_suspect"}
    assert suspect <= flagged
    listed = json.loads((folder / "expected.json").read_text())["entries"]
    assert len(outcomes) == len(listed) >= 64
