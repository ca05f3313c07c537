"""Answer cards of loads that the experiment gives, and of cells that differ in one factor."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.capacity.answer_cards import given_cards
from nodrop.capacity.card import breaks_words, card_lines
from nodrop.capacity.page import card_views
from nodrop.report.direct import direct_answers, verdict_cards
from nodrop.report.story import read_story
from nodrop.report.write import page, report_json, write_report
from nodrop.results.capacity import Card
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried
from tests.made.told import told


def load(
    pps: float, trials: list[float | str], *, sustained: bool | None = True, **cell: object
) -> Load:
    fields = {"sustained": sustained, "offered_bps": pps * 2400, "knob": "sut.ring_size"}
    return Load(cell={**cell, "load.pps": pps}, pps=pps, trials=trials, fields=fields)


def card_of(out: Path, *loads: Load, experiment: str = "") -> Card:
    run = outcome_run(out, loads)
    if experiment:
        (run / "experiment.toml").write_text(experiment)
    (card,) = given_cards(read_story([run]))
    return card


@pytest.mark.parametrize(("low", "high"), [(5_000.0, 9_000.0), (812.5, 813.0)])
def test_the_highest_load_without_loss_and_the_lowest_that_lost(
    tmp_path: Path, low: float, high: float
) -> None:
    card = card_of(
        tmp_path, load(low, [0.0] * 6), load(high, [0.02, 0.0, 0.01]), load(high * 2, [0.4] * 3)
    )
    assert card.carried is not None and card.too_much is not None
    assert (card.carried.pps, card.too_much.pps) == (low, high)
    assert card.carried.shown_pps != card.too_much.shown_pps
    assert card.lost == pytest.approx((0.01, 0.02), rel=0.05)
    assert (card.lossy, card.lossy_of) == (2, 3)
    assert card.breaks.verdict == "The socket ring overflows." and not card.only_seen
    assert f"0 of 6 trials at {low:,.4g} packets/s lost a packet." in card.sure.words
    assert (card.sure.trials, card.sure.measured) == (12, 12)


def test_a_curve_of_one_colour_says_what_its_marks_are(tmp_path: Path) -> None:
    """Seen: a lone blue dot without a word."""
    run = outcome_run(tmp_path, [load(5_000, [0.0] * 3), load(9_000, [0.02] * 3)])
    assert "median of a load" in page(read_story([run]))


@pytest.mark.parametrize("busy", [False, True])
def test_a_load_beside_other_programs_is_of_low_confidence(tmp_path: Path, busy: bool) -> None:
    """Seen: no word of it on the card, where that of a search says "low"."""
    seen = {"cpus": [0], "others_ratio": 0.6 if busy else 0.0, "programs": [], "quota": None}
    one = load(5_000, [0.0] * 3)
    card = card_of(tmp_path, replace(one, fields={**one.fields, "disturbed": seen}))
    said = [words for key, words in card_lines(card) if key == "sure"]
    low = "low: others had much of the host in 3 of 3 trials at 5,000 packets/s"
    assert (said == [low]) is busy, said


@pytest.mark.parametrize(
    ("n", "kept", "level", "share"),
    [
        (1, True, "low", "95 %"),
        (4, True, "low", "53 %"),
        (5, True, "fair", "45 %"),
        (28, True, "fair", "10 %"),
        (29, True, "high", "9.8 %"),
        (29, False, "low", "9.8 %"),
    ],
)
def test_a_load_that_was_given_has_a_confidence(
    tmp_path: Path, n: int, kept: bool, level: str, share: str
) -> None:
    """Seen: cards without any level beside those of a search."""
    card = card_of(tmp_path, load(5_000, [0.0] * n, sustained=kept))
    sure = card.sure.confidence
    assert sure is not None and sure.level == level
    assert sure.why == f"up to {share} of such runs may lose packets (95 % confidence)"
    assert f"({level} confidence)" in next(iter(card_lines(card)))[1]


@pytest.mark.parametrize(
    ("shown", "verdict", "why"),
    [
        (None, "Nothing breaks yet.", "No higher load was given."),
        (False, "Suricata falls behind.", "What it did not do in time waited."),
    ],
)
def test_a_burst_that_rings_held_is_not_called_carried(
    tmp_path: Path, shown: bool | None, verdict: str, why: str
) -> None:
    card = card_of(tmp_path, load(5_000, [0.0] * 3, sustained=shown))
    assert card.only_seen and card.headline == "No loss seen at 5,000 packets/s"
    assert next(iter(card_lines(card)))[0] == "no loss"
    assert "carried" not in card.headline
    assert (card.breaks.verdict, card.breaks.why) == (verdict, [why])


@pytest.mark.parametrize(
    ("trials", "verdict"),
    [
        (["died", 0.0, 0.0], "Suricata fails."),
        (["late", "late", "short"], "Nothing was measured."),
    ],
)
def test_a_load_that_fails_or_says_nothing_is_not_carried(
    tmp_path: Path, trials: list[float | str], verdict: str
) -> None:
    card = card_of(tmp_path, load(7_000, trials))
    assert card.carried is None and card.breaks.verdict == verdict
    assert card.headline == "No load is shown to be carried."


def test_void_loads_above_are_not_called_free_of_loss(tmp_path: Path) -> None:
    card = card_of(tmp_path, load(5_000, [0.0] * 3), load(9_000, ["late"] * 3))
    assert card.breaks.limited_by == "void_above" and card.carried is not None


def test_loads_that_contradict_each_other_name_none(tmp_path: Path) -> None:
    card = card_of(tmp_path, load(5_000, [0.2] * 6), load(9_000, [0.0] * 6))
    assert card.carried is None and card.headline == "The loads contradict each other."


@pytest.mark.parametrize(
    ("command", "load_of", "settings"),
    [
        ("run x.toml", {"load.pps": 5_000}, "load.pps=5000 search.by=pps"),
        (
            "run x.toml --resume",
            {"load.speed": 8.0, "setup.kind": "oci"},
            "load.speed=8.0 setup.kind=oci",
        ),
        (
            "run x.toml",
            {"cell": "low", "load.speed": 8.0, "sut.defrag": True},
            "cell=low sut.defrag=true",
        ),
        ("run x.toml --set sut.threads=1", {}, ""),
        ("run x.toml --set search.budget_s=60", {}, ""),
    ],
)
def test_the_search_that_is_offered_keeps_sut_setup_and_trace(
    tmp_path: Path, command: str, load_of: dict[str, object], settings: str
) -> None:
    run = outcome_run(
        tmp_path, [Load(cell=load_of, pps=5_000, trials=[0.0] * 6, fields={"sustained": True})]
    )
    (run / "experiment.toml").write_text(
        '[load]\ntrace = "my.pcap"\n[matrix.cells.low]\n"load.speed" = 8.0\n'
    )
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["command"] = ["/usr/bin/nodrop", *command.split()]
    (run / "manifest.json").write_text(json.dumps(manifest))
    (card,) = given_cards(read_story([run]))
    words = ["measure.mode=capacity", *settings.split(), "search.budget_s=240"]
    given = " ".join(f"--set {word}" for word in words)
    again = command.removesuffix(" --resume").removesuffix(" --set search.budget_s=60")
    assert [a.command for a in card.actions] == [f"nodrop {again} {given}"]


def test_a_run_of_another_command_offers_a_search_of_its_trace(tmp_path: Path) -> None:
    text = 'name = "x"\n[load]\ntrace = "a b.pcap"\n'
    card = card_of(tmp_path, load(5_000, [0.0] * 6), experiment=text)
    assert [a.command for a in card.actions] == [
        "nodrop capacity 'a b.pcap' --set load.pps=5000 --set search.by=pps"
    ]


@pytest.mark.parametrize(
    ("argv", "offered"),
    [
        (
            "tune prove ring-size=20000 a.pcap --load 6 --rules a.rules --lab=my.toml",
            "capacity /in/a.pcap --rules /in/a.rules --rules /in/b.rules --window 2..3 --sut snort "
            "--lab my.toml --set sut.overrides.mpm-algo=ac --set 'sut.note=\"1\"' "
            "--set limits.cpus=0,1 --set sut.ring_size=20000",
        ),
        (
            "tune prove ring-size=20000 --experiment x.toml --set load.multiplier=3",
            "run x.toml --set load.multiplier=3 --set measure.mode=capacity "
            "--set sut.ring_size=20000 --set search.budget_s=240",
        ),
    ],
)
def test_a_search_from_a_proof_is_of_the_same_cell(tmp_path: Path, argv: str, offered: str) -> None:
    """Seen: `nodrop capacity a.pcap`, without the rules, the window and the knob."""
    cells = [{"cell": "ring-size=20000", "sut.ring_size": 20_000}, {"cell": "without"}]
    seen = {"sustained": True}
    run = outcome_run(
        tmp_path, [Load(cell=one, pps=5_000, trials=[0.0] * 6, fields=seen) for one in cells]
    )
    (run / "experiment.toml").write_text(
        '[setup]\nkind = "bare"\n[sut]\nkind = "snort"\nnote = "1"\n'
        'rules = ["/in/a.rules", "/in/b.rules"]\n[sut.overrides]\nmpm-algo = "ac"\n'
        '[load]\nkind = "replay"\ntrace = "/in/a.pcap"\nwindow = "2..3"\nmultiplier = 6\n'
        '[limits]\ncpus = "0,1"\n[matrix.cells.k0]\n[matrix.cells.k1]\n"sut.ring_size" = 20000\n'
    )
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["nodrop"] = {"argv": ["-c", *argv.split()]}
    (run / "manifest.json").write_text(json.dumps(manifest))
    story = read_story([run])
    assert [one.base for one, _ in direct_answers(story)] == ["without"]
    (card,) = (one for one in given_cards(story) if one.subject != "without")
    said = [shlex.split(a.command) for a in card.actions if "capacity" in a.command]
    wanted = ["nodrop", *shlex.split(offered)]
    assert [sorted(words) for words in said] == [sorted(wanted)], said


@pytest.mark.parametrize("factor", ["sut.threads", "sut.ring_size"])
def test_no_advice_changes_what_the_experiment_varies(tmp_path: Path, factor: str) -> None:
    threads = [{"name": f"W#0{n}", "role": "worker", "cpu_ratio": 0.4, "dropped_packets": 9}
               for n in (1, 2)]  # fmt: skip
    lossy = [
        Load(
            cell={factor: value, "load.pps": 5_000}, pps=5_000, trials=[0.1] * 3,
            fields={"threads": threads, "sut_cpus": "1", "knob": "sut.ring_size",
                    "loss_causes": [{"rule": "burst", "words": "burst"}]},
        )
        for value in (2, 4)
    ]  # fmt: skip
    found = given_cards(read_story([outcome_run(tmp_path, lossy)]))
    told = " ".join(action.command for card in found for action in card.actions)
    other = {"sut.threads": "sut.ring_size", "sut.ring_size": "sut.threads"}[factor]
    assert len(found) == 2 and f"{factor}=" not in told and f"{other}=" in told


def test_page_markdown_and_json_have_the_card(tmp_path: Path) -> None:
    run = outcome_run(tmp_path, [load(5_000, [0.0] * 6), load(9_000, [0.1] * 6)])
    story = read_story([run])
    (card,) = given_cards(story)
    assert report_json(read_story([run]))["cards"] == [json.loads(card.model_dump_json())]
    write_report(read_story([run]))
    said = (run / "report" / "report.md").read_text(encoding="utf-8")
    html = page(story)
    for words in (card.breaks.verdict, "packets/s lost a packet."):
        assert words in html and words in said
    assert "5,000<small>packets/s" in html


def test_the_page_writes_a_load_as_that_of_a_search(tmp_path: Path) -> None:
    loads = [Load(cell={"load.multiplier": n}, pps=1_000.0 * n, trials=[loss] * 6,
                  fields={"sustained": True}) for n, loss in ((4, 0.0), (8, 0.1))]  # fmt: skip
    html = page(read_story([outcome_run(tmp_path, loads)]))
    pair = html.partition('<p class="pair">')[2].partition("</p>")[0]
    assert "<b>4\u202f×</b>" in pair and "4X" not in pair


def test_sentences_of_trust_begin_in_upper_case(tmp_path: Path) -> None:
    html = page(read_story([outcome_run(tmp_path, [load(5_000, [0.0] * 3)])]))
    trust = html.partition('<section id="trust"')[2].partition("</section>")[0]
    said = re.findall("<(?:li|summary)><bdi>(.)|<div>(?:<details><summary>)?<bdi>(.)", trust)
    assert len(said) > 3 and not [first for pair in said if (first := "".join(pair)).islower()]


@pytest.mark.parametrize(
    ("low", "high", "grounds"), [(0.0, 0.1, ["z-carried", "z-lost"]), (0.2, 0.0, [])]
)
def test_how_sure_is_a_row_of_signs_for_each_load(
    tmp_path: Path, low: float, high: float, grounds: list[str]
) -> None:
    """Loads that contradict each other have no ground."""
    run = outcome_run(tmp_path, [load(5_000, [low] * 6), load(9_000, [high] * 5 + ["late"])])
    (view,) = card_views(read_story([run]))
    assert len(told(view.sure)) == 12
    assert re.findall("z-(?:carried|lost)", str(view.sure)) == grounds
    assert ("Loads", "2 of 2", "say something") in view.facts


@pytest.mark.parametrize("limited_by", ["before_sut", "sut_failed", "changes", "sut"])
@pytest.mark.parametrize("sut", ["The SUT", "the SUT"])
def test_the_sut_is_written_large_at_the_beginning_alone(limited_by: str, sut: str) -> None:
    """Seen: `Give The SUT another CPU.`"""
    for words in breaks_words(limited_by, None, sut, behind=True):
        assert " The SUT" not in words and not words.startswith("the SUT")


@pytest.mark.parametrize(("behind", "words"), [(True, "lost nothing yet"), (False, "lost packets")])
def test_a_load_that_lost_nothing_is_not_told_as_a_loss(*, behind: bool, words: str) -> None:
    """Seen: "Sink lost packets while they ran" of 0 of 58,925."""
    _, why = breaks_words("other_programs", "socket ring", "Sink", behind=behind)
    assert words in why and "while they ran" in why


def test_the_card_of_each_run_leads_to_a_trial_of_its_own(tmp_path: Path) -> None:
    """Seen: trials of two runs share their names, and both cards led to the second's."""
    runs = [outcome_run(tmp_path / name, [load(5_000, [0.0] * 3), load(9_000, [0.1] * 3)])
            for name in "ab"]  # fmt: skip
    one, two = card_views(read_story(runs))
    assert one.card.breaks.run == two.card.breaks.run
    assert (one.broke[:3], two.broke[:3]) == ("t0-", "t1-")
    html = page(read_story(runs))
    assert f'href="#{one.broke}"' in html and f'href="#{two.broke}"' in html


