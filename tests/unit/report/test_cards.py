"""The answer card: its figures, what breaks, what to do, and the lengths of its words."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from markupsafe import Markup

from nodrop import report
from nodrop.answer.finding import WORDS as TABLES
from nodrop.answer.finding import Finding, render
from nodrop.capacity import answer_cards as wording
from nodrop.capacity.answer_cards import cards
from nodrop.capacity.card import card_lines, loads_lines, peak_words
from nodrop.capacity.findings import findings
from nodrop.capacity.json_answer import capacity_answer
from nodrop.capacity.page import WORDS, capacity_page, who
from nodrop.capacity.predictions import beside_measured
from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.searched_cells import searches
from nodrop.capacity.words import causes_words
from nodrop.config.search import Search
from nodrop.ledger.imbalance import SutThread
from nodrop.report.chart import Plot, Scale
from nodrop.report.numbers import short
from nodrop.report.sections import environment
from nodrop.report.story import read_story
from nodrop.report.write import page, report_json, write_report
from nodrop.results.capacity import Card, Confidence
from nodrop.stats.interval import Knee
from nodrop.watch.serve import page as watch_page
from tests.made.outcome_runs import Load, outcome_search, tried
from tests.pages import page_of
from tests.simulated_sut import SimulatedSut, searched
from tools.schemas import schemas

STOP = ("really sent", "that was", "which is", "of it ", "at once", "in vain", "as well", "!")
SYNONYMS = ("absorbed", "met it", "may ", "might", "possibly")
TEMPLATES = Path(report.__file__).parent / "templates"


def card_of(run: Path) -> Card:
    (card,) = cards(read_story([run]))
    return card


def with_threads(load: Load, *threads: dict[str, object], cpus: str = "1") -> Load:
    named = [{"role": "worker", **thread} for thread in threads]
    return replace(load, fields={**load.fields, "threads": named, "sut_cpus": cpus})


@pytest.mark.parametrize("capacity", [8.0, 61.25, 0.5])
def test_a_card_has_both_loads_and_what_the_higher_one_lost(
    tmp_path: Path, capacity: float
) -> None:
    over = capacity * 1.02
    loads = [tried(capacity / 2, [0.0] * 3), tried(capacity, [0.0] * 3)]
    loads.append(tried(over, [0.02, 0.01, 0.03]))
    card = card_of(outcome_search(tmp_path, loads))
    assert card.carried is not None and card.too_much is not None
    assert card.carried.pps == pytest.approx(capacity * 1000)
    assert card.too_much.value == pytest.approx(over)
    assert card.carried.shown_pps != card.too_much.shown_pps
    assert card.lost is not None and card.lost[1] <= 0.03 and card.lossy == card.lossy_of
    assert card.breaks.limited_by == "sut" and card.breaks.place == "socket ring"
    assert card.breaks.verdict == "The socket ring overflows."
    assert card.tolerated == "Tolerating 0.50 % loss changes nothing."
    assert card.sure.words[0] == "3 of 3 trials carried it."


def test_without_an_upper_bound_more_may_be_carried(tmp_path: Path) -> None:
    """Seen: "changes nothing" of a search that had decided one load."""
    card = card_of(outcome_search(tmp_path, [tried(7, [0.0] * 3)]))
    assert card.too_much is None
    assert card.tolerated == "Tolerating 0.50 % loss is not shown to carry more."


@pytest.mark.parametrize(("least", "over"), [(7.793, 11.272), (4.121, 5.668)])
def test_one_load_is_rounded_two_ways_with_digits_enough(
    tmp_path: Path, least: float, over: float
) -> None:
    """Seen: "12,000 packets/s is too much, 0.49 % lost" above "tolerating 0.50 %: 11,000"."""
    loads = [tried(least, [0.0] * 3), tried(over, [0.0049] * 3), tried(over * 1.4, [0.2] * 3)]
    card = card_of(outcome_search(tmp_path, loads))
    assert card.too_much is not None and card.too_much.shown_pps.endswith("00")
    assert card.tolerated.startswith("Tolerating 0.50 % loss: ")
    shown = card.tolerated.partition(": ")[2].removesuffix(" packets/s.")
    assert over * 999 <= float(shown.replace(",", "")) <= over * 1000


@pytest.mark.parametrize(("begun", "asked"), [(2, 3), (1, 6)])
def test_rounds_are_counted_alike_in_words_and_facts(
    tmp_path: Path, begun: int, asked: int
) -> None:
    """Seen: "1 of 3 complete" below "1 of 2 rounds cut short"."""
    loads = [tried(4, [0.0] * begun), tried(9, [0.2] * begun)]
    card = card_of(outcome_search(tmp_path, loads, search={"rounds": asked, "budget_s": 60.0}))
    assert card.sure.cut == begun
    assert f"0 of {asked} rounds complete." in card.sure.words


@pytest.mark.parametrize("least", [4, 2])
def test_goals_that_differ_are_said_with_their_own_load(tmp_path: Path, least: int) -> None:
    loads = [tried(least, [0.0] * 3), tried(least + 1, [0.004] * 3), tried(least + 2, [0.2] * 3)]
    card = card_of(outcome_search(tmp_path, loads))
    assert card.tolerated == f"Tolerating 0.50 % loss: {least + 1},000 packets/s."


@pytest.mark.parametrize("least", [2.873, 10.77])
def test_a_goal_that_tolerates_more_never_looks_like_less(tmp_path: Path, least: float) -> None:
    """Seen: 10,700 packets/s carried without loss, "Tolerating 0.50 % loss: 10,000 packets/s": of
    wider bounds fewer digits are known."""
    story = read_story(
        [outcome_search(tmp_path, [tried(least, [0.0] * 3), tried(least * 1.1, [0.2] * 3)])]
    )
    strict = searches(story)[0].answers[0]
    assert strict.lower and strict.lower.pps and strict.upper and strict.confidence
    wide = replace(strict.upper, value=least * 1.6, pps=1600 * least)
    unsure = replace(strict.confidence, level="low", known_ratio=0.1)
    wider = replace(strict, goal=0.005, upper=wide, confidence=unsure)
    assert wording._tolerated([strict, wider]) == (
        "Tolerating 0.50 % loss is not shown to carry more."
    )
    more = replace(strict.lower, value=least * 1.01, pps=strict.lower.pps * 1.01)
    said = wording._tolerated([strict, replace(wider, lower=more)])
    (rate,) = re.findall(r"([\d,]+) packets/s", said)
    assert float(rate.replace(",", "")) > strict.lower.pps


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (4.0, 4.321, "Measured 4,000 and 4,321 packets/s."),
        (13.189, 16.326, "Measured 13,189 and 16,326 packets/s."),
        (4.0, 5.0, None),
    ],
)
def test_a_card_whose_digits_differ_from_its_tables_says_so(
    tmp_path: Path, low: float, high: float, said: str | None
) -> None:
    """Seen: 17,000 in the card and 17,059 in the knee, and no word on which is right."""
    card = card_of(outcome_search(tmp_path, [tried(low, [0.0]), tried(high, [0.1])]))
    assert card.carried is not None and card.too_much is not None
    assert [words for words in card.sure.words if "Measured" in words] == ([said] if said else [])


@pytest.mark.parametrize("value", [9.0, 12.0])
def test_a_trial_on_the_other_side_of_the_bounds_disagrees(tmp_path: Path, value: float) -> None:
    loads = [tried(7, [0.0] * 3), tried(8, [0.1] * 3), tried(value, ["late", "late", 0.0])]
    card = card_of(outcome_search(tmp_path, loads))
    assert len(card.sure.disagree) == 1 and card.sure.void == 2
    assert any(w.endswith(" carried a load that others did not.") for w in card.sure.words)


def test_a_load_names_only_trials_that_show_whether_it_was_carried(tmp_path: Path) -> None:
    """Seen: void trials beside the one that carried it."""
    loads = [tried(7, [0.0, 0.0, "late"]), tried(8, ["late", 0.1, 0.1])]
    found = card_of(outcome_search(tmp_path, loads))
    assert found.carried is not None and found.too_much is not None
    assert [len(found.carried.runs), len(found.too_much.runs)] == [2, 2]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["burst"], "Cause: a burst."),
        (["not_known", "softirq"], "Cause: not known, interrupts."),
        (["other_programs", "own_pace", "burst"], "Another cause: its own pace, a burst."),
        (["other_programs"], ""),
        ([], ""),
    ],
)
def test_a_card_names_each_cause_that_the_verdict_of_its_trial_names(
    tmp_path: Path, rules: list[str], words: str
) -> None:
    causes = {"loss_causes": [{"rule": rule, "words": rule} for rule in rules]}
    bad = tried(8, [0.1] * 3)
    each = {n: {**bad.each.get(n, {}), **causes} for n in (1, 2, 3)}
    card = card_of(outcome_search(tmp_path, [tried(7, [0.0] * 3), replace(bad, each=each)]))
    why = " ".join(card.breaks.why)
    assert words in why and ("ause" in why) == bool(words)


def test_what_is_not_known_is_said_once(tmp_path: Path) -> None:
    """Seen: "What breaks is not known. Cause in this trial: not known."."""
    lost = replace(tried(8, [0.1]), each={1: {"loss_causes": [{"rule": "not_known", "words": ""}]}})
    record = read_story([outcome_search(tmp_path, [tried(7, [0.0]), lost])]).trials[-1].record
    assert record.packets.loss_causes
    assert causes_words("not_known", record) == ""
    assert causes_words("sut", record) == "Cause: not known."


@pytest.mark.parametrize(
    ("cpus", "workers", "settings"),
    [("1", 2, ["sut.threads=1"]), ("1-2", 3, ["sut.threads=2"]), ("1-2", 2, [])],
)
def test_more_workers_than_cpus_is_the_first_thing_to_change(
    tmp_path: Path, cpus: str, workers: int, settings: list[str]
) -> None:
    threads = [
        {"name": f"W#0{n}", "cpu_ratio": 0.4, "wait_ratio": 0.24, "dropped_packets": 9 * n}
        for n in range(1, workers + 1)
    ]
    loads = [with_threads(tried(x, [loss] * 3), *threads, cpus=cpus)
             for x, loss in ((7, 0.0), (8, 0.1))]  # fmt: skip
    command = ["/usr/bin/nodrop", "run", "a b.toml", "--resume"]
    run = outcome_search(tmp_path, loads, manifest={"command": command})
    card = card_of(run)
    assert f"Worker W#0{workers} waited for its CPU 24 % of the trial." in card.breaks.why
    assert ("workers share" in " ".join(card.breaks.why)) == bool(settings)
    told = [a.command for a in card.actions if "sut.threads" in a.command]
    assert told == [f"nodrop run 'a b.toml' --set {one}" for one in settings]
    assert {action.state for action in card.actions} == {"untried"}
    assert any("limits.cpus" in action.command for action in card.actions)
    assert 1 <= len(card.actions) <= 3


@pytest.mark.parametrize(
    ("proved", "sut", "state"),
    [
        ("helps", "suricata", "helps"),
        ("makes it worse", "suricata", "does not"),
        ("cannot tell yet", "suricata", "cannot tell yet"),
        ("helps", "snort", "untried"),
    ],
)
def test_an_action_has_the_state_that_a_proof_beside_the_run_gives_it(
    tmp_path: Path, proved: str, sut: str, state: str
) -> None:
    threads = [{"name": f"W#0{n}", "cpu_ratio": 0.4, "wait_ratio": 0.24, "dropped_packets": 9}
               for n in (1, 2)]  # fmt: skip
    loads = [with_threads(tried(x, [loss] * 3), *threads) for x, loss in ((7, 0.0), (8, 0.1))]
    run = outcome_search(tmp_path / "run", loads)
    beside = run.parent / "prove-it"
    beside.mkdir()
    manifest = json.loads((run / "manifest.json").read_text())
    (beside / "manifest.json").write_text(json.dumps({**manifest, "sut": {"name": sut}}))
    effect = {"knob": "threads=1", "setting": "sut.threads=1", "metric": "loss_pct", "unit": "%",
              "state": proved, "without": 1.0, "by": -1.0, "interval": None, "relative": None,
              "trials": [12, 12], "void": 0, "words": ""}  # fmt: skip
    answer = {"effects": [effect], "together": None, "notes": [], "exit_code": 0}
    (beside / "proved.json").write_text(json.dumps(answer))
    (first, *others) = card_of(run).actions
    assert ("sut.threads=1" in first.command, first.state) == (True, state)
    assert {one.state for one in others} == {"untried"}


@pytest.mark.parametrize(
    ("rules", "ran", "settings"),
    [
        (["burst", "burst", "burst"], 0.4, ["sut.ring_size=32768"]),
        (["burst", "not_known", "burst"], 0.4, ["sut.ring_size=32768"]),
        (["burst", "full", "full"], 0.4, ["limits.cpus"]),
        (["own_pace"] * 3, 0.4, ["limits.cpus"]),
        (["not_known"] * 3, 0.54, ["sut.ring_size=32768", "limits.cpus"]),
        (["not_known", "not_known", "burst"], 0.7, ["sut.ring_size=32768", "limits.cpus"]),
        (["not_known"] * 3, 0.9, ["limits.cpus"]),
    ],
)
def test_bursts_want_a_larger_ring_before_a_further_cpu(
    tmp_path: Path, rules: list[str], ran: float, settings: list[str]
) -> None:
    """Seen: "Give Suricata another CPU" for a ring of 2,058 that a burst of 7,145 overflowed, and
    for a thread that slept 29 % of the time in which it lost."""
    thread = {"name": "W#01", "cpu_ratio": ran, "wait_ratio": 0.01, "dropped_packets": 9}
    good, bad = (with_threads(tried(x, [loss] * 3), thread) for x, loss in ((7, 0.0), (8, 0.01)))
    causes = [{"loss_causes": [{"rule": rule, "words": rule}]} for rule in rules]
    each = {n: {**bad.each.get(n, {}), **more} for n, more in enumerate(causes, 1)}
    run = outcome_search(tmp_path, [good, replace(bad, each=each)])
    told = [a.command for a in card_of(run).actions if "search.rounds" not in a.command]
    assert len(told) == len(settings)
    assert all(one in command for one, command in zip(settings, told, strict=True))


@pytest.mark.parametrize(
    ("predicted", "words"),
    [
        (
            9.0,
            r"9,000 packets/s (9X) by an earlier run; measured: [\d,]+ packets/s .*, \d+ % less.",
        ),
        (
            6.0,
            r"6,000 packets/s (6X) by an earlier run; measured: [\d,]+ packets/s .*, \d+ % more.",
        ),
        (None, ""),
    ],
)
def test_a_predicted_limit_stands_beside_the_measured_one(
    tmp_path: Path, predicted: float | None, words: str
) -> None:
    search = {} if predicted is None else {"predicted": predicted}
    loads = [tried(7.0, [0.0] * 3), tried(8.0, [0.01] * 3)]
    card = card_of(outcome_search(tmp_path, loads, search=search))
    assert re.fullmatch(words.replace("(", "\\(").replace(")", "\\)"), card.predicted), (
        card.predicted
    )


def test_a_limit_is_written_as_closely_as_it_is_known_though_the_bounds_are_far_apart() -> None:
    """Seen: `10.83X predicted; measured: 10X, 3 % less`."""
    answer = searched(SimulatedSut(capacity=9.0))[0.0]
    assert answer.lower and answer.upper
    far = replace(
        answer,
        lower=replace(answer.lower, value=7.38),
        upper=replace(answer.upper, value=10.04),
        confidence=Confidence(
            level="low", reason=Finding(code="sure.bounds", values={"width": 0.27}), known_ratio=0.1
        ),
        fit=Knee(n=5, estimate=10.467, low=10.146, high=10.818),
    )
    assert "(10.5X), 3 % less" in beside_measured(10.83, far)
    rough = replace(far, fit=Knee(n=2, estimate=10.467, low=None, high=None))
    assert "(10X), 3 % less" in beside_measured(10.83, rough)


FLOW = "tcp 10.0.0.1:80 10.0.0.2:4000"


def bursts_overflow(tmp_path: Path, **times: Any) -> Path:
    """A search whose rings overflow by bursts above 7.9X. `times`: multiples of that limit."""
    queue = {
        "rings": 1, "slots": 2058, "highest_packets": 1900, "highest_ratio": 0.92, "at_s": 1.0,
        "above_half_s": 0.1, "above_ninety_s": 0.0, "lost_packets": 0, "looks": 900,
        "longest_gap_s": 0.01,
    }  # fmt: skip
    thread = {"name": "W#01", "cpu_ratio": 0.6, "wait_ratio": 0.01, "dropped_packets": 9}
    loads = [tried(7.5, [0.0] * 3), tried(8.3, [0.01] * 3)]
    causes = times.get("causes", [{"rule": "burst", "words": "burst"}])
    loads[1] = replace(loads[1], fields={**loads[1].fields, "loss_causes": causes})
    if "workers" in times:
        loads = [with_threads(load, thread) for load in loads]
    left_out = {"withhold": times["left_out"]} if "left_out" in times else {}
    manifest = {"host": {"cpu": {"cpus": 2}}, "loads": [{"options": left_out}]}
    run = outcome_search(tmp_path, loads, manifest=manifest)
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for line in lines:
        value = line["searched"]["value"]
        limit = 7.9 / value
        found: dict[str, Any] = {"fits_times": limit}
        if (roomy := times.get("roomy_fits_times")) is not None:
            found["roomy_fits_times"] = roomy * limit
        if "workers" in times:
            two = {"workers": 2, "fits_times": times["workers"] * limit}
            ends = {"low_times": two["fits_times"] * 0.9, "high_times": two["fits_times"] * 1.1}
            found["workers_fit"] = [{**two, **ends}]
        if "without" in times:
            found["without"] = {
                "flow": FLOW, "kind": "TCP port 80", "packets_ratio": 0.1, "work_ratio": 0.4,
                "fits_times": times["without"] * limit,
            }  # fmt: skip
        line["body"]["queue"] = {**queue, "excess": value / 7.9, **found}
    (run / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.mark.parametrize(
    ("roomy", "words"),
    [
        (1.5, "Predicted: 11,900 packets/s (11.9X), 50 % more, by the rings of 3 trials."),
        (2.0, "Predicted: 15,800 packets/s (15.8X), 100 % more, by the rings of 3 trials."),
        (9.0, "(64X), 710 % more, by 3 trials; then its thread has no time left."),
        (None, "burst"),
    ],
)  # fmt: skip
def test_a_larger_ring_has_its_predicted_load(
    tmp_path: Path, roomy: float | None, words: str
) -> None:
    run = bursts_overflow(tmp_path, roomy_fits_times=roomy)
    room = next(a for a in card_of(run).actions if "ring" in a.text)
    assert room.why.endswith(words) if roomy else "Predicted" not in room.why, room.why
    assert ("search.predicted=" in room.command) == bool(roomy)


@pytest.mark.parametrize(
    ("room", "workers", "without", "order"),
    [(1.5, 1.8, 1.2, "CPU ring flow"), (1.5, 1.2, 1.9, "flow ring CPU"),
     (2.0, 1.8, 1.9, "ring flow CPU")],
)  # fmt: skip
def test_what_to_do_is_ranked_by_the_predicted_load(
    tmp_path: Path, room: float, workers: float, without: float, order: str
) -> None:
    run = bursts_overflow(tmp_path, roomy_fits_times=room, workers=workers, without=without)
    actions = card_of(run).actions
    assert [next(w for w in order.split() if w in a.text) for a in actions] == order.split()
    predicted = [action.predicted for action in actions if action.predicted is not None]
    assert predicted == sorted(predicted, reverse=True) and len(predicted) == 3
    said = {round(x * 7.9, 1) for x in (room, workers, without)}
    assert {round(one, 1) for one in predicted} == said
    assert all(f"search.predicted={a.predicted:.4g}" in a.command for a in actions)


def test_more_workers_and_a_flow_less_have_words_of_their_own(tmp_path: Path) -> None:
    run = bursts_overflow(tmp_path, workers=1.5, without=1.2)
    cpu, flow = (a for a in card_of(run).actions if a.predicted is not None)
    assert cpu.why == (
        "Needs a host with 3 CPUs. Predicted: 11,900 packets/s (11.9X), 50 % more with 2 workers; "
        "10,700 packets/s (10.7X) to 13,000 packets/s (13X) by the flows that fall to each, if "
        "they do not slow each other down."
    )
    assert "limits.cpus=" in cpu.command
    assert flow.text == "Bypass the costliest flow (TCP port 80)."
    # Fewer packets/s to the same multiple: a tenth of them is not sent.
    assert flow.why == (
        "Tried by a trace without it. Predicted: 8,530 packets/s (9.48X), 20 % more. It is "
        f"10 % of the packets and 40 % of the work: {FLOW}."
    )
    assert f'load.withhold={{flows=["{FLOW}"]}}' in flow.command


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        (1, "Half of that: 442 packets of one flow, TCP port 80."),
        (3, "Half of that: 3 flows, 442 packets, most of TCP port 80."),
    ],
)
def test_the_flows_of_a_costly_moment_are_named(tmp_path: Path, flows: int, words: str) -> None:
    moment = {"begin_s": 3.74, "end_s": 3.79, "packets": 1102, "us_per_packet": 210.0}
    moment |= {"flows": flows, "flow_packets": 442, "protocol": 6, "port": 80}
    evidence = {f"moment_{name}": value for name, value in moment.items()}
    evidence["usual_us_per_packet"] = 42.0
    cause = {"rule": "costly", "words": "costly", "evidence": evidence}
    card = card_of(bursts_overflow(tmp_path, causes=[cause]))
    said = f"Packets 3.74 to 3.79 s after the first cost 5 times the usual. {words}"
    assert said in card.breaks.why


@pytest.mark.parametrize(
    ("left_out", "setting"),
    [
        (
            {"flows": ["udp 1.2.3.4:5 6.7.8.9:10"]},
            f'{{flows=["udp 1.2.3.4:5 6.7.8.9:10","{FLOW}"]}}',
        ),
        ({"ratio": 0.1, "seed": 1}, None),
    ],
)
def test_the_next_flow_is_left_out_beside_those_before(
    tmp_path: Path, left_out: dict[str, object], setting: str | None
) -> None:
    actions = card_of(bursts_overflow(tmp_path, without=1.2, left_out=left_out)).actions
    found = [a.command for a in actions if "flow" in a.text]
    assert [f"load.withhold={setting}" in one for one in found] == ([True] if setting else [])


def test_a_prediction_that_is_no_gain_is_not_proposed(tmp_path: Path) -> None:
    run = bursts_overflow(tmp_path, workers=1.0, without=0.99)
    assert not [a for a in card_of(run).actions if "flow" in a.text or "CPU" in a.text]


@pytest.mark.parametrize(("sent", "says"), [(64.0, True), (13.0, False)])
def test_bursts_that_made_the_sender_late_have_even_gaps_as_the_way_on(
    tmp_path: Path, sent: float, says: bool
) -> None:
    ramp = tried(sent, [0.0])
    searched = {**ramp.each[1]["searched"], "ramp": {"start": 1.0, "clean_to": sent}}
    ramp = replace(ramp, each={1: {"searched": searched}})
    run = outcome_search(tmp_path, [ramp, tried(7, [0.0] * 3), tried(9, ["late"] * 3)])
    card = card_of(run)
    assert card.breaks.limited_by == "generator"
    even = [a.command for a in card.actions if a.text == "Send at even gaps."]
    assert len(even) == says and all("search.by=pps" in command for command in even)


@pytest.mark.parametrize(
    ("slow", "says"),
    [([0.6, 0.1], "The SUT's CPU did 82 to 97 % of what it can: others use its core."),
     ([0.5, 0.4], None), ([], None)],
)  # fmt: skip
def test_a_cpu_that_others_slow_is_named_beside_wide_bounds(
    tmp_path: Path, slow: list[float], says: str | None
) -> None:
    """Seen: limits of single trials from 4.5X to 7.2X, in the order of the CPU's speed."""
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for n, trial in enumerate(lines if slow else ()):
        slowed = {"cpu": 1, "slow_ratio": slow[n % 2], "slow_speed_ratio": 0.7}
        trial["disturbed"] = {"cpus": [1], "slowed": slowed}
    (run / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [one for one in card_of(run).sure.words if "core" in one]
    assert words == ([says] if says else [])


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"threads": 1}, ["limits.cpus", "sut.threads=2"]),
        ({"threads": "auto"}, ["limits.cpus"]),
        ({"capture": "pcap"}, ["sut.capture=af-packet"]),
        ({"capture": "af-xdp", "threads": 1}, ["sut.capture=af-packet"]),
        ({"capture": "pcap", "buffer_bytes": 262144}, []),
    ],
)
def test_a_further_cpu_is_for_a_sut_that_uses_it(
    tmp_path: Path, options: dict[str, Any], settings: list[str]
) -> None:
    """Seen: "Give Suricata another CPU" for capture = "pcap", which has one thread."""
    thread = {"name": "W#01", "cpu_ratio": 0.9, "wait_ratio": 0.01, "dropped_packets": 9}
    loads = [with_threads(tried(x, [loss] * 3), thread) for x, loss in ((7, 0.0), (8, 0.1))]
    suts = {"suts": [{"name": "suricata", "options": options}]}
    card = card_of(outcome_search(tmp_path, loads, manifest=suts))
    told = [a.command for a in card.actions if "search.rounds" not in a.command]
    assert len(told) == bool(settings)
    assert all(one in told[0] for one in settings)
    assert told == [] or told[0].count("--set") == len(settings)


