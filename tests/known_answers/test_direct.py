"""A run with several cells answers its question first: which is more, by how much, or what telling
would take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodrop.report.answer import answer
from nodrop.report.direct import direct_answers, disturbed
from nodrop.report.escape import markdown
from nodrop.report.sentences import Sentence
from nodrop.report.story import read_story
from nodrop.report.write import markdown_report, report_json
from nodrop.results.capacity import Direct
from tests.known_answers.sentences import rules, text_of
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried

COMMAND = {"command": ["nodrop", "run", "experiments/x.toml"], "question": "Which is more?"}


def one_search(
    cell: Mapping[str, Any], limits: Sequence[float | None], carried: float = 1.0
) -> list[Load]:
    """Rounds that carry `carried` times 0.98 of their limit and lose just above it; None: no load
    was too much."""
    found: dict[float, list[float | str]] = {}
    rounds = len(limits)
    for number, limit in enumerate(limits):
        at = carried if limit is None else round(limit * 0.98, 3)
        above = None if limit is None else round(limit * 1.02, 3)
        for value, loss in ((at, 0.0), (above, 0.02)):
            if value is not None:
                found.setdefault(value, [""] * rounds)[number] = loss
    return [
        Load(
            cell=cell,
            trials=[r for r in results if r != ""],
            pps=value * 1000,
            duration_s=5.0,
            fields={"sustained": True},
            each={
                n: {
                    "searched": {
                        "by": "multiplier",
                        "value": value,
                        "duration_s": 5.0,
                        "round": [i for i, r in enumerate(results, 1) if r != ""][n - 1],
                    }
                }
                for n in range(1, 1 + sum(r != "" for r in results))
            },
        )
        for value, results in found.items()
    ]


def searched(out: Path, cells: Mapping[Any, Sequence[float | None]], key: str, **more: Any) -> Path:
    loads = [one for value, limits in cells.items() for one in one_search({key: value}, limits, 8)]
    return outcome_search(
        out, loads, search={"goals": [0.0], "rounds": 8, **more}, manifest=COMMAND
    )


def first(run: Path) -> tuple[Direct, Sentence]:
    story = read_story([run])
    sentences = answer(story).sentences
    (direct, sentence), *_ = direct_answers(story)
    assert sentences[0] == sentence
    assert markdown_report(story).splitlines()[2] == markdown(direct.text, longest=2000)
    told = report_json(read_story([run]))["answer"]["sentences"][0]
    assert Direct.model_validate_json(json.dumps(told["evidence"])) == direct
    return direct, sentence


@pytest.mark.parametrize(
    ("key", "cells", "verdicts", "ratio"),
    [
        ("sut.ring_size", {256: 10.0, 2048: 12.5}, ["more"], 1.25),
        ("sut.ring_size", {64: 40.0, 512: 20.0, 4096: 80.0}, ["less", "more"], 0.5),
        ("sut.threads", {1: 5.0, 2: 9.0}, ["more"], 1.8),
        ("sut.threads", {1: 30.0, 2: 30.1}, ["same"], 1.0),
    ],
)
def test_which_search_carries_more_and_by_how_much(
    tmp_path: Path, key: str, cells: dict[int, float], verdicts: list[str], ratio: float
) -> None:
    limits = {k: [v * (1 + n / 1000) for n in range(9)] for k, v in cells.items()}
    direct, sentence = first(searched(tmp_path / "run", limits, key))
    assert [level.verdict for level in direct.levels] == verdicts
    level = direct.levels[0]
    assert level.ratio is not None and None not in level.ratio
    low, high = level.ratio
    assert low is not None and high is not None and low <= ratio <= high <= low * 1.12
    assert level.more is None and sentence.text


@pytest.mark.parametrize(("rounds", "more"), [(3, 5), (1, 7)])
@pytest.mark.parametrize("limits", [(10.0, 20.0), (30.0, 6.0)])
def test_few_rounds_say_what_was_seen_and_how_many_more_would_tell(
    tmp_path: Path, rounds: int, more: int, limits: tuple[float, float]
) -> None:
    cells = {n: [limit] * rounds for n, limit in zip((256, 4096), limits, strict=True)}
    direct, sentence = first(searched(tmp_path / "run", cells, "sut.ring_size"))
    level = direct.levels[0]
    assert (level.verdict, level.why, level.more, level.ratio) == (
        "cannot tell",
        "rounds",
        more,
        None,
    )
    low, high = level.seen_ratio or (None, None)
    assert low is not None and high is not None and low < limits[1] / limits[0] < high
    assert sentence.text.startswith("Cannot tell yet whether ring_size")
    assert f"at least {more} more rounds" in sentence.text
    assert sentence.to_do == "`nodrop run experiments/x.toml --set search.rounds=8`"


@pytest.mark.parametrize("ends", [{256: [None] * 9, 4096: [None] * 9}, {64: [None], 128: [None]}])
def test_at_least_answers_are_in_no_order(
    tmp_path: Path, ends: dict[int, list[float | None]]
) -> None:
    loads = [
        one
        for n, (ring, limits) in enumerate(ends.items())
        for one in one_search({"sut.ring_size": ring}, limits, 8.0 + n)
    ]
    run = outcome_search(tmp_path / "run", loads, search={"goals": [0.0]}, manifest=COMMAND)
    direct, sentence = first(run)
    assert [(lv.verdict, lv.why) for lv in direct.levels] == [("cannot tell", "no end")]
    assert "times as much" not in sentence.text
    assert "before a load was too much; what helps" in sentence.text


@pytest.mark.parametrize(("bounded", "carried"), [(10.0, 8.0 * 1.5), (2.0, 8.0)])
def test_an_open_answer_beyond_a_bounded_one_is_more(
    tmp_path: Path, bounded: float, carried: float
) -> None:
    loads = [
        *one_search({"sut.ring_size": 64}, [bounded] * 9),
        *one_search({"sut.ring_size": 4096}, [None] * 9, carried),
    ]
    run = outcome_search(tmp_path / "run", loads, search={"goals": [0.0]}, manifest=COMMAND)
    direct, sentence = first(run)
    (level,) = direct.levels
    assert (level.verdict, level.ratio) == ("more", (pytest.approx(carried / bounded / 1.02), None))
    assert "at least" in sentence.text


def given(out: Path, cells: Mapping[tuple[int, int], Sequence[float | str]], **fields: Any) -> Path:
    loads = [
        Load(
            cell={"sut.ring_size": ring, "load.multiplier": n},
            pps=6_000.0 * n,
            trials=trials,
            fields={"sustained": True, **fields},
        )
        for (ring, n), trials in cells.items()
    ]
    return outcome_run(out, loads, manifest=COMMAND)


@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [
        ([0.02 + n / 1000 for n in range(12)], [0.0] * 12, "less"),
        ([0.0] * 12, [0.3] * 12, "more"),
        ([0.2] * 20, [0.2] * 20, "same"),
        ([0.02] * 6, [0.0] * 6, "cannot tell"),
    ],
)
def test_which_cell_loses_more_of_a_load_that_was_given(
    tmp_path: Path, small: list[float], large: list[float], verdict: str
) -> None:
    cells = {(64, 1): [0.0] * 3, (4096, 1): [0.0] * 3, (64, 8): small, (4096, 8): large}
    direct, sentence = first(given(tmp_path / "run", cells))
    assert (direct.figure, direct.at, direct.base) == ("loss_pct", "8X", "ring_size 64")
    assert [level.verdict for level in direct.levels] == [verdict]
    if verdict == "cannot tell":
        assert "more runs of each would be needed" in sentence.text
        assert direct.levels[0].more == 4 and "measure.repetitions=10" in sentence.to_do


@pytest.mark.parametrize(
    ("reason", "n", "of", "setting"),
    [
        ("late", 6, 6, 'matrix."load.multiplier"=[1, 4]'),
        ("short", 5, 6, 'matrix."load.multiplier"=[1, 4]'),
        ("lab", 2, 2, "nodrop doctor"),
    ],
)
def test_a_cell_that_is_always_void_for_one_reason_is_the_finding(
    tmp_path: Path, reason: str, n: int, of: int, setting: str
) -> None:
    void: list[float | str] = [reason] * n
    cells = {(64, 1): [0.0] * 3, (4096, 1): [0.0] * 3, (64, 8): [*void, *[0.0] * (of - n)]}
    run = given(tmp_path / "run", {**cells, (4096, 8): [0.0] * 3})
    said = answer(read_story([run])).sentences
    text = text_of(said, "always-void")
    how_many = ("both" if n == 2 else f"all {n}") if n == of else f"{n} of {of}"
    said_at = f"ring_size 64: {how_many} trials at 48,000 packets/s (8X) are void for one reason"
    assert said_at in text
    (finding,) = [s for s in said if s.rule == "always-void"]
    assert setting in finding.to_do
    assert rules(said).index("always-void") <= 1
    assert not {"load-void", "some-void"} & {*rules(said)}


@pytest.mark.parametrize("trials", [["late", "residual"], ["late"], ["late", 0.0, 0.0]])
def test_void_trials_for_several_reasons_or_by_chance_are_no_finding(
    tmp_path: Path, trials: list[float | str]
) -> None:
    run = given(tmp_path / "run", {(64, 8): trials, (4096, 8): [0.0] * 3})
    assert "always-void" not in rules(answer(read_story([run])).sentences)


@pytest.mark.parametrize(("ratio", "crowded"), [(0.91, 6), (0.3, 4), (0.91, 2), (0.1, 6)])
@pytest.mark.parametrize("losses", [(0.0, 0.0253), (0.4, 0.1)])
def test_setups_that_others_disturbed_are_not_ranked(
    tmp_path: Path, ratio: float, crowded: int, losses: tuple[float, float]
) -> None:
    loads = [
        Load(cell={"setup.kind": kind, "load.multiplier": 4}, trials=[loss] * 6)
        for kind, loss in zip(("bare", "docker"), losses, strict=True)
    ]
    run = outcome_run(tmp_path / "run", loads, manifest=COMMAND)
    for number, trial in enumerate(sorted((run / "runs").iterdir())):
        record = json.loads((trial / "trial.json").read_text())
        record["details"] = {"foreign_cpu_ratio": ratio if number // 2 < crowded else 0.01}
        (trial / "trial.json").write_text(json.dumps(record))
    story = read_story([run])
    direct, sentence = first(run)
    most = ratio >= 0.25 and crowded > 3
    assert disturbed(story) is direct.disturbed is most
    assert (sentence.rule == "direct-disturbed") is most
    if most:
        assert all(level.verdict == "cannot tell" for level in direct.levels)
        assert f"in {2 * crowded} of 12 trials (up to {ratio * 100:.0f} %)" in sentence.text


def test_factors_are_answered_one_by_one_with_the_others_equal(tmp_path: Path) -> None:
    loads = [
        Load(cell={"setup.kind": kind, "limits.memory": memory}, trials=[0.0, 0.1])
        for kind in ("vm", "bare", "docker")
        for memory in ("1GiB", "2GiB")
    ]
    story = read_story([outcome_run(tmp_path / "run", loads)])
    told = [(d.factor, d.held, d.base, len(d.levels)) for d, _ in direct_answers(story)]
    assert told[:2] == [
        (["setup.kind"], {"limits.memory": "1GiB"}, "bare", 2),
        (["setup.kind"], {"limits.memory": "2GiB"}, "bare", 2),
    ]
    assert {tuple(held) for factor, held, *_ in told[2:]} == {("setup.kind",)}
    assert "direct-left" in rules(answer(story).sentences)


def test_one_cell_under_several_loads_has_no_direct_answer(tmp_path: Path) -> None:
    loads = [Load(cell={"load.multiplier": n}, trials=[0.0] * 3) for n in (1, 2)]
    assert not direct_answers(read_story([outcome_run(tmp_path / "loads", loads)]))
    found = outcome_search(tmp_path / "one", [tried(4, [0.0]), tried(4.1, [0.1])])
    assert not direct_answers(read_story([found]))


@pytest.mark.parametrize(
    ("metric", "seconds", "verdict", "words"),
    [
        ("activation_s", (0.3, 1.4), "more", "docker gets ready later than bare: +1.10 s"),
        ("sut_cpu_s", (4.0, 2.0), "less", "docker uses less CPU time than bare: −2.00 s"),
        ("activation_s", (0.5, 0.5), "same", "bare and docker get ready the same within 5 %"),
    ],
)
def test_an_experiment_names_the_figure_that_its_question_is_about(
    tmp_path: Path, metric: str, seconds: tuple[float, float], verdict: str, words: str
) -> None:
    loads = [
        Load(cell={"setup.kind": kind}, trials=[0.0] * 20, fields={metric: s})
        for kind, s in zip(("bare", "docker"), seconds, strict=True)
    ]
    run = outcome_run(tmp_path / "run", loads, manifest={**COMMAND, "metric": metric})
    direct, sentence = first(run)
    assert (direct.figure, [level.verdict for level in direct.levels]) == (metric, [verdict])
    assert sentence.text.startswith(words)


@pytest.mark.parametrize(
    ("unexplained", "words"),
    [
        ([0, 0, 0, 0], "Yes: every packet is in the books of a thread, in 4 of 4 trials."),
        ([0, 7, 0, 0], "No: in 1 of 4 measured trials packets are in the books of no thread, 7 in"),
        ([0, None, 0, 0], "Cannot tell: 1 of 4 measured trials have no books of threads"),
    ],
)
def test_whether_each_packet_is_in_the_books_of_a_thread(
    tmp_path: Path, unexplained: list[int | None], words: str
) -> None:
    loads = [
        Load(cell={"cell": f"c{n}"}, trials=[0.0], fields={"threads_unexplained_packets": packets})
        for n, packets in enumerate(unexplained)
    ]
    run = outcome_run(tmp_path / "run", loads, manifest={**COMMAND, "metric": "books"})
    direct, sentence = first(run)
    assert direct.figure == "books" and not direct.levels
    assert sentence.text.startswith(words)


@pytest.mark.parametrize("traces", [("a.pcap", "b.pcap"), ("x.pcap", "y.pcap")])
def test_cells_with_other_traces_are_compared_in_packets(
    tmp_path: Path, traces: tuple[str, str]
) -> None:
    """4X of a dense trace is more than 9X of a thin one."""
    loads = [
        Load(
            cell=load.cell, trials=load.trials, pps=load.pps * each, duration_s=5.0,
            fields=load.fields, each=load.each,
        )
        for trace, limit, each in zip(traces, (4.0, 9.0), (30.0, 1.0), strict=True)
        for load in one_search({"load.trace": trace}, [limit] * 9)
    ]  # fmt: skip
    run = outcome_search(tmp_path / "run", loads, search={"goals": [0.0]}, manifest=COMMAND)
    direct, sentence = first(run)
    assert [level.verdict for level in direct.levels] == ["less"]
    assert sentence.text.startswith(f"trace {traces[1]} carries less than trace {traces[0]}")


@pytest.mark.parametrize(("beyond", "verdict"), [(900, "less"), (0, "cannot tell")])
@pytest.mark.parametrize("lost", [0.02, 0.3])
def test_a_loss_that_the_senders_bursts_explain_makes_no_cell_lose_more(
    tmp_path: Path, beyond: int, verdict: str, lost: float
) -> None:
    cells = {256: [lost] * 12, 4096: [0.0] * 12}
    loads = [Load(cell={"sut.ring_size": n}, trials=trials) for n, trials in cells.items()]
    run = outcome_run(tmp_path / "run", loads, manifest=COMMAND)
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for line in lines:
        if line["body"]["lost_packets"]:
            line["body"]["lost_beyond_bursts_packets"] = beyond
    (run / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    direct, _ = first(run)
    assert [level.verdict for level in direct.levels] == [verdict]


@pytest.mark.parametrize("rules_files", [["/a/my.rules"], ["b.rules", "c.rules"]])
def test_no_rules_are_the_base_of_rules(tmp_path: Path, rules_files: list[str]) -> None:
    loads = [Load(cell={"sut.rules": given}, trials=[0.0, 0.1]) for given in (rules_files, [])]
    direct, _ = first(outcome_run(tmp_path / "run", loads, manifest=COMMAND))
    assert direct.base == "rules none"
