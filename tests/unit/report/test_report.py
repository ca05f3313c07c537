"""A report answers first, proves second, and says what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.errors import BadInput
from nodrop.report.answer import answer
from nodrop.report.story import read_story
from nodrop.report.tables import MOST_ON_PAPER
from nodrop.report.write import report_json, write_report
from nodrop.results.layout import WrittenPart
from tests.made.rundirs import Fake, Trouble, make_run
from tests.pages import page_of


def test_the_answer_names_the_load_the_loss_the_place_and_the_thread(demo: Path) -> None:
    clean, sentence = answer(read_story([demo])).sentences
    assert clean.text.startswith(
        "Suricata, 99,970 packets/s (4X): 0 of 6 trials lost a packet, so fewer than 39 %"
    )
    assert sentence.text.startswith(
        "Suricata: at 199,940 packets/s (8X), 6 of 6 trials lose packets in the socket ring: "
    )
    assert "thread W#01-ndrx0 used 99 % of one CPU" in sentence.text
    assert sentence.knob.startswith("sut.threads, fewer rules")


def test_it_rests_on_and_cannot_say(mixed: Path) -> None:
    found = answer(read_story([mixed]))
    first, second = (s.text for s in found.rests_on)
    assert first == "14 measured trials of 18, 1 failed, 3 void in 3 cells, 4 to 5 per cell"
    assert second == "packet books that close to zero in 16 of 18 trials; of 1 there are no books"
    assert any("fewer than 6 measured trials" in s.text for s in found.cannot_say)
    assert any("3 void trials say nothing" in s.text for s in found.cannot_say)
    assert any("1 failed trial, which counts against" in s.text for s in found.cannot_say)


def test_a_run_without_loss_claims_no_capacity(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake(capacity_pps=1e9, samples=False))
    found = answer(read_story([run]))
    assert "8X" in found.sentences[0].text
    assert "where loss begins for Suricata: nothing above 199,940 packets/s (8X) was asked for" in [
        s.text for s in found.cannot_say
    ]


def test_a_run_that_always_loses(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake(capacity_pps=20_000, samples=False))
    (sentence,) = answer(read_story([run])).sentences
    assert sentence.text.startswith(
        "Suricata: at 24,992 packets/s (1X), the lowest load measured, 6 of 6 trials lose"
    )


def test_a_run_of_void_trials(tmp_path: Path) -> None:
    late = {i: Trouble(late=True) for i in range(18)}
    run = make_run(tmp_path, Fake(trouble=late))
    sentences = answer(read_story([run])).sentences
    assert [
        s.text.partition(" are void for one reason: the sender was late")[0] for s in sentences
    ] == [
        f"Suricata: all 6 trials at {rate} packets/s ({n}X)"
        for n, rate in ((1, "25,000"), (4, "100,000"), (8, "200,000"))
    ]
    assert {s.rule for s in sentences} == {"always-void"}


@pytest.mark.parametrize(
    ("options", "setting"),
    [({"pps": 400_000.0}, "load.pps=200000"), ({"speed": 3.0}, "load.speed=1.5")],
)
def test_less_load_halves_the_key_that_the_experiment_has(
    tmp_path: Path, options: dict[str, float], setting: str
) -> None:
    """Seen: load.speed=0.5 for a load in packets/s, which no experiment may have."""
    late = {i: Trouble(late=True) for i in range(6)}
    run = make_run(tmp_path, Fake(cells=({},), repetitions=6, trouble=late))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["loads"] = [{"generator": "replay", "options": {**options, "multiplier": 1}}]
    (run / "manifest.json").write_text(json.dumps(manifest))
    (finding,) = answer(read_story([run])).sentences
    assert f"--set {setting}" in finding.to_do


def test_cells_come_in_the_order_of_their_values(tmp_path: Path) -> None:
    cells = tuple(
        {"setup.kind": setup, "load.multiplier": n} for setup in ("docker", "bare") for n in (16, 2)
    )
    story = read_story([make_run(tmp_path, Fake(cells=cells, repetitions=1))])
    assert [c.label for c in story.cells] == [
        "bare · 2X",
        "bare · 16X",
        "docker · 2X",
        "docker · 16X",
    ]
    subjects = [sentence.subject for sentence in answer(story).sentences]
    assert subjects == ["", "docker", "bare", "bare", "docker", "docker"]


def test_a_run_without_a_single_trial(tmp_path: Path) -> None:
    run = make_run(tmp_path, Fake(repetitions=0))
    page = page_of(run, out=tmp_path / "out")
    assert "there is no answer" in page


def test_only_what_is_asked_for(demo: Path, tmp_path: Path) -> None:
    assert (
        write_report(read_story([demo]), tmp_path, only=[WrittenPart.LATEX, WrittenPart.MARKDOWN])
        == tmp_path
    )
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["cells.tex", "report.md", "trials.tex"]


@pytest.mark.parametrize("loads", [(4,), (2, 8)])
def test_verdicts_of_setups_on_paper(loads: tuple[int, ...], tmp_path: Path) -> None:
    cells = [{"setup.kind": s, "load.multiplier": n} for n in loads for s in ("docker", "bare")]
    story = read_story([make_run(tmp_path, Fake(cells=tuple(cells), repetitions=3, samples=False))])
    write_report(story, tmp_path / "usual", only=[WrittenPart.LATEX])

    def rows(folder: str, table: str) -> list[list[str]]:
        text = (tmp_path / folder / f"{table}.tex").read_text()
        lines = [line for line in text.splitlines() if line.endswith(r" \\")]
        return [line.removesuffix(r" \\").split(" & ") for line in lines]

    for table in ("cells", "trials", "setups"):
        assert {len(row) for row in rows("usual", table)} <= {*range(6, MOST_ON_PAPER + 1)}
    assert any("Loss" in column for column in rows("usual", "trials")[0])
    head, *body = rows("usual", "setups")
    assert len(body) == 2 * len(loads) and ("Condition" in head) == (len(loads) > 1)
    at = next(n for n, title in enumerate(head) if title.startswith("SUT CPU"))
    base, docker = body[0], body[1]
    assert float(base[at]) > 0 and "cannot tell yet" in docker[at], "a verdict, not two numbers"
    asked = ["void_trials", "setup", "loss_pct", "cell"]
    write_report(story, tmp_path / "asked", only=[WrittenPart.LATEX], columns=asked)
    assert rows("asked", "cells")[0] == ["Void", "Cell"]
    assert rows("asked", "setups")[0] == ["Setup", r"Loss, \%"]
    with pytest.raises(BadInput, match="--columns: no column loss_pc; did you mean loss_pct"):
        write_report(story, tmp_path / "none", only=[WrittenPart.LATEX], columns=["loss_pc"])
    assert not (tmp_path / "none").exists()


def test_the_answer_for_a_machine(mixed: Path) -> None:
    found = json.loads(json.dumps(report_json(read_story([mixed])), allow_nan=False))
    assert [*found] == ["answer", "cells", "cards", "setups", "findings"]
    assert [c["valid_trials"] for c in found["cells"]] == [5, 4, 5]
    assert found["cells"][0]["factors"] == {"load.multiplier": 1}
    rules = [s["rule"] for s in found["answer"]["sentences"]]
    assert rules[:3] == ["loses-sometimes", "failed", "loads-out-of-order"]
    assert {f["good"] for f in found["findings"]} == {True, False}


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run directory"):
        write_report(read_story([tmp_path]), tmp_path / "out")
