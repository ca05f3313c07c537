"""Sentences on runs whose truth is known: none is stronger than its evidence."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nodrop.findings.contradiction import LoadResult, contradiction
from nodrop.report.answer import answer
from nodrop.report.story import read_story
from nodrop.report.trust import findings
from nodrop.results.rundir import open_run
from nodrop.results.summary import summarize_cells
from nodrop.terminal.console import cells_table
from tests.known_answers.sentences import pps, rules, said, text_of
from tests.made.outcome_runs import FAILED, VOID, Load, outcome_run

# A SUT that fails.


@pytest.mark.parametrize(
    ("rate", "died", "n"), [(10_001, 4, 6), (10_001, 1, 6), (25_000, 6, 6), (7_300, 2, 3)]
)
def test_a_sut_that_dies_in_k_of_n_trials_carries_nothing(
    tmp_path: Path, rate: int, died: int, n: int
) -> None:
    found = said(tmp_path, pps(rate, ["died"] * died + [0.0] * (n - died)))
    assert not {"carries", "no-loss", "absorbed"} & set(rules(found))
    words = text_of(found, "failed")
    assert f"failed in {died} of {n} trials at {rate:,} packets/s" in words
    assert "the SUT died" in words
    assert ("lost nothing" in words) == (died < n)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("died", "the SUT died"),
        ("hung", "the SUT did not come to rest after the load"),
        ("not ready", "the SUT did not get ready in time"),
    ],
)
def test_a_failure_says_what_the_sut_did_and_not_what_follows(
    tmp_path: Path, how: str, words: str
) -> None:
    found = said(tmp_path, pps(5_000, [0.0] * 6), pps(9_000, [how, 0.0, 0.0, how, 0.0, 0.0]))
    assert f"failed in 2 of 6 trials at 9,000 packets/s ({words};" in text_of(found, "failed")
    assert "residual" not in text_of(found, "failed")
    assert text_of(found, "no-loss").startswith("Suricata, 5,000 packets/s")


def test_a_failure_of_a_lower_load_lets_no_higher_one_be_carried(tmp_path: Path) -> None:
    found = said(tmp_path, pps(5_000, ["died", 0.0, 0.0]), pps(9_000, [0.0] * 3))
    assert rules(found) == ["failed", "loads-out-of-order"]


# n clean trials.


@pytest.mark.parametrize(
    ("n", "bound"), [(1, "95 %"), (3, "63 %"), (6, "39 %"), (20, "14 %"), (60, "4.9 %")]
)
def test_n_clean_trials_bound_the_share_of_lossy_runs(tmp_path: Path, n: int, bound: str) -> None:
    words = text_of(said(tmp_path, pps(10_000, [0.0] * n)), "no-loss")
    of = "1 trial" if n == 1 else f"{n} trials"
    assert f"0 of {of} lost a packet, so fewer than {bound} of such runs do" in words


@pytest.mark.parametrize(
    ("lossy", "n", "low", "high"), [(1, 6, "0.42 %", "64 %"), (3, 4, "19 %", "99 %")]
)
def test_k_of_n_lossy_trials_are_said_with_their_share_and_the_worst(
    tmp_path: Path, lossy: int, n: int, low: str, high: str
) -> None:
    losses = [0.1 + k / 100 for k in range(lossy)]
    words = text_of(said(tmp_path, pps(10_000, [*losses, *[0.0] * (n - lossy)])), "loses-sometimes")
    assert f"{lossy} of {n} trials" in words
    assert f"so {low} to {high} of such runs do" in words
    assert f"the worst of the {n} lost {max(losses):.2%}".replace("%", " %") in words
    assert "at most" not in words


# Void trials.


@pytest.mark.parametrize(
    ("rate", "trials", "words"),
    [
        (5_000_000, ["late", "short"], "5,000,000 packets/s was asked for twice, and every trial"),
        (3_000_000, ["short"], "3,000,000 packets/s was asked for once, and the trial is void"),
        (800_000, ["late", "short", "lab"], "800,000 packets/s was asked for 3 times, and every"),
    ],
)
def test_a_load_that_was_tried_in_vain_is_named(
    tmp_path: Path, rate: int, trials: list[float | str], words: str
) -> None:
    run = outcome_run(tmp_path, [pps(10_000, [0.0] * 3), pps(rate, trials)])
    found = answer(read_story([run]))
    assert words in text_of(found.sentences, "load-void")
    assert "sender" in text_of(found.sentences, "load-void")
    assert "beyond-not-tried" not in rules(found.cannot_say), "it was tried"


@pytest.mark.parametrize("void", [1, 2, 5])
def test_a_cell_says_how_many_of_its_trials_are_void(tmp_path: Path, void: int) -> None:
    found = said(tmp_path, pps(10_000, [*["late"] * void, *[0.0] * 6]))
    words = text_of(found, "some-void")
    assert f"{void} of {6 + void} trials at 10,000 packets/s" in words
    assert "the sender was late" in words
    assert "0 of 6 trials" in text_of(found, "no-loss")


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (["died", 0.0], "the other one lost nothing"),
        (["died", 0.1], "the other one lost packets"),
        (["died", 0.0, 0.0], "the other 2 lost nothing"),
        (["died", 0.2, 0.1, 0.1], "the other 3 lost packets"),
        (["died", 0.0, 0.1, 0.0], "of the other 3, 1 lost packets"),
        (["died", "died"], ""),
    ],
)
def test_what_became_of_the_trials_that_did_not_fail(
    outcomes: list[Any], words: str, tmp_path: Path
) -> None:
    (failed,) = (s.text for s in said(tmp_path, pps(5_000, outcomes)) if "failed in" in s.text)
    assert failed.endswith(f"; {words})." if words else "the SUT died)."), failed


def test_trials_that_lost_do_not_hide_that_others_are_void(tmp_path: Path) -> None:
    found = said(tmp_path, pps(10_000, ["late", 0.2, 0.3, "residual"]))
    assert rules(found) == ["loses", "some-void"]
    assert "the sender was late in 1, some packets are in no class in 1" in text_of(
        found, "some-void"
    )


# Loads that contradict each other.


@pytest.mark.parametrize(
    ("loads", "low", "high"),
    [
        ({10_000: [0.1] * 6, 50_000: [0.0] * 6}, "6 of 6", "0 of 6"),
        ({1_000: [0.0] * 4, 2_000: [0.2] * 5, 9_000: [0.0] * 5}, "5 of 5", "0 of 5"),
        ({10_000: ["died"] * 5 + [0.0], 20_000: [0.0] * 6}, "5 of 6", "0 of 6"),
    ],
)
def test_a_lower_load_that_loses_where_a_higher_does_not_is_a_finding(
    tmp_path: Path, loads: dict[int, list[float | str]], low: str, high: str
) -> None:
    run = outcome_run(tmp_path, [pps(rate, trials) for rate, trials in loads.items()])
    story = read_story([run])
    first, *rest = answer(story).sentences
    assert first.rule == "loads-contradict"
    assert low in first.text and high in first.text
    assert not any(f"{max(loads):,}" in s.text for s in rest if "carr" in s.text)
    assert "loads-contradict" in rules(findings(story))


@pytest.mark.parametrize(
    ("lower", "higher"), [([0.1, 0.0, 0.0], [0.0] * 3), ([0.1] * 2, [0.0] * 2), ([0.3], [0.0])]
)
def test_what_may_be_chance_is_no_contradiction_and_no_capacity_either(
    tmp_path: Path, lower: list[float | str], higher: list[float | str]
) -> None:
    story = read_story([outcome_run(tmp_path, [pps(10_000, lower), pps(50_000, higher)])])
    found = answer(story).sentences
    assert "can be chance" in text_of(found, "loads-out-of-order")
    assert not {"carries", "no-loss", "absorbed"} & set(rules(found))
    assert "loads-contradict" not in rules(findings(story))


def test_loads_that_all_lose_contradict_each_other_by_how_much(tmp_path: Path) -> None:
    lower, higher = [0.3, 0.31, 0.35, 0.32, 0.3, 0.33], [0.01, 0.02, 0.012, 0.01, 0.015, 0.01]
    words = text_of(said(tmp_path, pps(10_000, lower), pps(50_000, higher)), "loads-contradict")
    assert "every trial lost at least 30.00 %" in words
    assert "at most 2.00 %" in words


@pytest.mark.parametrize("seed", range(3))
def test_loads_that_lose_alike_rarely_contradict_each_other(seed: int) -> None:
    rng = random.Random(seed)

    def load(k: int) -> LoadResult:
        return LoadResult(name=str(k), losses=tuple(rng.choice((0.0, 0.1)) for _ in range(6)))

    wrong = 0
    for _ in range(400):
        found = contradiction([load(k) for k in range(5)], looks=10)
        wrong += found is not None and found.sure
    assert wrong <= 0.05 * 400


def test_another_trace_is_no_higher_load(tmp_path: Path) -> None:
    loads = [
        Load(cell={"load.trace": name, "load.pps": rate}, pps=rate, trials=trials)
        for name, rate, trials in (
            ("small.pcap", 10_000, [0.2] * 6),
            ("large.pcap", 50_000, [0.0] * 6),
        )
    ]
    found = said(tmp_path, *loads)
    assert "loads-contradict" not in rules(found)
    each = [s.subject for s in found if s.rule in ("no-loss", "loses")]
    assert each == ["trace large.pcap", "trace small.pcap"]


# Places and causes, over all trials.


@pytest.mark.parametrize(("ring", "backlog"), [(5, 1), (2, 2), (1, 3)])
def test_places_are_those_of_all_lossy_trials(tmp_path: Path, ring: int, backlog: int) -> None:
    n = ring + backlog
    elsewhere = {"loss_place": "softnet backlog", "lost_by_place": {"softnet backlog": 2_000}}
    load = pps(10_000, [0.1] * n, each=dict.fromkeys(range(ring + 1, n + 1), elsewhere))
    words = text_of(said(tmp_path, load), "loses")
    most, least = sorted((ring, backlog), reverse=True)
    assert f"in {most} of {n} lossy trials" in words
    assert "socket ring" in words and "softnet backlog" in words
    assert f"in {least}" in words


# Carried, or only absorbed.


@pytest.mark.parametrize(
    ("rate", "duration_s", "kept"),
    [
        (50_002, 1.0, [False] * 3),
        (250_000, 0.2, [False, False, None, True]),
        (9_000, 4.0, [True, True, False]),
    ],
)
def test_a_burst_that_rings_held_is_not_carried(
    tmp_path: Path, rate: int, duration_s: float, kept: list[bool | None]
) -> None:
    each = {r: {"sustained": shown} for r, shown in enumerate(kept, 1)}
    found = said(tmp_path, pps(rate, [0.0] * len(kept), duration_s=duration_s, each=each))
    assert rules(found) == ["absorbed"]
    words = text_of(found, "absorbed")
    assert (
        f"absorbed a burst of {round(rate * duration_s):,} packets in {duration_s:.3f} s" in words
    )
    assert f"not shown to carry {rate:,} packets/s" in words
    assert f"in {kept.count(False)} of {len(kept)} trials it was behind" in words


@pytest.mark.parametrize("kept", [[None] * 6, [True, None, True], [None]])
def test_what_nobody_saw_worked_off_is_not_called_carried(
    tmp_path: Path, kept: list[bool | None]
) -> None:
    each = {r: {"sustained": shown} for r, shown in enumerate(kept, 1)}
    found = said(tmp_path, pps(10_000, [0.0] * len(kept), each=each))
    assert "whether it can keep this up for longer than 20,000 packets in 2.000 s" in text_of(
        found, "no-loss"
    )
    assert "carries" not in text_of(found, "no-loss")


@pytest.mark.parametrize(("rate", "n"), [(10_001, 6), (4_000, 3), (90_000, 1)])
def test_carries_is_said_if_every_trial_shows_it(tmp_path: Path, rate: int, n: int) -> None:
    found = said(tmp_path, pps(rate, [0.0] * n, fields={"sustained": True}))
    assert f"carries {rate:,} packets/s without loss: 0 of {n}" in text_of(found, "carries")


# The terminal.


@pytest.mark.parametrize(
    ("trials", "row"),
    [
        ([0.0, 0.0, "died", "late", "late"], "2 of 5 0 of 2 nothing lost; 1 failed: sut_died; 2"),
        (["hung", "died", "died"], "0 of 3 not known 3 failed: sut_died (2), not_drained (1)"),
        ([0.1, 0.0, 0.0, "short"], "3 of 4 1 of 3 socket ring; 1 void: sender_short"),
    ],
)
def test_the_table_of_a_run_counts_the_three_outcomes_apart(
    tmp_path: Path, trials: list[float | str], row: str
) -> None:
    run = outcome_run(tmp_path, [pps(10_000, trials)])
    found = summarize_cells(open_run(run).trials.records)
    text = io.StringIO()
    Console(file=text, width=200).print(cells_table(found))
    assert set(row.split()) <= set(text.getvalue().split())
    outcomes = [found[0].measured, found[0].failed, found[0].void]
    assert outcomes == [
        sum(isinstance(t, float) for t in trials),
        sum(t in FAILED for t in trials),
        sum(t in VOID for t in trials),
    ]


@pytest.mark.parametrize(
    ("known", "unknown", "bound"), [(30, 10, "39 %"), (6, 1, "52 %"), (3, 3, "85 %")]
)
def test_trials_of_unknown_loss_widen_what_clean_ones_allow(
    tmp_path: Path, known: int, unknown: int, bound: str
) -> None:
    """Books that do not close may hide a loss: they count as if they did."""
    open_books = {"loss_ratio": None, "books_closed": False}
    each = dict.fromkeys(range(known + 1, known + unknown + 1), open_books)
    found = said(tmp_path, pps(10_000, [0.0] * (known + unknown), each=each))
    words = text_of(found, "no-loss")
    assert f"0 of {known} trials lost a packet, of {unknown} more it is not known" in words
    assert f"fewer than {bound} of such runs" in words
    assert f"in {unknown} of {known + unknown} trials" in text_of(found, "loss-not-known")


@pytest.mark.parametrize("lossy", [1, 2, 3])
def test_a_loss_that_was_counted_is_said_though_the_books_do_not_close(
    tmp_path: Path, lossy: int
) -> None:
    counted = {"loss_ratio": None, "books_closed": False, "lost_packets": 9}
    each = dict.fromkeys(range(1, lossy + 1), counted)
    found = said(tmp_path, pps(10_000, [0.0] * 4, each=each))
    assert f"{lossy} of 4 trials lose" in text_of(found, "loses-sometimes").replace("loses", "lose")
    assert "no-loss" not in rules(found)


@pytest.mark.parametrize(("busy", "crowded", "nothing"), [(5, 1, 0), (1, 2, 1), (2, 0, 4)])
def test_causes_are_those_of_all_lossy_trials(
    tmp_path: Path, busy: int, crowded: int, nothing: int
) -> None:
    n = busy + crowded + nothing
    causes = [("saturated", f"thread W#0{k} used 9{k} % of one CPU") for k in range(busy)]
    causes += [("other_programs", f"other programs used {40 + k} %") for k in range(crowded)]
    each = {
        r: {"loss_cause": words, "loss_causes": [{"rule": rule, "words": words}]}
        for r, (rule, words) in enumerate(causes, 1)
    }
    words = text_of(said(tmp_path, pps(10_000, [0.1] * n, each=each)), "loses")
    most = max((busy, "thread W#0"), (crowded, "other programs used"))
    assert f"in {most[0]} of {n} lossy trials" in words and most[1] in words
    assert ("other programs" in words) == (crowded > 0)
    assert (f"in {nothing} nothing does" in words) == (nothing > 0)


@pytest.mark.parametrize(("waited", "asleep"), [(4, 2), (1, 5), (3, 3)])
def test_a_trial_with_two_causes_counts_for_both(tmp_path: Path, waited: int, asleep: int) -> None:
    """The first `waited` trials have both; their rule separates the words."""
    n = waited + asleep

    def causes(k: int) -> list[dict[str, Any]]:
        own = {"rule": "own_pace", "words": f"W#01 slept for {k} % of it", "share": 0.2}
        other = {"rule": "waited", "words": f"W#01 waited for {k + 50} % of it", "share": 0.7}
        return [other, own] if k <= waited else [own]

    each = {r: {"loss_cause": "x", "loss_causes": causes(r)} for r in range(1, n + 1)}
    words = text_of(said(tmp_path, pps(10_000, [0.1] * n, each=each)), "loses")
    assert f"in {n} of {n} lossy trials: W#01 slept" in words
    assert re.search(rf"in {waited}( of {n} lossy trials)?: W#01 waited", words)
    assert "nothing does" not in words


# Trials that share a start of the SUT.


@pytest.mark.parametrize(
    ("worlds", "words"),
    [
        (
            [1] * 6 + [7] * 7 + [14] * 7,
            "0 of 20 trials lost a packet, so fewer than 63 % of such s",
        ),
        ([n - n % 2 for n in range(12)], "so fewer than 39 % of such starts of the SUT do"),
        (list(range(20)), "so fewer than 14 % of such runs do"),
    ],
)
def test_a_bound_without_loss_counts_starts(tmp_path: Path, worlds: list[int], words: str) -> None:
    each = {n + 1: {"world": world} for n, world in enumerate(worlds)}
    found = said(tmp_path, pps(9_000, [0.0] * len(worlds), each=each, fields={"sustained": True}))
    assert any(words in sentence.text for sentence in found), found


@pytest.mark.parametrize(
    ("worlds", "lossy", "words"),
    [
        ([1] * 7 + [8] * 7 + [15] * 6, 3, "3 of 20 trials lose packets, so 0.84 % to 91 % of such"),
        ([1] * 10 + [11] * 10, 10, "10 of 20 trials lose packets, so 1.3 % to 99 % of such starts"),
        (list(range(20)), 10, "10 of 20 trials lose packets, so 27 % to 73 % of such runs"),
    ],
)
def test_the_share_of_lossy_runs_counts_starts(
    tmp_path: Path, worlds: list[int], lossy: int, words: str
) -> None:
    each = {n + 1: {"world": world} for n, world in enumerate(worlds)}
    losses = [0.01] * lossy + [0.0] * (20 - lossy)
    found = text_of(said(tmp_path, pps(9_000, losses, each=each)), "loses-sometimes")
    assert words in found.replace(" in the socket ring", ""), found


@pytest.mark.parametrize(("starts", "trials"), [(3, 20), (1, 6), (5, 11)])
def test_few_starts_have_no_interval_and_that_is_said(
    tmp_path: Path, starts: int, trials: int
) -> None:
    each = {n + 1: {"world": n * starts // trials} for n in range(trials)}
    losses = [0.01 + n / 1000 for n in range(trials)]
    story = read_story([outcome_run(tmp_path, [pps(9_000, losses, each=each)])])
    assert story.cells[0].loss is not None and story.cells[0].loss.interval is None
    (sentence,) = [s for s in answer(story).cannot_say if s.rule == "too-few-starts"]
    assert "share fewer than 6 starts of the SUT" in sentence.text
    assert list(sentence.evidence["starts"].values()) == [starts]


# Several things in one list.


@pytest.mark.parametrize("names", [("small", "large"), ("a", "b", "c")])
def test_every_sentence_of_several_runs_has_its_subject(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Seen: "At 8X, 6 of 6 trials lose packets" in a list of three runs."""
    runs = [
        outcome_run(
            tmp_path / name,
            [
                pps(5_000, [0.0] * 3, fields={"sustained": True}),
                pps(9_000, [0.1, 0.0, "late"]),
                pps(12_000, ["died", 0.3, 0.2]),
                pps(20_000, ["late"]),
            ],
        )
        for name in names
    ]
    for number, run in enumerate(runs):
        runs[number] = run.rename(run.with_name(names[number]))
    story = read_story(runs)
    found = answer(story).sentences
    assert len(found) >= 4 * len(names)
    for sentence in found:
        assert sentence.subject in names
        assert sentence.text.startswith(sentence.subject), sentence.text


