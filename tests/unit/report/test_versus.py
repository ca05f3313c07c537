"""`nodrop compare`: its verdicts, what it refuses, its exit codes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from nodrop.compare.commands import print_rows
from nodrop.compare.page import versus_page
from nodrop.compare.records import Repeats, Side, SideCell
from nodrop.compare.sides import metrics_known, read_side
from nodrop.compare.versus import shown, to_junit, to_markdown, unusual, versus
from nodrop.config.experiment import Measure
from nodrop.errors import BadInput
from nodrop.report.escape import markdown, markdown_code
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried
from tests.made.rundirs import DEMO, again

METRIC_NAMES = {figure.name for figure in metrics_known()}
TWO = replace(DEMO, cells=({"load.multiplier": 1},), repetitions=2, samples=False)


def side(name: str, figures: dict[str, list[float]], **facts: str) -> Side:
    repeats = {k: Repeats(values=v, starts=list(range(len(v)))) for k, v in figures.items()}
    cell = SideCell(factors={}, label="all trials", figures=repeats, failed=0, void=0)
    return Side(name=name, identity=name, facts={k: [v] for k, v in facts.items()}, cells=[cell])


@pytest.mark.parametrize(
    ("a", "b", "words", "verdict", "code"),
    [
        ([1.0, 1.01] * 12, [2.0, 2.01] * 12, "different by [+0.99, +1.01] s", "worse", 5),
        ([2.0, 2.01] * 12, [1.0, 1.01] * 12, "different by [−1.01, −0.99] s", "no worse", 0),
        ([1.0, 1.01] * 20, [1.01, 1.0] * 20, "same within 5 %", "no worse", 0),
        ([1.0, 2.0] * 12, [1.1, 2.2] * 12, "cannot tell yet", "cannot tell", 6),
        ([1.0] * 3, [9.0] * 3, "cannot tell yet (at least 5 more runs)", "cannot tell", 6),
    ],
)
def test_three_verdicts(
    a: list[float], b: list[float], words: str, verdict: str, code: int
) -> None:
    found = versus(side("a", {"activation_s": a}), side("b", {"activation_s": b}))
    assert found.rows[0].words.startswith(words)
    assert (found.verdict, found.exit_code) == (verdict, code)


@pytest.mark.parametrize(
    ("failed", "n", "verdict"), [(9, 24, "worse"), (7, 20, "worse"), (2, 24, "cannot tell")]
)
def test_failures_have_a_verdict_of_their_own(failed: int, n: int, verdict: str) -> None:
    """Seen: 9 of 24 trials died against 0 of 24 (p 0.0016), and it could not tell beside twelve
    metrics."""
    others = {name: [1.0, 1.001] * (n // 2) for name in ("activation_s", "memory_mb", "cpu_s")}
    known = {name: values for name, values in others.items() if name in METRIC_NAMES}
    a = side("a", {**known, "failed_pct": [0.0] * n})
    b = side("b", {**known, "failed_pct": [100.0] * failed + [0.0] * (n - failed)})
    (row,) = [one for one in versus(a, b).rows if one.metric == "failed_pct"]
    assert row.answer == ("different" if verdict == "worse" else "cannot tell")
    assert versus(a, b).verdict == verdict


@pytest.mark.parametrize(("crowded", "decides"), [(12, True), (13, False), (24, False)])
def test_what_other_programs_disturbed_has_no_verdict(crowded: int, decides: bool) -> None:
    """Seen: "worse" and exit code 5, where the report of the same data said "cannot tell"."""
    a = side("a", {"activation_s": [1.0, 1.01] * 12})
    b = side("b", {"activation_s": [2.0, 2.01] * 12})
    cells = [b.cells[0].model_copy(update={"crowded": crowded, "watched": 24})]
    found = versus(a, b.model_copy(update={"cells": cells}))
    assert (found.verdict, found.exit_code) == (("worse", 5) if decides else ("cannot tell", 6))
    if not decides:
        assert f"25 % of the SUT's CPUs in {crowded} of 24 trials" in found.rows[0].words
        assert "quiet host" in " ".join(found.card.to_do)


@pytest.mark.parametrize(
    ("a", "b", "width", "line"),
    [
        ([1.0, 1.01] * 12, [1.3, 1.31] * 12, 60, "1.00 s  1.31 s  ≠ worse"),
        ([1.3, 1.31] * 12, [1.0, 1.01] * 12, 80, "1.31 s  1.00 s  −0.30 [−0.31, −0.29]  ≠ better"),
        ([1.0, 1.01] * 12, [1.1, 1.11] * 12, 110,
         "1.00 s  1.10 s  +0.10 [+0.09, +0.11]          :::::::::  -v-     ≠ worse"),
        ([1.0] * 3, [1.04] * 3, 110,
         "1.00 s  1.04 s  +0.04          :::::::?:          ? 5 more runs"),
        ([1.0, 1.01] * 20, [1.0, 1.01] * 20, 70, "1.00 s  1.00 s  0 [−0.01, +0.01]  = same"),
        ([1.0, 2.0] * 12, [1.1, 2.2] * 12, 60, "1.50 s  1.65 s  ? too spread"),
    ],
)  # fmt: skip
def test_a_terminal_has_a_line_for_each_metric(
    a: list[float], b: list[float], width: int, line: str
) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    print_rows(versus(side("a", {"activation_s": a}), side("b", {"activation_s": b})), console)
    _, cell, row = out.getvalue().splitlines()
    assert cell == f"  all trials  {len(a)} and {len(b)} runs"
    assert row.rstrip() == f"    Activation  {line}"


@pytest.mark.parametrize(
    ("figures", "headline", "tally"),
    [
        ({"activation_s": 2.0, "memory_mib": 0.7}, "B gets ready 100 % later.", "2 ≠ different"),
        ({"memory_mib": 0.7, "loss_pct": 1.0}, "B uses 30 % less memory.",
         "1 ≠ different, 1 = same"),
        ({"capacity_pps_at_0": 0.5, "memory_mib": 0.1}, "B carries 50 % less.", "2 ≠ different"),
        ({"cpu_us_per_packet": 1.09}, "B uses 9.0 % more CPU per packet.", "1 ≠ different"),
        ({"memory_mib": 1.0}, "B is the same as A.", "1 = same"),
    ],
)  # fmt: skip
def test_the_card_names_the_largest_sure_difference(
    figures: dict[str, float], headline: str, tally: str
) -> None:
    """A figure that got worse comes before one that got better."""
    runs = [100.0, 100.1] * 20
    a = side("a", dict.fromkeys(figures, runs))
    b = side("b", {name: [value * times for value in runs] for name, times in figures.items()})
    card = versus(a, b).card
    assert (card.headline, card.tally) == (headline, tally)
    assert len(headline.split()) <= 8 and len(headline) <= 60


@pytest.mark.parametrize(
    ("loss", "memory", "cpu", "beside"),
    [
        (0.5, 1.7, 1.0, "MiB. But B loses 0.51 points less."),
        (2.0, 1.0, 0.5, "points."),
        (0.5, 1.0, 1.0, "points."),
    ],
)
def test_a_card_does_not_hide_what_is_better_behind_what_is_worse(
    loss: float, memory: float, cpu: float, beside: str
) -> None:
    """Seen: of a larger ring, that it uses 72 % more memory, and not that its loss is gone."""
    runs = [1.0, 1.001] * 20
    times = {"loss_pct": loss, "memory_mib": memory, "cpu_us_per_packet": cpu}
    a = side("a", dict.fromkeys(times, runs))
    b = side("b", {name: [value * by for value in runs] for name, by in times.items()})
    assert versus(a, b).card.where.endswith(beside)


@pytest.mark.parametrize(
    ("behind", "more", "to_do"),
    [
        (0, (), []),
        (30, (), ["Offer each load for longer: rings held what was not served."]),
        (0, ("2X",), ["Measure the cells that one side lacks."]),
    ],
)
def test_a_card_says_what_would_tell_more(
    behind: int, more: tuple[str, ...], to_do: list[str]
) -> None:
    a, b = (side(name, {"loss_pct": [0.0] * 40}) for name in "ab")
    cell = b.cells[0].model_copy(update={"behind": behind})
    others = [cell.model_copy(update={"factors": {"load.multiplier": x}, "label": x}) for x in more]
    card = versus(a, b.model_copy(update={"cells": [cell, *others]})).card
    assert card.to_do == to_do
    assert card.headline == ("B is the same as A." if not to_do else "Cannot tell yet.")


@pytest.mark.parametrize(
    ("lossy", "headline"), [((0, 30), "B loses more often."), ((32, 1), "B loses less often.")]
)
def test_a_card_of_shares(lossy: tuple[int, int], headline: str) -> None:
    a, b = ([0.001] * n + [0.0] * (70 - n) for n in lossy)
    assert versus(side("a", {"loss_pct": a}), side("b", {"loss_pct": b})).card.headline == headline


@pytest.mark.parametrize(
    ("times", "mark", "words"),
    [(1.0, "m-box", ""), (1.2, "m-down", ""), (0.8, "m-up", ""), (3.0, "", "+40 margins ▸")],
)
def test_a_page_draws_a_difference_in_margins(times: float, mark: str, words: str) -> None:
    runs = [10.0, 10.01] * 20
    b = side("<b>", {"memory_mib": [value * times for value in runs]})
    found = versus(side("a", {"memory_mib": runs}), b)
    page = versus_page(found)
    (drawn,) = re.findall(r'<td class="plotcell">(.*?)</td>', page)
    assert set(re.findall("#(m-[a-z]+)", drawn)) - {"m-tick"} == ({mark} if mark else set())
    assert words in drawn and 'class="band z-same"' in drawn
    assert ("<small>but for at most 9 % of the runs</small>" in page) is (times == 1.0)
    assert page.index("What to do") < page.index("</table>") < page.index("Reading a verdict")
    assert page == versus_page(found) and found.card.headline in page
    assert "&lt;b&gt;" in page and "<b>&" not in page
    assert re.search(r"default-src 'none'; style-src 'sha256-[^']+'; script-src 'sha256-", page)
    body = page[page.index("<body>") :]
    assert " style=" not in body and not re.search(r" on[a-z]+=", body.partition("<script>")[0])


@pytest.mark.parametrize(
    ("figures", "said"), [(1, "1 metric is compared;"), (2, "2 metrics are"), (3, "3 metrics are")]
)
def test_how_many_are_compared(figures: int, said: str) -> None:
    names = ("activation_s", "memory_mib", "loss_pct")[:figures]
    a, b = (side(n, {name: [1.0, 1.1] * 9 for name in names}) for n in "ab")
    assert versus(a, b).notes[-1].startswith(said)


@pytest.mark.parametrize("value", [8.4, 0.65, 19.05, 540.0])
def test_a_number_in_markdown_is_that_number(value: float) -> None:
    a, b = (side(n, {"activation_s": [value, value * 1.01] * 9}) for n in "ab")
    written = to_markdown(versus(a, b))
    assert "&#" not in written


@pytest.mark.parametrize("asked", [["nope"], ["los_pct"], ["activation_s", "memory_mib"], [""]])
def test_a_metric_that_neither_side_has_is_refused(asked: list[str]) -> None:
    """It compared nothing, and said "no worse" with exit code 0."""
    a, b = (side(n, {"activation_s": [1.0] * 40, "failed_pct": [0.0] * 40}) for n in "ab")
    with pytest.raises(BadInput, match=f"--metric {asked[-1]}: none of the runs has it"):
        versus(a, b, metrics=asked)


@pytest.mark.parametrize("marker", ["1.", "12. x", "- x", "+", "# x", "===", "---", "3)"])
def test_a_marker_of_a_block_is_text_in_markdown(marker: str) -> None:
    assert "&#8203;" in markdown(marker)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("run --set 'sut.rules=[\"a_b*\"]'", "`run --set 'sut.rules=[\"a_b*\"]'`"),
        ("run | jq .a", r"`run \| jq .a`"),
        ("echo `date`", "`` echo `date` ``"),
    ],
)
def test_a_command_in_markdown_is_code_as_it_is_typed(command: str, code: str) -> None:
    assert markdown_code(command) == code


@pytest.mark.parametrize(("a", "b", "worse"), [(3.0, 2.0, True), (2.0, 3.0, False)])
def test_less_capacity_is_worse(a: float, b: float, worse: bool) -> None:
    name = "capacity_multiplier_at_0"
    found = versus(side("a", {name: [a, a + 0.01] * 8}), side("b", {name: [b, b + 0.01] * 8}))
    assert found.rows[0].worse is worse


@pytest.mark.parametrize(
    ("by", "median", "difference"),
    [
        ("multiplier", "3.005 X", "[+2.990, +3.010] X"),
        ("speed", "3.005 × speed", "[+2.990, +3.010] × speed"),
        ("pps", "3 packets/s", "[+3, +3] packets/s"),
    ],
)
def test_a_capacity_has_the_unit_of_its_scale(by: str, median: str, difference: str) -> None:
    name = f"capacity_{by}_at_0.005"
    found = versus(side("a", {name: [3.0, 3.01] * 8}), side("b", {name: [6.0, 6.01] * 8}))
    (row,) = found.rows
    assert shown(row, row.a_median) == median
    assert row.words == f"different by {difference}"


@pytest.mark.parametrize(
    ("below", "rounds"), [(4.9, 2), (1.0, 0), (2.5, 0), (4.0, 0)], ids=lambda x: str(x)
)
def test_a_round_whose_bounds_are_far_apart_is_no_capacity(
    tmp_path: Path, below: float, rounds: int
) -> None:
    """A search that was interrupted counted with the load at which it stood."""
    run = outcome_search(
        tmp_path / "run", [tried(below, [0.0, 0.0]), tried(5, [0.3, 0.3])], search={"goals": [0]}
    )
    (cell,) = read_side(str(run)).cells
    found = cell.figures.get("capacity_multiplier_at_0")
    assert (0 if found is None else len(found.values)) == rounds


@pytest.mark.parametrize("both", [False, True])
def test_a_goal_of_both_searches_without_a_figure_is_listed(tmp_path: Path, both: bool) -> None:
    """Seen: the goal that both have was left out, and the advice was to narrow a spread."""
    loads = [tried(1, [0.0] * 3), tried(4.9, [0.01] * 3), tried(5, [0.3] * 3)]
    goals = {"a": [0.0, 0.02] if both else [0.0], "b": [0.0, 0.02]}
    a, b = (
        read_side(
            str(outcome_search(tmp_path / name, loads, search={"goals": goals[name]},
                               manifest={"name": name}))
        )
        for name in "ab"
    )  # fmt: skip
    found = versus(a, b)
    assert {row.metric for row in found.rows} == {"capacity_multiplier_at_0.02"}
    why = "has no figure for a goal of 0: carries 1, not 4.9 (multiplier), close bounds in 0 of"
    why += " 3 rounds"
    assert [one[:1] for one in found.missing if why in one] == ["A", "B"]
    to_do = "Measure on both sides: Capacity (multiplier, loss ratio at most 0.02)."
    assert "Search for longer: a goal has no figure (Notes)." in found.card.to_do
    assert (to_do in found.card.to_do) is not both
    assert both or "Narrow" not in " ".join(found.card.to_do)
    assert found.verdict == "cannot tell" and found.card.headline == "Cannot tell yet."


@pytest.mark.parametrize(
    ("key", "value"),
    [("final_trial_s", 4.5), ("exceed_ratio", 0.1), ("method", "bisection"), ("rounds", 4)],
)
def test_searches_that_searched_otherwise_are_not_compared(
    tmp_path: Path, key: str, value: Any
) -> None:
    """A short trial fits into a ring that a long one fills: half the length is another capacity."""
    same = {"goals": [0.0], "min": 1.0, "max": 9.0, "rounds": 3}
    loads = [tried(4.9, [0.0] * 3), tried(5, [0.3] * 3)]
    runs = (
        outcome_search(tmp_path / name, loads, search=search, manifest={"name": name})
        for name, search in (("a", same), ("b", {**same, key: value}))
    )
    a, b = (read_side(str(run)) for run in runs)
    if key == "rounds":
        assert versus(a, b).rows[0].metric == "capacity_multiplier_at_0"
        return
    with pytest.raises(BadInput, match=f"search.{key}: .* and {value}.*--differs search.{key}"):
        versus(a, b)
    assert versus(a, b, differs=["search"]).rows


@pytest.mark.parametrize("failures", [12, 16, 24])
def test_a_sut_that_dies_is_worse_though_its_other_trials_lose_nothing(failures: int) -> None:
    bad = [100.0] * failures + [0.0] * (24 - failures)
    figures = {"loss_pct": [0.0] * 24}
    a = side("a", figures | {"failed_pct": [0.0] * 24})
    b = side("b", figures | {"failed_pct": bad})
    assert versus(a, b).verdict == "worse" and versus(b, a).verdict == "no worse"


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (0, 12, "different: 12 of 24 trials fail, in the base 0 of 24"),
        (24, 5, "different: 5 of 24 trials fail, in the base 24 of 24"),
        (2, 1, "cannot tell yet: 1 of 24 trials fail, in the base 2 of 24"),
    ],
)
def test_failures_have_words_and_a_share_of_their_own(a: int, b: int, words: str) -> None:
    """Seen: "12 of 24 runs lose" of trials in which the SUT died, and a median of 0 %."""
    one, other = (
        side(name, {"failed_pct": [100.0] * n + [0.0] * (24 - n)})
        for name, n in (("a", a), ("b", b))
    )
    (row,) = versus(one, other).rows
    assert row.words.startswith(words) and "lose" not in row.words and "within" not in row.words
    assert (row.a_median, row.b_median) == pytest.approx((a / 0.24, b / 0.24))
    assert row.difference == pytest.approx((b - a) / 0.24) and row.interval is None


def cells(name: str, loads: Sequence[int], figures: dict[str, list[float]]) -> Side:
    made = side(name, figures).cells[0]
    told = [made.model_copy(update={"factors": {"load.multiplier": n}, "label": f"{n}X"})
            for n in loads]  # fmt: skip
    return side(name, {}).model_copy(update={"cells": told})


@pytest.mark.parametrize(
    ("of_a", "of_b", "alone"),
    [([1, 4, 8], [1, 4], "8X is in a alone"), ([2], [2, 3], "3X is in b alone"),
     ([5, 6], [6, 7], "5X is in a alone")],
)  # fmt: skip
def test_a_cell_of_one_side_alone_forbids_no_worse(
    of_a: list[int], of_b: list[int], alone: str
) -> None:
    """Seen: a run without the heaviest load of the other was "no worse", exit code 0."""
    figures = {"memory_mib": [9.0] * 40}
    found = versus(cells("a", of_a, figures), cells("b", of_b, figures))
    assert {row.answer for row in found.rows} == {"same"}
    assert (found.verdict, found.exit_code) == ("cannot tell", 6)
    assert found.missing[0].startswith(alone)
    skipped = ElementTree.fromstring(to_junit(found)).findall("testcase/skipped")
    assert [case.get("message") for case in skipped] == found.missing
    worse = versus(cells("a", of_a, figures), cells("b", of_b, {"memory_mib": [19.0] * 40}))
    assert (worse.verdict, worse.exit_code) == ("worse", 5)


@pytest.mark.parametrize("metrics", [[], ["activation_s"]])
def test_a_cell_without_a_figure_on_either_side_forbids_no_worse(metrics: list[str]) -> None:
    """All of its trials void, or of a search: no limit was found."""
    known, empty = {"activation_s": [1.0] * 40}, {"failed_pct": [0.0] * 40} if metrics else {}
    a, b = (
        cells(n, [1], known).model_copy(
            update={"cells": [*cells(n, [1], known).cells, *cells(n, [8], empty).cells]}
        )
        for n in "ab"
    )
    found = versus(a, b, metrics=metrics)
    assert found.exit_code == 6 and found.missing[0].startswith("8X has no such figure")


@pytest.mark.parametrize(
    ("key", "value"),
    [("profile", True), ("hardware", True), ("sample_interval_ms", 20), ("sample_interval_ms", 900),
     ("steal_max_ratio", 1.0), ("late_p99_us", 900.0), ("sut", "standing"), ("reset", "reboot"),
     ("of_a_newer_nodrop", 7)],
)  # fmt: skip
def test_runs_that_were_measured_otherwise_are_refused(
    key: str, value: Any, tmp_path: Path
) -> None:
    """Seen: 7 % of a profiler, and of a sampler ten times as often, compared as the SUT's."""
    how = json.loads(Measure().model_dump_json())
    a, b, old = (
        again(tmp_path, "a", TWO, measure=how),
        again(tmp_path, "b", TWO, measure={**how, key: value}),
        again(tmp_path, "old", TWO),
    )
    sides = [read_side(str(path)) for path in (a, b, old)]
    for one in (sides[0], sides[2]):  # what an older run did not record was as the default is
        with pytest.raises(BadInput, match=rf"measure\.{key}: .* and {value}.*--differs measure"):
            versus(one, sides[1])
        assert versus(one, sides[1], differs=["measure"]).rows
    assert not versus(sides[0], sides[2]).differs


