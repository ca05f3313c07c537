"""Report, terminal and JSON of a search, on runs whose answer is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodrop.capacity.answer_cards import cards
from nodrop.capacity.json_answer import capacity_answer
from nodrop.capacity.page import capacity_page, card_views
from nodrop.capacity.pictures import knee_of, way_of
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.section import capacity_section, steps_table
from nodrop.capacity.terminal import MOST_ROWS, AnswerLine, answer_lines, fitted, print_answers
from nodrop.capacity.words import fitted_words, forecast_words, shown_fit
from nodrop.report.answer import answer
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.stats.loss_curve import LossCurve
from nodrop.terminal.console import KEY
from tests.made.outcome_runs import outcome_search, tried, windowed
from tests.pages import page_of
from tools.schemas import schemas


def search_of(run: Path) -> SearchedCell:
    (found,) = searches(read_story([run]))
    return found


def printed(run: Path) -> None:
    print_answers(read_story([run]), run / "report/index.html")


def rows_of(run: Path, columns: int) -> list[tuple[str, str]]:
    """Key and words of each row of a terminal that wide."""
    story = read_story([run])
    (searched,), (card,) = searches(story), cards(story)
    lines = answer_lines(story, searched, card, Path("results/r/report/index.html"))
    return [(line.key, words) for line, words in fitted([*lines], columns - KEY - 2)]


def told(run: Path) -> dict[str, Any]:
    found = capacity_answer(search_of(run), run_directory=run, report=run / "report", exit_code=0)
    return json.loads(json.dumps(found.model_dump()))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lossy_from": 34.5, "expects": 31.0, "expects_by": "served"}, "by what was served"),
        ({"clean_to": 60.0, "expects": 90.5, "expects_by": "cpu"}, "by CPU per packet"),
        ({"sender_to": 12.5}, "the sender sent 12.5X at most"),
        ({}, "nothing was read while the load grew"),
    ],
)
def test_a_ramp_is_shown_and_decides_nothing(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    plain = [tried(4.0, [0.0]), tried(5.0, [0.02])]
    ramp = tried(64.0, [0.3])
    ramp.each[1]["searched"]["ramp"] = {"start": 1.0, **fields}
    with_ramp = search_of(outcome_search(tmp_path / "ramp", [ramp, *plain]))
    without = search_of(outcome_search(tmp_path / "plain", plain))
    for found, same in zip(with_ramp.answers, without.answers, strict=True):
        assert (found.lower and found.lower.value) == (same.lower and same.lower.value) == 4.0
        assert (found.upper and found.upper.value) == (same.upper and same.upper.value) == 5.0
        assert found.trials == same.trials + 1
    assert [t.record.searched.value for t in with_ramp.trials if t.record.searched] == [4.0, 5.0]
    (shown, *rest) = steps_table(with_ramp).rows
    assert shown.values[3].shown == "a ramp from 1X to 64X" and len(rest) == 2
    assert words in shown.values[-1].shown
    assert len(knee_of(with_ramp).dots) == len(knee_of(without).dots) == 2
    assert with_ramp.subject == without.subject and with_ramp.label == without.label


@pytest.mark.parametrize(
    ("carried", "lost", "pps"), [(4.0, 5.0, 1000.0), (61.25, 63.5, 1686.0), (0.4, 0.5, 90_000.0)]
)
def test_the_answer_in_figures(tmp_path: Path, carried: float, lost: float, pps: float) -> None:
    loads = [tried(carried / 2, [0.0]), tried(carried, [0.0]), tried(lost, [0.02])]
    run = outcome_search(
        tmp_path, [tried(one.fields["sut_cpu_s"] * 16, one.trials, pps=pps) for one in loads]
    )
    found = told(run)
    Draft202012Validator(schemas()["capacity"]).validate(found)
    ndr, pdr = found["goals"]
    assert (ndr["lower"]["value"], ndr["upper"]["value"]) == (carried, lost)
    assert ndr["lower"]["pps"] == pytest.approx(carried * pps)
    assert ndr["upper"]["pps"] == pytest.approx(lost * pps)
    assert ndr["lower"]["bps"] == pytest.approx(carried * pps * 2400)
    assert ndr["between"]["interval"] is None, "one round has no interval"
    assert (ndr["limited_by"], ndr["place"], ndr["knob"]) == (
        "sut",
        "socket ring",
        "sut.ring_size",
    )
    assert (ndr["trials"], ndr["trial_seconds"]) == (3, 15)
    assert (pdr["goal"], pdr["goals_of"], pdr["lower"]["value"]) == (0.005, "packets", carried)
    assert ndr["findings"][0]["code"] == "capacity-found"


def test_a_goal_that_tolerates_a_loss_carries_more(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(4, [0.0]), tried(5, [0.004]), tried(6, [0.3])])
    assert [goal["lower"]["value"] for goal in told(run)["goals"]] == [4, 5]


def test_six_rounds_have_an_interval_and_it_is_not_that_within_the_search(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(4, [0.0] * 6), tried(5, [0.1] * 6)], search={"rounds": 6})
    ndr = told(run)["goals"][0]
    assert (ndr["lower"]["value"], ndr["upper"]["value"]) == (4, 5)
    between = ndr["between"]["interval"]
    assert (between["low"], between["high"]) == (4, 4)


@pytest.mark.parametrize("whole", [1, 3, 6])
def test_rounds_that_the_budget_cut_are_no_spread(tmp_path: Path, whole: int) -> None:
    """Six rounds, some of them cut far below, gave an interval between rounds."""
    loads = [tried(1, [0.0] * 7), tried(4, [0.0] * whole), tried(4.2, [0.1] * whole)]
    found = told(outcome_search(tmp_path, loads, search={"rounds": 7, "budget_s": 600.0}))
    between = found["goals"][0]["between"]
    assert {(one["value"], one["pps"]) for one in between["carried"]} == {(4, 4000)}
    assert (between["interval"] is not None) == (whole == 6)


def test_what_was_not_found_is_null(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(4, ["late"] * 3)])
    found = told(run)
    Draft202012Validator(schemas()["capacity"]).validate(found)
    assert found["goals"][0]["lower"] is found["goals"][0]["upper"] is None
    assert found["goals"][0]["limited_by"] == "generator"


def test_a_search_by_rate_has_its_scale(tmp_path: Path) -> None:
    loads = [tried(4000, [0.0], by="pps", pps=1), tried(5000, [0.1], by="pps", pps=1)]
    found = told(outcome_search(tmp_path, loads, search={"by": "pps"}))
    assert {(goal["by"], goal["lower"]["value"]) for goal in found["goals"]} == {("pps", 4000)}


def test_a_search_speaks_for_its_loads(tmp_path: Path) -> None:
    """A single load of a search is no sentence, no missing repetition and no comparison."""
    loads = [tried(n, [0.0]) for n in (1, 2, 3, 4)] + [tried(n, [0.1]) for n in (5, 6)]
    run = outcome_search(tmp_path, loads)
    found = answer(read_story([run]))
    text = [s.text for s in found.sentences]
    assert text[0] == (
        "Suricata carries 4,000 packets/s, 9.6 Mbit/s (4X) without loss, not 5,000 packets/s (5X)."
    )
    assert text[2] == "Suricata, no loss: confidence low: its load was carried in 1 trial."
    assert text[1] == "Suricata: what broke at 5,000 packets/s (5X): 10.00% lost."
    assert found.sentences[1].knob == "sut.ring_size"
    assert {s.rule for s in found.sentences} == {
        "capacity",
        "capacity-broke",
        "capacity-confidence",
        "capacity-noise",
    }
    assert "too-few-for-an-interval" not in {s.rule for s in found.cannot_say}
    page = page_of(run)
    assert "Cells have unequal numbers of runs" not in page
    assert 'id="differences"' not in page


def test_cells_of_a_search_have_bars(tmp_path: Path) -> None:
    loads = [
        tried(value, trials, cell={"setup.kind": setup})
        for setup, most in (("bare", 8), ("docker", 6), ("vm", 3))
        for value, trials in ((most, [0.0]), (most + 1, [0.2]))
    ]
    section = capacity_section(read_story([outcome_search(tmp_path, loads)]))
    assert section is not None
    assert [view.name for view in section.views] == ["bare", "docker", "vm"]
    bars = str(section.bars)
    assert "packets/s (8X)" in bars and "packets/s (3X)" in bars
    assert [len(list(view.steps.rows)) for view in section.views] == [2, 2, 2]


@pytest.mark.parametrize(
    ("foreseen", "rounds", "words"),
    [
        # It suffices for bounds; for one round alone; it is too small for bounds.
        (
            (240.0, 21, 0.05), 2,
            "Of the budget of 240 s the search of Suricata was likely to get 21 trials, and "
            "bounds 5.00 % apart. It got 4 trials (2 + 2 in 2 "
            "rounds); bounds 20.00 % apart.",
        ),
        (
            (80.0, 5, 0.031), 1,
            "Of the budget of 80 s the search of Suricata was likely to get 5 trials, and bounds "
            "3.10 % apart. It got 2 trials; bounds 20.00 % apart.",
        ),
        (
            (9.0, 1, None), 0,
            "Of the budget of 9 s the search of Suricata was likely to get 1 trial, too few for "
            "close bounds. It got 1 trial; no upper bound is known.",
        ),
    ],
)  # fmt: skip
def test_what_a_budget_was_likely_to_buy_is_kept_beside_what_it_bought(
    foreseen: tuple[float, int, float | None],
    rounds: int,
    words: str,
    tmp_path: Path,
) -> None:
    keys = ("budget_s", "trials", "relative_width")
    kept = dict(zip(keys, foreseen, strict=True))
    loads = [tried(4, [0.0] * max(1, rounds)), *([tried(5, [0.1] * rounds)] if rounds else [])]
    search = {"budget_s": foreseen[0]}
    run = outcome_search(tmp_path, loads, search=search, manifest={"forecast": kept})
    assert words in page_of(run)
    found = told(run)
    Draft202012Validator(schemas()["capacity"]).validate(found)
    assert found["forecast"] == kept
    assert found["round_trials"] == [2] * rounds if rounds else [1]
    assert found["goals"][0]["reached_width"] == (0.2 if rounds else None)


def test_a_trial_has_one_number_in_plot_table_and_run(tmp_path: Path) -> None:
    """Seen: a plot that left the ramp out of its count, so that its 1 was trial 2."""
    ramp = tried(64.0, [0.3])
    ramp.each[1]["searched"]["ramp"] = {"start": 1.0}
    run = outcome_search(tmp_path, [ramp, tried(4.0, [0.0]), tried(5.0, [0.02])])
    story = read_story([run])
    plot = str(way_of(search_of(run)))
    found = capacity_page(story)
    assert found is not None
    assert [row.number for row in found.rows] == [1, 2, 3]
    assert [int(row.trial.name[:4]) for row in found.rows] == [1, 2, 3]
    assert "trial 2, " in plot and "trial 3, " in plot and "trial 1, " not in plot


def test_a_round_without_a_trial_is_counted(tmp_path: Path) -> None:
    """Seen: `8 + 2 in 2 rounds` of rounds 1 and 3."""
    later = tried(5.0, [0.1])
    later.each[1]["searched"]["round"] = 3
    kept = {"budget_s": 9.0, "trials": 3, "relative_width": None}
    loads = [tried(4.0, [0.0]), tried(6.0, [0.2]), later]
    run = outcome_search(tmp_path, loads, search={"budget_s": 9.0}, manifest={"forecast": kept})
    assert told(run)["round_trials"] == [2, 0, 1]
    assert "(2 + 0 + 1 in 3 rounds)" in forecast_words(search_of(run))


@pytest.mark.parametrize(
    ("activation_s", "words"),
    [
        (24.3, " 3 starts of Suricata took 73 s of it."),
        (4.0, " 3 starts of Suricata took 12 s of it."),
        (3.0, ""),
        (None, ""),
    ],
)
def test_starts_that_took_much_of_the_budget_are_named(
    activation_s: float | None, words: str, tmp_path: Path
) -> None:
    kept = {"budget_s": 100.0, "trials": 5, "relative_width": None}
    loads = [tried(4, [0.0] * 3), tried(5, [0.1] * 3)]
    run = outcome_search(tmp_path, loads, search={"budget_s": 100.0}, manifest={"forecast": kept})
    trials = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for one in trials:
        one |= {"world": one["searched"]["round"], "activation_s": activation_s}
    (run / "trials.jsonl").write_text("".join(json.dumps(one) + "\n" for one in trials))
    (searched,) = searches(read_story([run]))
    assert forecast_words(searched).partition("20.00 % apart.")[2] == words


@pytest.mark.parametrize(
    ("above", "search", "words"),
    [
        ([(9, 0.3, 3.0), (8, 0.2, 3.0)], {"budget_s": 60.0}, "(4X) without loss, not 8,000 "
         "packets/s (8X)."),
        ([(7, 0.2, 3.0)], {}, "(4X) without loss, not 7,000 packets/s (7X)."),
        ([(8, 0.2, 5.0), (8, 0.0, 5.0)], {}, "has not ended; 8,000 packets/s (8X) was "
         "too much in a trial that does not"),
        ([(8, 0.0, 3.0)], {"budget_s": 60.0}, ": the budget ended the search."),
        ([(8, 0.2, 5.0)], {"budget_s": 60.0}, "(4X) without loss, not 8,000 packets/s (8X)."),
    ],
)  # fmt: skip
def test_a_short_trial_that_lost_is_not_passed_over(
    above: list[tuple[float, float, float]], search: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """In the picture it stands far above the answer."""
    loads = [tried(4, [0.0])]
    for value, loss, seconds in above:
        loads.append(tried(value, [loss]))
        loads[-1].each[1]["searched"]["duration_s"] = seconds
    run = outcome_search(tmp_path, loads, search=search)
    assert words in answer(read_story([run])).sentences[0].text


def test_a_search_that_decided_nothing_names_the_load_that_a_short_trial_carried(
    tmp_path: Path,
) -> None:
    loads = [tried(2, [0.0]), tried(4, [0.0]), tried(8, [0.1])]
    for load in loads:
        load.each[1]["searched"]["duration_s"] = 3.0
    run = outcome_search(tmp_path, loads, search={"budget_s": 60.0})
    said = answer(read_story([run])).sentences[0].text
    assert "is not known: the budget ended the search; 4,000 packets/s (4X) was carried in" in said


@pytest.mark.parametrize(("window_packets", "carried"), [(15_000, 4.0), (40_000, 1.0)])
def test_a_short_trial_of_the_whole_window_counts_until_a_load_is_proved(
    window_packets: int, carried: float, tmp_path: Path
) -> None:
    """1X was tried for 5 s, 4X for 3 s."""
    loads = [tried(1, [0.0]), tried(4, [0.0]), tried(8, [0.1])]
    loads[1].each[1]["searched"]["duration_s"] = 3.0
    loads = [windowed(load, packets=window_packets) for load in loads]
    run = outcome_search(tmp_path, loads, search={"budget_s": 60.0})
    (searched,) = searches(read_story([run]))
    lower = searched.answers[0].lower
    assert lower is not None and lower.value == carried


def test_a_load_that_fell_behind_and_lost_nothing_is_not_called_lossy(tmp_path: Path) -> None:
    behind = replace(tried(5, [0.0]), fields={"sustained": False})
    loads = [tried(4, [0.0]), behind]
    said = answer(read_story([outcome_search(tmp_path, loads)])).sentences[0].text
    assert said.startswith(
        "Suricata carries 4,000 packets/s, 9.6 Mbit/s (4X) without loss; at 5,000 packets/s (5X) "
        "it fell behind, and lost nothing yet"
    )


@pytest.mark.parametrize("kept", [None, "nonsense", {"budget_s": "much"}, {"budget_s": -1.0}])
def test_a_run_that_keeps_no_forecast_says_nothing_of_it(tmp_path: Path, kept: Any) -> None:
    run = outcome_search(
        tmp_path,
        [tried(4, [0.0]), tried(5, [0.1])],
        search={"budget_s": 60.0},
        manifest={"forecast": kept},
    )
    assert told(run)["forecast"] is None
    assert "was likely to get" not in page_of(run)


def test_a_manifest_that_makes_no_sense_is_no_search(tmp_path: Path) -> None:
    for number, wrong in enumerate(({"by": 7}, {"goals": []}, {"min": 5.0, "max": 1.0})):
        run = outcome_search(tmp_path / str(number), [tried(4, [0.0])], search=wrong)
        assert searches(read_story([run])) == ()
        assert write_report(read_story([run])).exists()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("soak", [False, True])
@pytest.mark.parametrize(
    ("loads", "ends"),
    [
        ([(4, [0.0] * 3), (5, [0.1] * 3)], ("4,000 packets/s carried without loss", "4,000 ")),
        ([(4, [0.0] * 3)], ("At least 4,000 packets/s carried without loss", "at least 4,000 ")),
        ([(3, [0.0, 0.0, 0.04]), (4, [0.0] * 3), (5, [0.1] * 3)], ("4,000 packets/s", "4,000 ")),
        ([(4, [0.2] * 3), (5, [0.3] * 3)], ("No load", "less than 4,000 packets/s, if any load")),
        ([(4, ["late"] * 3), (9, ["late"] * 3)], ("No load", "no load is shown to be carried")),
    ],
)
def test_a_terminal_of_24_rows_shows_the_number_first_and_last(
    tmp_path: Path, loads: list[Any], ends: tuple[str, str], soak: bool, columns: int
) -> None:
    """Seen: 56 rows, and the number gone."""
    tries = [tried(value, trials) for value, trials in loads]
    if soak:
        tries.append(long := replace(tried(4, [0.0]), duration_s=300.0))
        long.each[1]["searched"] |= {"duration_s": 300.0, "soak": {"lossy_from_s": None}}
    manifest = {"search": {"goals": [0.0, 0.005], "rounds": 3, "budget_s": 60.0}}
    rows = rows_of(outcome_search(tmp_path, tries, search=manifest["search"]), columns)
    assert len(rows) <= MOST_ROWS and max(len(words) for _, words in rows) <= columns - KEY - 2
    answer, last = ([words for key, words in rows if key == name] for name in ("answer", "carried"))
    assert answer[0].startswith(ends[0]) and last[0].startswith(ends[1]) and rows[-1][1] == last[0]
    assert [key for key, _ in rows[:2]] in (["", "answer"], ["answer", ""])
    assert {"breaks", "sure", "report"} <= {key for key, _ in rows}


def test_a_command_that_does_not_fit_is_not_cut() -> None:
    command = AnswerLine(
        key="", words=f"nodrop run {'x' * 90}.toml --set a=1", rows=1, command=True
    )
    assert fitted([command], 60) == []
    rows = fitted([AnswerLine(key="sure", words="one " * 200, rows=3)], 40)
    assert len(rows) == 3 and rows[-1][1].endswith(" …") and not rows[0][1].endswith("…")


@pytest.mark.parametrize(("columns", "kept"), [(200, 4), (45, 3), (30, 2)])
def test_whole_sentences_are_left_out_before_a_command_is(columns: int, kept: int) -> None:
    """Seen: `do` without its command, beside three rows that ended in `Measured 5,052 and …`."""
    said = [f"Sentence {n} of what is sure." for n in range(1, 5)]
    command = AnswerLine(key="", words="nodrop capacity my.pcap", rows=4, rank=1, command=True)
    rows = fitted([AnswerLine(key="sure", words=said, rows=3), command], columns, most=3)
    assert rows[-1][1].strip() == command.words
    sure = " ".join(words for line, words in rows if line.key == "sure")
    assert sure == " ".join(said[:kept])


@pytest.mark.parametrize("lost", [0.0, 0.04])
def test_what_contradicts_the_answer_is_a_caveat(tmp_path: Path, lost: float) -> None:
    loads = [tried(3, [0.0, 0.0, lost]), tried(4, [0.0] * 3), tried(5, [0.1] * 3)]
    run = outcome_search(tmp_path, loads, search={"goals": [0.0]})
    (words,) = [words for key, words in rows_of(run, 80) if key == "but"] or [""]
    assert ("caveat" in words) == bool(lost)
    doubts = [f for f in told(run)["goals"][0]["findings"] if f["code"] == "capacity-contradicted"]
    counted = {"missed": 1, "trials": 6}
    assert [d["because"][0]["values"].items() >= counted.items() for d in doubts] == [True] * bool(
        lost
    )


def test_a_load_that_was_tried_is_named_as_its_trials_are(tmp_path: Path) -> None:
    """Seen: "at 17,000 packets/s or less (the lowest of them at 14,000)", and no such trial."""
    loads = [tried(3.217, [0.0, 0.0, 0.04]), tried(4.054, [0.0] * 3), tried(5, [0.1] * 3)]
    said = " ".join(told(outcome_search(tmp_path, loads, search={"goals": [0.0]}))["sentences"])
    words = "1 of 6 trials at 4,054 packets/s (4.054X) or less missed the goal (the lowest of them "
    assert f"{words}at 3,217 packets/s (3.217X))" in said


@pytest.mark.parametrize(("high", "known"), [(9_000.0, True), (520_109.0, False)])
def test_a_fitted_median_that_excludes_no_load_is_not_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    high: float,
    known: bool,
) -> None:
    """Seen: "the median trial takes 19,030 packets/s [696, 520,109]"."""
    curve = LossCurve(
        capacity_pps=8_000.0, low_pps=696.0, high_pps=high, scatter=0.1, n=4, lossy=2, starts=2
    )
    monkeypatch.setattr("nodrop.capacity.words.loss_curve", lambda offers: curve)
    run = outcome_search(tmp_path, [tried(7, [0.0] * 2), tried(10, [0.1] * 2)])
    said = fitted_words(shown_fit(search_of(run)))
    assert (f"takes 8,000 packets/s [696, {high:,.0f}]" in said) is known
    why = "its 95 % interval, [696, 520,109] packets/s, excludes no load that was tried"
    assert (f"No loss curve is fitted: {why}" in said) is not known


def test_in_a_pipe_the_answer_is_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = outcome_search(tmp_path, [tried(4, [0.0] * 2), tried(5, [0.1] * 2)])
    printed(run)
    said = capsys.readouterr().out
    assert said.startswith("  answer    4,000 packets/s carried without loss\n")
    assert said.endswith("\n  carried   4,000 packets/s, fair confidence\n")
    assert "\n  too much  5,000 packets/s, 10.00 % lost in 2 of 2 trials\n" in said
    assert said.isascii()


@pytest.mark.parametrize(("begun", "warned"), [(0.97, False), (0.57, True), (0.0, True)])
def test_the_window_is_named_wherever_the_answer_is(
    tmp_path: Path, begun: float, warned: bool
) -> None:
    loads = [tried(4, [0.0], pps=3000.0), tried(5, [0.1], pps=3000.0)]
    run = outcome_search(tmp_path, [windowed(one, begun_packet_ratio=begun) for one in loads])
    words = "seconds 10.0 to 15.0 of the trace, at 1X 3,000 packets/s, 9.6 Mbit/s; 48.4 % of its"
    found = answer(read_story([run]))
    (window,) = (one for one in found.sentences if one.rule == "capacity-window")
    assert words in window.text
    assert "1,550 packets/s on average and 3,001 in its busiest second" in window.text
    beyond = [s.rule for s in found.cannot_say]
    assert "beyond-window" in beyond and ("few-flows-begin" in beyond) == warned
    shown = " ".join(words for _, words in rows_of(run, 80))
    assert "X of seconds 10.0 to 15.0 of the trace" in shown and ("1 caveat" in shown) == warned
    said = told(run)
    Draft202012Validator(schemas()["capacity"]).validate(said)
    assert said["window"]["span"] == "10..15" and said["window"]["begun_packet_ratio"] == begun
    write_report(read_story([run]))
    assert words in (run / "report" / "report.md").read_text()
    (view,) = card_views(read_story([run]))
    assert ("Valid for", "seconds 10.0 to 15.0", "on this host, in this setup") in view.facts


@pytest.mark.parametrize(
    ("loss", "more", "since_s", "words"),
    [
        (0.0, {}, None, "held for 5 min at 12,000 packets/s"),
        (0.0, {"sustained": False}, None, "packets/s, 28.8 Mbit/s, but was behind at the end"),
        (0.02, {}, 130.0, "lost 2.00 % from minute 3 on of 5 min at 12,000 packets/s"),
        (0.5, {}, 7.4, "lost 50.00 % from second 8 on of 5 min"),
        ("late", {}, None, "the soak of 5 min is void"),
    ],
)
def test_a_soak_is_said_and_decides_nothing(
    tmp_path: Path, loss: float | str, more: dict[str, Any], since_s: float | None, words: str
) -> None:
    plain = [tried(4, [0.0], pps=3000.0), tried(5, [0.1], pps=3000.0)]
    soak = replace(tried(4, [loss], pps=3000.0), duration_s=300.0)
    soak.each[1]["searched"] |= {"duration_s": 300.0, "soak": {"lossy_from_s": since_s}}
    soak = replace(soak, fields={**soak.fields, **more})
    found = told(outcome_search(tmp_path / "soak", [*plain, soak]))
    same = told(outcome_search(tmp_path / "plain", plain))
    assert found["goals"] == same["goals"] and found["goals"][0]["trials"] == 2
    assert words in found["soak"]["words"] and same["soak"] is None
    held = None if loss == "late" else (not loss and not more)
    assert (found["soak"]["held"], found["soak"]["lossy_from_s"]) == (held, since_s)
    Draft202012Validator(schemas()["capacity"]).validate(found)
    assert any(words in sentence for sentence in found["sentences"])