@pytest.mark.parametrize(
    ("tries", "carried", "confidence"),
    [
        # Seen: 3.067X "without loss, fair"; run again, it lost in 3 of 3.
        ({2.169: [0.0], 2.788: [0.0, 0.0, 0.0, 0.003], 3.067: [0.0, 0.001, 0.0]}, 2.169, "low"),
        ({40.0: [0.0, 0.0], 60.0: [0.0, 0.1], 64.0: [0.0, 0.0, 0.2, 0.2]}, 40.0, "low"),
        # Nothing speaks against it; and one bad trial of five proves it.
        ({2.169: [0.0], 2.788: [0.0, 0.0, 0.0], 3.067: [0.0] * 4}, 3.067, None),
        ({2.169: [0.0], 2.788: [0.0], 3.067: [0.0, 0.0, 0.0, 0.0, 0.001]}, 3.067, None),
    ],
)
def test_a_load_that_its_trials_refute_is_not_carried_for_lack_of_budget(
    tmp_path: Path, tries: dict[float, list[float]], carried: float, confidence: str | None
) -> None:
    above = max(tries) * 1.2
    loads = [*(tried(x, losses) for x, losses in tries.items()), tried(above, [0.3] * 4)]
    card = card_of(outcome_search(tmp_path, loads))
    assert card.carried is not None and card.carried.value == carried
    level = card.sure.confidence.level if card.sure.confidence else None
    assert confidence in (None, level)