@pytest.mark.parametrize(("key", "value"), [("seed", 9), ("repetitions", 40), ("mode", "until")])
def test_order_and_number_of_trials_may_differ(key: str, value: Any, tmp_path: Path) -> None:
    how = json.loads(Measure().model_dump_json())
    a, b = (
        again(tmp_path, "a", TWO, measure=how),
        again(tmp_path, "b", TWO, measure={**how, key: value}),
    )
    assert versus(read_side(str(a)), read_side(str(b))).rows


@pytest.mark.parametrize("chosen", [5_000, 9_000])
def test_what_weakens_a_cell_that_is_left_out_is_not_said(chosen: int, tmp_path: Path) -> None:
    loads = [Load(cell={"load.pps": pps}, pps=pps, trials=[0.0] * 2) for pps in (5_000, 9_000)]
    run = outcome_run(tmp_path, loads)
    lines = (run / "trials.jsonl").read_text().splitlines()
    busy = [json.dumps({**json.loads(line), "steal_ratio": 0.3}) for line in lines]
    (run / "trials.jsonl").write_text("\n".join(busy) + "\n")
    weak = "others had much of the host in 2 of 2 trials"
    assert [one.endswith(weak) for one in read_side(str(run)).weak] == [False, True, True]
    _, only = read_side(f"{run}::load.pps={chosen}").weak
    assert only == f"{chosen // 1000},000 pps: {weak}"