@pytest.mark.parametrize("searched", [True, False])
def test_more_than_two_cells_are_laid_side_by_side(tmp_path: Path, searched: bool) -> None:
    kinds = ("bare", "vm", "docker")
    if searched:
        cells = [tried(x, [loss], cell={"setup.kind": kind})
                 for kind in kinds for x, loss in ((7, 0.0), (8, 0.1))]  # fmt: skip
        run = outcome_search(tmp_path, cells)
    else:
        cells = [load(pps, [loss] * 3, **{"setup.kind": kind})
                 for kind in kinds for pps, loss in ((5_000, 0.0), (9_000, 0.1))]  # fmt: skip
        run = outcome_run(tmp_path, cells)
    html = page(read_story([run]))
    assert html.count('<table class="data reach">') == 1
    reach = html.partition('<table class="data reach">')[2].partition("</table>")[0]
    assert reach.count("<tr>") == 4 and reach.count("The socket ring overflows.") == 3


@pytest.mark.parametrize(
    ("other", "sign", "headline"),
    [(0.3, "≠", "vm loses more than bare"), (0.0, "?", "Cannot tell yet.")],
)
def test_the_verdict_leads_what_differs_in_one_factor(
    tmp_path: Path, other: float, sign: str, headline: str
) -> None:
    n = 20 if other else 2
    cells = [
        load(9_000, [loss + 0.0001 * i * bool(loss) for i in range(n)], **{"setup.kind": kind})
        for kind, loss in (("bare", 0.0), ("vm", other))
    ]
    (card,) = verdict_cards(read_story([outcome_run(tmp_path, cells)]))
    assert card.headline == headline
    assert [(sign, name) for _, sign, name, *_ in card.rows] == [(sign, "vm")]