@pytest.mark.parametrize(("value", "most"), [(12.0, "6"), (48.62, "24.31")])
def test_a_search_of_void_trials_is_offered_a_lower_end(
    tmp_path: Path, value: float, most: str
) -> None:
    """Seen: a list of loads, which a search refuses, and a setting without its command."""
    command = ["/usr/bin/nodrop", "capacity", "my.pcap", "--budget", "20s"]
    loads = [tried(value, ["late"] * 4), tried(value * 2, ["late"] * 4)]
    run = outcome_search(tmp_path, loads, manifest={"command": command})
    (void, *_) = card_of(run).actions
    assert void.text == "Mend what makes trials void."
    assert void.command == f"nodrop capacity my.pcap --budget 20s --set search.max={most}"


@pytest.mark.parametrize(("busy", "quiet"), [(1, False), (3, False), (4, True), (6, True)])
def test_a_host_that_was_busy_is_to_be_quiet_before_all_else(
    tmp_path: Path, busy: int, quiet: bool
) -> None:
    loads = [tried(7, [0.0] * 3), tried(8, [0.1] * 3)]
    run = outcome_search(tmp_path, loads, search={"budget_s": 20.0})
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for trial in lines[:busy]:
        trial["disturbed"] = {"cpus": [0], "others_ratio": 0.6, "programs": [], "quota": None}
    (run / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (first, *others) = card_of(run).actions
    assert (first.text == "Measure again on a quiet host.") is quiet
    assert not any("quiet host" in action.text for action in others)


@pytest.mark.parametrize("values", [(64.0, 22.3, 1.0), (12.0, 6.0)])
def test_what_other_programs_made_void_has_no_setting_that_mends_it(
    tmp_path: Path, values: tuple[float, ...]
) -> None:
    """Seen beside a compiler: "Suricata lost packets while they ran", of trials that measured
    nothing, and "Mend what makes trials void." by search.max=0.5."""
    run = outcome_search(tmp_path, [tried(x, ["late"] * 2) for x in values])
    lines = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    for trial in lines:
        trial["disturbed"] = {"cpus": [0], "others_ratio": 0.7, "programs": [], "quota": None}
        trial["steal_ratio"] = 0.03
    (run / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    card = card_of(run)
    assert card.breaks.verdict == "Other programs took its CPU."
    assert card.breaks.why[0] == "No trial says anything of its loads."
    assert [action.text for action in card.actions][:1] == ["Measure again on a quiet host."]
    assert not any("search.max" in action.command for action in card.actions)


@pytest.mark.parametrize(("peak", "at_7x"), [(5_120.0, "35,800"), (812.4, "5,690")])
def test_the_busiest_second_of_the_trace_stands_beside_what_is_carried(
    tmp_path: Path, peak: float, at_7x: str
) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    card = card_of(run)
    assert card.carried is not None and not peak_words(card)
    seen = card.model_copy(update={"peak_pps": peak})
    said = f"a mean, with {at_7x} packets/s in the trace's busiest second"
    assert peak_words(seen) == said
    assert dict(loads_lines(seen))["carried"].endswith(said)


@pytest.mark.parametrize(("late", "says"), [(3, False), (4, True), (7, True)])
def test_a_sender_that_was_late_in_most_trials_is_named_before_more_time(
    tmp_path: Path, late: int, says: bool
) -> None:
    """Seen: 12 of 16 trials void for it, and "Give the search more time." alone."""
    loads = [tried(7, [0.0] * 3), *(tried(8 + n, ["late"]) for n in range(late))]
    card = card_of(outcome_search(tmp_path, loads, search={"budget_s": 20.0, "rounds": 3}))
    assert card.breaks.verdict == "The budget ran out."
    assert all(action.command for action in card.actions)
    why = [a.why for a in card.actions if a.text == "Send from a host of its own."]
    assert why == ([f"The sender was late in {late} of {3 + late} trials."] if says else [])
    assert any("more time" in action.text for action in card.actions) is not says


@pytest.mark.parametrize("lost", [True, False])
def test_a_search_that_a_late_sender_ended_still_proposes_a_larger_ring(
    tmp_path: Path, lost: bool
) -> None:
    """Seen: 12 of 16 trials void for it, one lost in the ring: "Send from a host of its own."."""
    unsure = tried(8, [0.003 if lost else 0.0, 0.0])
    same_round = dict.fromkeys((1, 2), unsure.each[1])
    words = "0.30 % lost in the socket ring (9 of 3,000 sent): sut.ring_size for bursts"
    seen = {"loss_causes": [{"rule": "not_known", "words": "not known"}], "verdict": words}
    loads = [tried(7, [0.0] * 3), *(tried(20 + n, ["late"]) for n in range(7))]
    fields = {**unsure.fields, **(seen if lost else {})}
    loads.insert(1, replace(unsure, fields=fields, each=same_round))
    search = {"budget_s": 20.0, "rounds": 3}
    card = card_of(outcome_search(tmp_path, loads, search=search))
    assert card.breaks.verdict == "The budget ran out."
    assert any("sut.ring_size=" in action.command for action in card.actions) is lost


@pytest.mark.parametrize("budget", [["--budget", "20s"], ["--budget=20s"], []])
def test_a_longer_search_has_one_budget(tmp_path: Path, budget: list[str]) -> None:
    command = ["/usr/bin/nodrop", "capacity", "my.pcap", *budget, "--rules", "r"]
    run = outcome_search(
        tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)],
        search={"budget_s": 20.0, "rounds": 3}, manifest={"command": command},
    )  # fmt: skip
    (told,) = (a.command for a in card_of(run).actions if "search.rounds=6" in a.command)
    assert told == ("nodrop capacity my.pcap --rules r --set search.rounds=6 --budget 52s")