@pytest.mark.parametrize(
    ("loads", "order", "one_scale"),
    [
        # (factors, packets/s): NX and times the speed have no scale in common.
        ([({"load.multiplier": 4}, 4_000), ({"load.speed": 8.0}, 2_000)], [2_000, 4_000], False),
        ([({"load.multiplier": 2}, 9_000), ({"load.speed": 16.0}, 12_000)], [9_000, 12_000], False),
        # The sender of 8X came to less than that of 4X.
        ([({"load.multiplier": 8}, 3_000), ({"load.multiplier": 4}, 4_000)], [3_000, 4_000], True),
        (
            [
                ({"load.multiplier": 4, "load.speed": 1.0}, 4_000),
                ({"load.multiplier": 1, "load.speed": 8.0}, 8_000),
            ],
            [4_000, 8_000],
            False,
        ),
        (
            [
                ({"load.multiplier": 2, "load.speed": 1.0}, 4_000),
                ({"load.multiplier": 2, "load.speed": 3.0}, 12_000),
            ],
            [4_000, 12_000],
            True,
        ),
    ],
)
def test_loads_are_compared_by_what_was_offered(
    tmp_path: Path, loads: list[tuple[dict[str, float], int]], order: list[int], *, one_scale: bool
) -> None:
    """The lower one loses nothing and the higher one all the time: no contradiction."""
    lower, _ = order
    cells = [
        Load(cell=cell, pps=rate, trials=[0.0 if rate == lower else 0.2] * 6)
        for cell, rate in loads
    ]
    story = read_story([outcome_run(tmp_path / "run", cells)])
    told = answer(story).sentences
    assert "loads-contradict" not in rules([*told, *findings(story)])
    assert [s.rule for s in told] == ["no-loss", "loses"]
    assert f"{lower:,} packets/s (" in told[0].text
    # The other way about it is one if the loads are of one scale, and both lists say so.
    cells = [
        Load(cell=cell, pps=rate, trials=[0.2 if rate == lower else 0.0] * 6)
        for cell, rate in loads
    ]
    story = read_story([outcome_run(tmp_path / "turned", cells)])
    assert ("loads-contradict" in rules(answer(story).sentences)) is one_scale
    assert ("loads-contradict" in rules(findings(story))) is one_scale