@pytest.mark.parametrize(
    ("pps", "loss", "said"),
    [
        (7_000, 0.2, "Offer less load: all that was given is too much."),
        (9_500, 0.01, "Offer less load: all that was given is too much."),
        (7_000, 0.0, "Nothing: the answer stands."),
    ],
)
def test_an_answer_that_carries_nothing_does_not_stand(
    tmp_path: Path, pps: int, loss: float, said: str
) -> None:
    html = page(read_story([outcome_run(tmp_path / "run", [load(pps, [loss] * 6)])]))
    assert said in html
    assert ("the answer stands" in html) is (loss == 0)


def test_a_tally_names_its_verdicts(tmp_path: Path) -> None:
    """Seen: `3 ?` below `Cannot tell yet.`"""
    cells = [
        load(9_000, [loss + 0.0001 * i * bool(loss) for i in range(n)], **{"setup.kind": kind})
        for kind, loss, n in (("bare", 0.0, 20), ("vm", 0.3, 20), ("oci", 0.01, 2))
    ]
    (card,) = verdict_cards(read_story([outcome_run(tmp_path / "a", cells)]))
    assert card.tally == "1 ≠ different, 1 ? cannot tell yet"
    few = [load(9_000, [0.0] * 2, **{"setup.kind": kind}) for kind in ("bare", "vm", "oci")]
    (card,) = verdict_cards(read_story([outcome_run(tmp_path / "b", few)]))
    assert (card.headline, card.tally) == ("Cannot tell yet.", "")