def test_rounds_that_were_cut_short_promise_no_interval(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3)], search={"budget_s": 20.0, "rounds": 3})
    assert not any("search.rounds" in action.command for action in card_of(run).actions)


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_an_interval_takes_six_rounds(tmp_path: Path, rounds: int) -> None:
    loads = [tried(7, [0.0] * rounds), tried(8, [0.1] * rounds)]
    search = {"rounds": rounds, "budget_s": 60.0}
    card = card_of(outcome_search(tmp_path, loads, search=search))
    asked = [a.command for a in card.actions if "search.rounds=6" in a.command]
    assert len(asked) == (rounds < 6)
    assert not asked or f"search.budget_s={60 * 6 / rounds * 1.3:.0f}" in asked[0]


def test_a_search_of_void_trials_says_no_load_is_carried(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(2, ["late"] * 3), tried(4, ["late"] * 3)])
    card = card_of(run)
    assert card.carried is None and card.lost is None and card.sure.confidence is None
    assert card.headline == "No load is shown to be carried."
    assert card.headline in page_of(run)


def test_json_and_markdown_have_the_card_of_the_page(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    story = read_story([run])
    card, (searched,) = card_of(run), searches(story)
    assert report_json(read_story([run]))["cards"] == [json.loads(card.model_dump_json())]
    answer = capacity_answer(searched, card, run_directory=run, report=run, exit_code=0)
    Draft202012Validator(schemas()["capacity"]).validate(json.loads(answer.model_dump_json()))
    write_report(read_story([run]))
    said = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "7,000 packets/s" in said and "The socket ring overflows." in said
    html = page(story)
    assert "7,000" in html and card.breaks.verdict in html
    for action in card.actions:
        assert action.text in html and action.text in said
        assert not action.command or f"| `{action.command}` |" in said


def test_the_page_of_one_search_has_all_its_parts_and_many_cells_keep_theirs(
    tmp_path: Path,
) -> None:
    loads = [tried(7, [0.0] * 3), tried(8, [0.1] * 3)]
    story = read_story([outcome_search(tmp_path / "one", loads)])
    html = page(story)
    for part in ("answer", "knee", "ledger", "time", "trials", "trust", "manifest", "words"):
        assert html.count(f'<section id="{part}"') == 1
    for table in ("search-rows", "trials-table", "steps-table", "cells-table", "capacity-table"):
        assert html.count(f'id="{table}"') == 1
    assert html.count('<details class="trial m-') == len(story.trials) == 6
    cells = [tried(x, [loss], cell={"setup.kind": kind})
             for kind in ("bare", "vm") for x, loss in ((7, 0.0), (8, 0.1))]  # fmt: skip
    several = read_story([outcome_search(tmp_path / "two", cells)])
    assert capacity_page(several) is None and len(cards(several)) == 2
    assert '<section id="capacity"' in page(several)


def sentences(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.?])\s+", text) if one]