@pytest.mark.parametrize("busy", [1, 2])
def test_sides_that_are_believed_less_say_why(busy: int, tmp_path: Path) -> None:
    a, b = again(tmp_path, "a", TWO), again(tmp_path, "b", TWO)
    trials = [json.loads(line) for line in (a / "trials.jsonl").read_text().splitlines()]
    for trial in trials[:busy]:
        trial["steal_ratio"] = 0.3
    (a / "trials.jsonl").write_text("".join(json.dumps(trial) + "\n" for trial in trials))
    begun = json.loads((b / "manifest.json").read_text())
    begun.pop("finished_utc")
    (b / "manifest.json").write_text(json.dumps(begun))
    said = versus(read_side(str(a)), read_side(str(b))).notes
    of_a, of_b = ([words for words in said if words.startswith(f"{name}: ")] for name in "AB")
    assert of_a == [f"A: others had much of the host in {busy} of 2 trials"]
    assert of_b == ["B: the run is unfinished, and has 2 trials"]


def test_one_metric_that_only_one_side_has_is_not_same() -> None:
    a = side("a", {"activation_s": [1.0] * 40, "memory_mib": [9.0] * 40})
    assert versus(a, side("b", {"activation_s": [1.0] * 40})).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("sut.version", "sut.version"), ("sut.bits", "sut.version"), ("host.kernel", "host"),
     ("load.trace_sha256", "load.trace_sha256"), ("sut.rules", "sut.rules"),
     ("node.sha256", "node")],
)  # fmt: skip
def test_other_facts_are_refused_unless_they_are_the_point(key: str, allowed: str) -> None:
    a, b = (side(n, {"loss_pct": [0.0] * 40}, **{key: n, "lab.mtu": "9000"}) for n in "ab")
    with pytest.raises(BadInput, match=rf"{key}: a and b.*--differs {key}"):
        versus(a, b)
    assert versus(a, b, differs=[allowed]).differs == [f"{key}: a and b"]
    with pytest.raises(BadInput, match=key):
        versus(a, b, differs=["lab"])


