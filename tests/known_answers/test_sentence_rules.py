"""Nothing is said without a rule: every rule happens, names its evidence, and is documented."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.ledger.outcome import Reason
from nodrop.report.answer import answer
from nodrop.report.sentences import REASON_WORDS, RULES
from nodrop.report.story import read_story
from nodrop.report.write import report_json
from tests.known_answers.sentences import pps, rules, text_of
from tests.made.answered import attaches, make_answered
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried, windowed
from tests.made.rundirs import MIXED, SETUPS, Fake, damage, make_run
from tests.unit.drops.test_outlets import ends_blind, recorded, watch

DOCS = Path(__file__).parents[2] / "docs" / "reference"


QUOTA = {
    "group": "/pod", "cpus": 0.5, "periods": 50, "throttled_periods": 40, "throttled_s": 2.0
}  # fmt: skip
SENSOR = {
    "rules_loaded": 5,
    "rules_failed": 2,
    "rules_failed_first": ["1.rules line 1"],
    "yaml": "my.yaml",
    "yaml_replaced": [{"key": "af-packet", "was": "eth0", "now": "ndrx0"}],
}
SHORT = {
    "cut_packets": 7,
    "invalid_packets": 9,
    "checksum_packets": 900,
    "remarks": [
        {"about": about, "words": about, "knob": "k"} for about in ("cut", "invalid", "checksum")
    ],
}
PORTS = [{"port": "a", "received_packets": 9}, {"port": "b", "received_packets": 0}]


def everything(tmp_path: Path) -> list[list[Path]]:
    """Run directories, report by report, that between them make every rule happen."""
    spoilt = make_run(tmp_path / "spoilt", Fake(repetitions=2))
    damage(spoilt)
    (spoilt / "findings.json").write_text(
        json.dumps(
            {"findings": [{"code": "x", "severity": "serious", "title": "t", "effect": "e"}]}
        )
    )
    slow = {"activation_s": 0.3, "sustained": True, "foreign_packets": 2, "reset_s": 9.5}
    late = {
        "largest_late_burst": {"at_s": 1.0, "late_us": 9e3, "sent": 90},
        "asked_schedule_error_us": {"p50": 9.0, "p99": 9e3, "max": 9e3},
        "shaped_pps": 1e6,
    }
    bare, guest = {"setup.kind": "bare"}, {"setup.kind": "vm"}
    told = outcome_run(
        tmp_path / "told",
        [
            Load(cell=bare | {"load.pps": 1}, trials=[0.0] * 3, fields=slow),
            Load(
                cell=bare | {"load.pps": 2},
                trials=[0.0, 0.1, "died"],
                fields=slow | {"own_dropped_packets": 0, "analysis_lost": {"flow.memcap": 7}},
            ),
            Load(cell=bare | {"load.pps": 3}, pps=3e4, trials=["late", 0.0, 0.0], fields=late),
            Load(cell=bare | {"load.pps": 4}, trials=["late"]),
            Load(
                cell=bare | {"load.pps": 5},
                trials=[0.0],
                fields={"loss_ratio": None, "books_closed": False, "schedule_error_us": None},
            ),
            Load(
                cell=guest | {"load.pps": 1}, trials=[0.0] * 3, fields={"sustained": False} | SHORT
            ),
            Load(cell={"setup.kind": "oci", "load.pps": 1}, trials=[0.0] * 6, fields={"world": 1}),
        ],
        manifest={
            "calibration": [
                {"setup": "bare", "certificate": {"caught": ["lose 7"], "missed": []}},
                {"setup": "vm", "not_calibrated": "nobody asked"},
            ]
        },
    )
    first = told / "runs" / "0001-r01"
    details: dict[str, Any] = {
        "foreign_cpu_ratio": 0.7,
        "facts": {"warm_up": {"discarded": True, "offered_packets": 7}, "sut": SENSOR},
    }
    record = json.loads((first / "trial.json").read_text())
    (first / "trial.json").write_text(json.dumps(record | {"details": details}))
    lines = (told / "trials.jsonl").read_text().splitlines()
    cold = json.loads(lines[0]) | {"activation_s": 9.0}
    (told / "trials.jsonl").write_text("\n".join([json.dumps(cold), *lines[1:], ""]))
    quiet = make_run(tmp_path / "quiet", Fake(repetitions=1, seed=3))
    trial = next(iter((quiet / "runs").iterdir()))
    record = json.loads((trial / "trial.json").read_text())
    record["details"]["foreign_cpu_ratio"] = 0.0
    (trial / "trial.json").write_text(json.dumps(record))
    clash = outcome_run(tmp_path / "clash", [pps(1_000, [0.2] * 6), pps(2_000, [0.0] * 6)])
    wild = outcome_run(tmp_path / "wild", [pps(1_000, [0.0] * 5 + [0.3])])
    lied = make_run(tmp_path / "lied", Fake(repetitions=1, samples=False))
    text = (lied / "trials.jsonl").read_text()
    changed = text.replace('"books_closed":true', '"books_closed":false', 1)
    (lied / "trials.jsonl").write_text(changed)
    limits = (4.6, 4.2)  # of two rounds
    above = [
        tried(v, [1 - limit / v for limit in limits]) for v in (5, 5.02, 5.04, 5.06, 5.08, 5.1)
    ]
    searched = outcome_search(
        tmp_path / "searched",
        [tried(1, [0.0] * 2), tried(4.15, [0.0] * 2), *above, tried(9, [0.0])],
        search={"budget_s": 100.0},
    )
    parts = [windowed(tried(4, [0.0]), begun_packet_ratio=0.2), tried(5, [0.1])]
    soak = tried(4, [0.0])
    soak.each[1]["searched"]["soak"] = {"lossy_from_s": None}
    part = outcome_search(tmp_path / "part", [*parts, soak])
    worn = outcome_search(
        tmp_path / "worn",
        [tried(v, [loss]) for v, loss in ((10, 0.03), (9.6, 0.0), (9.5, 0.4), (9.4, 0.4), (5, 0))],
        search={"rounds": 1},
    )
    unproved = outcome_search(
        tmp_path / "unproved",
        [tried(v, [loss]) for v, loss in ((10.4, 0.2), (10, 0.02), (10, 0.0), (10, 0.0))]
        + [tried(9.6, [0.0]) for _ in range(4)],
        search={"rounds": 1},
    )
    slower = [tried(5.1 + n / 10, [1 - (5 if n < 6 else 2.5) / (5.1 + n / 10)]) for n in range(14)]
    changed_run = outcome_search(
        tmp_path / "changed", [tried(4.9, [0.0]), *slower, tried(30, [0.8])], search={"rounds": 1}
    )
    starts = [
        tried(13 * part, [max(0.0, 1 - at / (13 * part)) for at in (13, 10)] * 2)
        for part in (0.85, 0.9, 0.95, 0.96, 0.98, 0.99, *(1.01 + n / 100 for n in range(8)))
    ]
    for one in starts:
        for number, fields in one.each.items():
            fields["searched"]["round"] = 1 + (number + 1) % 2
    two_starts = outcome_search(tmp_path / "starts", starts, search={"rounds": 2})
    apart = {"generator_cpus": "0", "sut_cpus": "1-3", "cpus_parted": True}
    turns = {"generator_cpus": "1", "sut_cpus": "1-3"}
    senders = outcome_run(
        tmp_path / "senders",
        [
            Load(cell={"load.pps": 1}, trials=[0.0], fields=apart),
            Load(cell={"load.pps": 2}, trials=[0.0], fields=turns),
        ],
        manifest={
            "loads": [
                load_of("replay", "distinct", 4) | {"captured": CAPTURED},
                load_of("tcpreplay", "same", 4),
            ]
        },
    )
    lines = (senders / "trials.jsonl").read_text().splitlines()
    on_two = json.loads(lines[0])
    on_two["body"]["ports"] = PORTS
    on_two["disturbed"] = {"quota": QUOTA}
    (senders / "trials.jsonl").write_text("\n".join([json.dumps(on_two), *lines[1:], ""]))
    rule = {"min": 6, "max": 9, "until": ["loss_ratio half-width <= 0.1 points"]}
    ruled = make_run(
        tmp_path / "ruled", Fake(manifest={"measure": {"repetitions": rule}}, samples=False)
    )
    far = {"a": (2.0, 2.1, 1.9), "b": (4.0, 4.1, 3.9), "c": (3.0, 3.1, 2.9)}
    alike = {"a": (2.0, 2.1, 1.9), "b": (2.1, 2.0, 1.9)}
    fleets = [on_pairs(tmp_path / f"pairs-{len(used)}", used) for used in (far, alike)]
    moved = outcome_run(
        tmp_path / "moved",
        [Load(cell={"load.pps": n}, trials=[0.0], fields={"pair": "ab"[n - 1]}) for n in (1, 2)],
    )
    load, given = {"load.pps": 1}, Load(cell={}, trials=[0.0, 0.1])
    both = [
        {"setup.kind": kind, "limits.memory": memory, **load}
        for kind in ("bare", "oci", "vm")
        for memory in ("1GiB", "2GiB", "4GiB")
    ]
    many = outcome_run(
        tmp_path / "many",
        [*(replace(given, cell=cell) for cell in both), pps(2, ["late", "late"])],
    )
    crowded = outcome_run(
        tmp_path / "crowded",
        [replace(given, cell={"setup.kind": k} | load) for k in ("bare", "vm")],
    )
    for trial in (crowded / "runs").iterdir():
        record = json.loads((trial / "trial.json").read_text())
        (trial / "trial.json").write_text(
            json.dumps(record | {"details": {"foreign_cpu_ratio": 0.9}})
        )
    watches = [
        recorded(tmp_path / f"watch-{sum(drops)}", watch(drops, hidden="what waits"))
        for drops in ((0, 5), (0, 0))
    ]
    watches.append(recorded(tmp_path / "watch-blind", ends_blind()))
    empty = make_run(tmp_path / "empty", Fake(repetitions=0))
    runs = [make_run(tmp_path / "setups", SETUPS), make_run(tmp_path / "mixed", MIXED)]
    others = [
        changed_run,
        spoilt,
        told,
        quiet,
        clash,
        wild,
        lied,
        searched,
        part,
        worn,
        unproved,
        senders,
        ruled,
        moved,
        many,
        crowded,
        empty,
        *watches,
    ]
    (tmp_path / "answered").mkdir()
    answered = make_answered(tmp_path / "answered", {4000: [attaches(4000)]})
    return [[path] for path in (*runs, *others, *fleets, two_starts, answered)]


def on_pairs(out: Path, used: dict[str, tuple[float, ...]]) -> Path:
    """Trials of one cell, by the pair of a fleet that measured them: CPU seconds of the SUT."""
    trials = [{"pair": pair, "sut_cpu_s": s} for pair, each in used.items() for s in each]
    each = dict(enumerate(trials, start=1))
    return outcome_run(out, [Load(cell={"load.pps": 1}, trials=[0.0] * len(each), each=each)])


CAPTURED = {"trace": "/home/me/any.pcap", "words": ["7 packets of PPP (9) got an Ethernet header"]}


def load_of(generator: str, flows: str, multiplier: int) -> dict[str, Any]:
    return {"generator": generator, "options": {"flows": flows, "multiplier": multiplier}}


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ([("replay", "distinct", 8), ("tcpreplay", "same", 8)], True),
        ([("replay", "distinct", 2), ("tcpreplay", "same", 16)], True),
        ([("replay", "distinct", 4), ("replay", "same", 4)], True),
        ([("replay", "distinct", 1), ("tcpreplay", "same", 8)], False),
        ([("replay", "distinct", 1), ("tcpreplay", "same", 1)], False),
        ([("replay", "same", 8), ("tcpreplay", "same", 8)], False),
    ],
)
def test_loads_whose_replicas_differ_in_flows_are_not_the_same_traffic(
    tmp_path: Path, loads: list[tuple[str, str, int]], said: bool
) -> None:
    run = outcome_run(
        tmp_path / "run",
        [pps(1_000, [0.0])],
        manifest={"loads": [load_of(*load) for load in loads]},
    )
    found = answer(read_story([run])).cannot_say
    assert ("flows-differ" in rules(found)) == said
    if said:
        words = text_of(found, "flows-differ")
        assert all(generator in words for generator, _, _ in loads)


@pytest.mark.parametrize(
    ("generator", "sut", "common", "rule"),
    [
        ("0", "1", True, "cpus-apart"),
        ("0-3", "4-15", None, "cpus-apart"),
        ("1", "0-1", True, "cpus-shared"),
        (None, "0-1", None, "cpus-shared"),
        ("0-4", "3,9", None, "cpus-shared"),
        (None, "0-1", False, "cpus-apart"),
        ("1", "0-1", False, "cpus-apart"),
        (None, None, True, None),
    ],
)
def test_who_shared_a_cpu_is_said(
    tmp_path: Path, generator: str | None, sut: str | None, common: bool | None, rule: str | None
) -> None:
    cpus = {"generator_cpus": generator, "sut_cpus": sut, "cpus_in_common": common}
    run = outcome_run(tmp_path / "run", [Load(cell={"load.pps": 1}, trials=[0.0] * 3, fields=cpus)])
    happened = {said["rule"] for said in told_by([run])} & {"cpus-apart", "cpus-shared"}
    assert happened == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("factor", "asked", "effective", "label"),
    [
        ("sut.threads", 4, {"threads": 2}, "threads 4 (really 2)"),
        ("sut.threads", 16, {"threads": 3}, "threads 16 (really 3)"),
        ("sut.threads", 2, {"threads": 2}, "threads 2"),
        ("sut.threads", "auto", {"threads": 2}, "threads auto"),
        ("sut.threads", 2, {}, "threads 2"),
        ("sut.runmode", "workers", {"runmode": "autofp"}, "runmode workers (really autofp)"),
        ("sut.ring_size", 64, {"ring_size": 1700}, "ring_size 64 (really 1,700)"),
        ("sut.ring_size", 4096, {"ring_size": 4102}, "ring_size 4,096"),
        ("sut.cluster_type", "cluster_flow", {"cluster_type": "none"}, " (really none)"),
        ("sut.defrag", "yes", {"defrag": False}, "defrag yes (really no)"),
        ("sut.defrag", "yes", {"defrag": True}, "defrag yes"),
    ],
)
def test_a_cell_is_called_by_what_ran(
    tmp_path: Path, factor: str, asked: Any, effective: dict[str, Any], label: str
) -> None:
    other = "quic" if factor != "sut.threads" else 1
    cells = [
        Load(cell={factor: asked}, trials=[0.0] * 3, fields={"effective": effective}),
        Load(cell={factor: other}, trials=[0.0] * 3),
    ]
    story = read_story([outcome_run(tmp_path / "run", cells)])
    labels = [cell.label.replace("\u2009", "\u202f") for cell in story.cells]
    assert any(said.endswith(label) for said in labels), labels


@pytest.mark.parametrize("asked", [3, 4, 64])
def test_capped_threads_are_a_finding(tmp_path: Path, asked: int) -> None:
    words = f"{asked} capture threads were asked for, 2 run"
    fields = {"effective": {"threads": 2}, "not_as_asked": [words]}
    cell = {"sut.threads": asked}
    run = outcome_run(tmp_path / "run", [Load(cell=cell, trials=[0.0] * 3, fields=fields)])
    (found,) = [said for said in told_by([run]) if said["rule"] == "not-as-asked"]
    assert words in found["text"]


def told_by(paths: list[Path]) -> list[dict[str, Any]]:
    found = json.loads(json.dumps(report_json(read_story(paths)), allow_nan=False))
    return [s for part in found["answer"].values() for s in part] + found["findings"]


def test_every_rule_happens_and_names_its_evidence_and_trials(tmp_path: Path) -> None:
    told = [s for paths in everything(tmp_path) for s in told_by(paths)]
    for sentence in told:
        assert isinstance(sentence["evidence"], dict)
        assert all(set(t) == {"run_directory", "run"} for t in sentence["trials"])
        if sentence["rule"] in ("loses", "loses-sometimes"):
            assert sentence["trials"] and sentence["evidence"]["lossy"]
    happened = {sentence["rule"] for sentence in told}
    # A package that cannot be imported is made in tests/unit/test_toy_question.py.
    assert set(RULES) - {"part-missing"} <= happened
    assert happened <= {*documented("sentences"), *documented("findings")}


def test_every_reason_has_words() -> None:
    assert set(Reason) <= set(REASON_WORDS)


def documented(page: str) -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", (DOCS / f"{page}.md").read_text(), re.M)
    return {code: rest.split(" | ") for code, rest in rows}


def test_the_page_lists_every_rule_as_the_code_has_it() -> None:
    page = documented("sentences")
    assert list(page) == list(RULES)
    for code, of in RULES.items():
        part, when, evidence = page[code]
        assert part == str(of) and when.strip() and evidence.strip()