def rendered() -> Iterator[tuple[str, str]]:
    """Every wording of a card with its longest evidence, by kind."""
    sut = "A" * 24
    for table in ("limited_by", "breaks"):
        for code in TABLES[table]:
            longest = {"sut": "The SUT", "place": "receiving port"}
            yield "verdict", render(Finding(code=f"{table}.{code}", values=longest), "title")
            if why := render(Finding(code=f"{table}.{code}", values={"sut": sut})):
                yield "sentence", why
    for ran, waited in ((1.0, 1.0), (1.0, 0.0)):
        worker = SutThread(
            name="W#01-ndrx0-longest", cpu_ratio=ran, wait_ratio=waited, dropped_packets=1
        )
        workers = [worker] * 256
        yield from (("sentence", words) for words in wording._workers_words(workers, range(128)))
    for _, words in WORDS.values():
        yield "sentence", words
    for file in TEMPLATES.glob("*.j2"):
        for lede in re.findall(r"head\('\w+', '[^']*', '([^']*)'", file.read_text()):
            yield "lede", lede


def test_words_of_the_card_keep_their_lengths() -> None:
    found = list(rendered())
    assert {kind for kind, _ in found} == {"verdict", "sentence", "lede"} and len(found) > 60
    for kind, text in found:
        assert text, kind
        words, letters = {"verdict": (6, 44), "sentence": (14, 96), "lede": (25, 160)}[kind]
        for one in [text] if kind == "lede" else sentences(text):
            assert len(one.split()) <= words and len(one) <= letters, one
            assert one.count(": ") <= 1 or kind == "lede", one
        assert not [word for word in (*STOP, *SYNONYMS) if word in text], text