def test_outliers_are_named_and_stay_in_every_figure() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 50.0]
    assert unusual(values) == [50.0]
    assert unusual([1.0] * 9 + [2.0]) == [] and unusual([1.0, 90.0]) == []
    found = versus(side("a", {"memory_mib": values}), side("b", {"memory_mib": values}))
    assert found.rows[0].unusual_a == [50.0] and found.rows[0].a_n == 7


@pytest.mark.parametrize("n", [1, 8, 9, 40])
def test_of_many_facts_that_differ_some_are_named(n: int) -> None:
    keys = [f"{'host' if i % 2 else 'lab'}.fact{i:02}" for i in range(n)]
    a, b = (side(name, {"memory_mib": [1.0]}, **dict.fromkeys(keys, name)) for name in "ab")
    with pytest.raises(BadInput) as refused:
        versus(a, b)
    named = sum(key in refused.value.message for key in keys)
    assert named == min(n, 8)
    assert (f"and {n - 8} more" in refused.value.message) == (n > 8)
    allowed = str(refused.value.hint).split(": ")[1].split()[1::2]
    assert versus(a, b, differs=allowed).rows, "the hint allows all of them"


@pytest.mark.parametrize(
    ("behind", "trials", "verdict"),
    [(20, 20, "cannot tell"), (11, 20, "cannot tell"), (10, 20, "no worse"), (0, 20, "no worse")],
)
@pytest.mark.parametrize("slow", ["a", "b"])
def test_no_loss_of_a_sut_that_fell_behind_is_no_better(
    behind: int, trials: int, verdict: str, slow: str
) -> None:
    """Seen: a sink of 4,000/s at 4,430/s "the same" as one of 5,000/s: its ring held the rest."""
    sides = {name: side(name, {"loss_pct": [0.0] * trials}) for name in "ab"}
    (cell,) = sides[slow].cells
    told = cell.model_copy(update={"behind": behind})
    sides[slow] = sides[slow].model_copy(update={"cells": [told]})
    found = versus(sides["a"], sides["b"])
    assert found.verdict == verdict
    said = [words for words in found.missing if "did not keep the pace" in words]
    assert len(said) == (verdict == "cannot tell")
    assert all(f"{slow.upper()} did not keep" in words for words in said)