@pytest.mark.parametrize(("low", "high"), [(9.6, 10.2), (1.02, 1.44), (10_000.0, 10_012.0)])
def test_two_loads_never_read_alike(tmp_path: Path, low: float, high: float) -> None:
    loads = [
        Load(cell={"load.pps": rate}, pps=rate, trials=trials, duration_s=1000.0)
        for rate, trials in ((low, [0.3] * 6), (high, [0.0] * 6))
    ]
    text = text_of(said(tmp_path, *loads), "loads-contradict")
    first, second = re.findall(r"([\d.,]+) packets/s", text)
    assert float(first.replace(",", "")) < float(second.replace(",", ""))


@pytest.mark.parametrize(("lower", "higher"), [(25_000, 25_000), (9_000, 9_004)])
def test_a_load_that_came_to_no_more_is_no_higher_one(
    tmp_path: Path, lower: int, higher: int
) -> None:
    """16X of a sender that has no more to give is 8X once again."""
    loads = [
        Load(cell={"load.multiplier": 8}, pps=lower, trials=[0.2] * 6),
        Load(cell={"load.multiplier": 16}, pps=higher, trials=[0.0] * 6),
    ]
    story = read_story([outcome_run(tmp_path, loads)])
    assert not {"loads-contradict", "loads-out-of-order"} & {
        *rules(answer(story).sentences),
        *rules(findings(story)),
    }