@pytest.mark.parametrize("goal", [0.0, 0.005])
def test_a_headline_has_one_number_and_at_most_eight_words(tmp_path: Path, goal: float) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    answer: Answer = searches(read_story([run]))[0].answers[0]
    bound = Bound(value=12345.6789, pps=123456789.0, bps=1e12, runs=())
    for lower in (bound, replace(bound, pps=None), None):
        found = replace(answer, goal=goal, lower=lower, upper=None)
        said = render(next(findings(found, (), Search(), (), None)), "title")
        assert len(said.split()) <= 8 and len(said) <= 60
        assert len(re.findall(r"\d[\d,.]*", said)) == (lower is not None)


@pytest.mark.parametrize(("ring", "said"), [(2_058, "2,058"), ("64", "64")])
def test_settings_in_the_rail_have_words(tmp_path: Path, ring: object, said: str) -> None:
    load = tried(7, [0.0] * 3)
    for fields in load.each.values():
        fields["effective"] = {"threads": 2, "ring_size": ring}  # type: ignore[index]
    found = who(read_story([outcome_search(tmp_path, [load])]))
    assert {("threads", "2"), ("ring size", said)} <= {*found}
    assert not any("_" in key for key, _ in found)


def test_lines_for_a_terminal_are_keys_and_values(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    lines = list(card_lines(card_of(run)))
    keys = [key for key, _ in lines if key]
    assert keys[:3] == ["carried", "too much", "breaks"] and {"do", "sure"} <= set(keys)


@pytest.mark.parametrize("where", ["report", "watch"])
def test_every_colour_that_a_page_names_is_defined(where: str, tmp_path: Path) -> None:
    if where == "report":
        run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
        html = page(read_story([run]))
    else:
        html = watch_page()[0].decode()
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    defined = set(re.findall(r"(--[\w-]+):", style))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= defined
    assert "style=" not in html.replace(style, "")


@pytest.mark.parametrize("capacity", [8.0, 61.25])
def test_a_sut_that_fell_behind_and_lost_nothing_has_no_ring_that_overflows(
    tmp_path: Path, capacity: float
) -> None:
    """Seen: "The socket ring overflows." of trials that lost nothing, as higher ones did; and the
    trial that decided was said to disagree."""
    behind = tried(capacity * 1.02, [0.0] * 3)
    behind = replace(behind, fields={**behind.fields, "sustained": False})
    lossy = tried(capacity * 3, [0.4])
    card = card_of(outcome_search(tmp_path, [tried(capacity, [0.0] * 3), behind, lossy]))
    assert card.too_much and card.too_much.value == pytest.approx(capacity * 1.02)
    assert card.breaks.verdict.endswith("falls behind.") and card.breaks.lost == 0
    assert card.sure.disagree == []


def test_what_met_no_end_is_carried_at_least(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(8.0, [0.0] * 3)], search={"budget_s": 60.0})
    lines = [*card_lines(card_of(run))]
    assert (
        "carried",
        "at least 8,000 packets/s (fair confidence), 19.2 Mbit/s, 8X of the trace, without loss",
    ) in lines
    assert ("", "No higher load was decided.") in lines


def test_a_goal_without_a_load_changes_nothing_that_is_worth_a_line(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(8.0, [0.4] * 3)], search={"budget_s": 60.0})
    card = card_of(run)
    assert card.carried is None and card.tolerated == ""
    assert card.breaks.limited_by == "budget"
    assert card.breaks.why == [render(Finding(code="undecided.lower"))]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("nodrop capacity a.pcap --set sut.threads=1", 4),
        ("nodrop run e.toml --out a-b --set 'limits.cpus=\"1-2\"'\nnodrop report r", 8),
    ],
)
def test_a_word_of_a_command_is_never_broken(command: str, words: int) -> None:
    """Nor is an option parted from its value. Seen: Chromium broke a line inside `--set`."""
    drawn = environment("nodrop.report").from_string("{{ c | unbroken }}").render(c=command)
    assert drawn.count("<span>") == words and "<span>--set " in drawn
    assert Markup(drawn).striptags() == " ".join(command.split())


def test_a_page_lets_its_own_style_and_script_apply(tmp_path: Path) -> None:
    """A style that was escaped after its hash was taken left a page without any."""
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    html = page(read_story([run]))
    for element in ("style", "script"):
        (held,) = re.findall(f"<{element}>(.*?)</{element}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in html


def test_goals_with_the_same_bounds_share_a_row(tmp_path: Path) -> None:
    for loss, rows in ((0.1, 1), (0.003, 2)):
        loads = [tried(7, [0.0] * 3), tried(8, [loss] * 3), tried(9, [0.2] * 3)]
        run = outcome_search(tmp_path / str(rows), loads, search={"goals": [0, 0.005]})
        found = capacity_page(read_story([run]))
        assert found is not None and len([*found.bounds]) == rows


@pytest.mark.parametrize(("low", "high"), [(6.46, 6.47), (100.0, 100.2), (2.0, 9.0)])
def test_no_two_ticks_of_an_axis_read_alike(low: float, high: float) -> None:
    """Seen: 6.46, 6.46 and 6.47 MiB below one strip."""
    plot = Plot("", Scale.near([low, high]), Scale(0, 1)).axes("", short, None, grid="x")
    named = re.findall(r"<text[^>]*>([^<]+)</text>", "".join(plot.front))
    assert len(named) > 1 and len({*named}) == len(named)
