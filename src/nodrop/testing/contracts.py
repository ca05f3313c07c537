"""Rules that every setup, SUT, generator, lab and controller must keep: tests for authors of
plugins.

    def test_my_setup() -> None:
        check_setup(MySetup({"kind": "shed"}, base=Path()))

Each function raises AssertionError that names what is broken. They need no lab, no root and no
image; only a run shows what a plugin does with packets (docs/architecture.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.ledger.hops import Owner, Place
from nodrop.measure.controllers.blocks import Asked, Controller, Outlook, TrialInput
from nodrop.results.trial import TrialRecord
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.labs.api import Lab
from nodrop.testbed.load.api import LoadGenerator
from nodrop.testbed.setups.api import Limits, Setup
from nodrop.testbed.suts.api import Sut

Build = Callable[..., Any]
"""A plugin's entry point: `build(table, base=folder)`."""
A_LOT_PPS = 1e9


def check_options(build: Build, table: Mapping[str, Any], *, name: str) -> None:
    """A key that does not exist is BadInput that names the table and the key, in one line."""
    try:
        build({**table, "no-such-key": 1}, base=Path())
    except BadInput as error:
        line = error.message
        assert f"{name}.no-such-key" in line, f"the line names no {name}.no-such-key: {line}"
        assert "\n" not in line, f"more than one line: {line}"
    else:
        raise AssertionError(f"{name}.no-such-key was taken for a key")


def check_setup(setup: Setup) -> None:
    assert isinstance(setup, Setup), "no subclass of nodrop.testbed.setups.api.Setup"
    _name(setup.name)
    _places(setup.places, Owner.SETUP)
    _one_line(setup.alone, "alone")
    problems, cpus = setup.problems(None, Limits()), setup.cpus(Limits())
    _problems(problems)
    assert cpus or problems, "no CPU to be pinned to, and no problem"
    assert all(isinstance(cpu, int) and cpu >= 0 for cpu in cpus), f"cpus: {cpus}"


def check_sut(sut: Sut) -> None:
    assert isinstance(sut, Sut), "no subclass of nodrop.testbed.suts.api.Sut"
    _name(sut.name)
    _places(sut.places, Owner.SUT)
    recipe = sut.needs_bits()
    assert recipe is None or recipe, "needs_bits: an empty name is no recipe"
    assert sut.holds_packets is None or sut.holds_packets > 0, "holds_packets: None if not known"
    assert sut.rest_seen_s is None or sut.rest_seen_s >= 0, "rest_seen_s: None if not known"
    for shown, path in sut.files().items():
        assert "/" not in shown, f"files: {shown} is no name in the work folder"
        assert path.is_absolute(), f"files: {path} depends on the folder nodrop is started in"
    _facts(sut.facts())


def check_load(load: LoadGenerator) -> None:
    assert isinstance(load, LoadGenerator), "no subclass of nodrop.testbed.load.api.LoadGenerator"
    _name(load.name)
    assert load.unit in ("packets", "transactions"), f"unit: {load.unit}"
    assert load.late_ratio >= 0, "late_ratio: how much longer than asked it may take"
    assert load.senders >= 0, "senders: 0 if there is nothing to pin"
    duration_s, pps = load.duration_s(), load.mean_pps()
    assert duration_s is None or duration_s >= 0, f"duration_s: {duration_s}"
    assert pps is None or 0 < pps < A_LOT_PPS, f"mean_pps: {pps}"
    assert load.duration_s() == duration_s, "duration_s: asked twice, it says something else"
    _problems(load.problems())
    _facts(load.facts())


def check_lab(lab: Lab) -> None:
    _name(lab.name)
    sender, receiver = lab.ports
    assert sender and receiver, f"ports: {lab.ports}"
    larger = lab.carrying(60_000)
    assert (larger.name, larger.ports) == (lab.name, lab.ports), "carrying: another lab came out"
    _problems(lab.problems())
    _facts(lab.facts())


def check_controller(
    build: Callable[[Asked], Controller],
    asked: Asked,
    measure: Callable[[TrialInput], TrialRecord],
    *,
    most_trials: int = 1000,
) -> Sequence[TrialInput]:
    """Runs it on a fake measurer until it has nothing to add; what it asked for, in order.

    The same records give the same answer, also to a controller that did not see how they came to
    be: that is all a resumed run has.
    """
    controller = build(asked)
    cells = [cell.factors for cell in asked.cells]
    beforehand = controller.beforehand()
    given: list[TrialInput] = []
    done: list[TrialRecord] = []
    while (trial := controller.next(done)) is not None:
        assert len(given) < most_trials, f"no end after {most_trials} trials"
        assert trial == build(asked).next(done), "the answer depends on more than the records"
        assert trial.index == len(given) + 1, f"index {trial.index} after {len(given)} trials"
        assert trial.cell in cells, f"a cell that was not asked for: {trial.cell}"
        _outlook(controller.outlook(done), ended=False)
        given.append(trial)
        done.append(measure(trial))
    assert list(beforehand) == given[: len(beforehand)], "beforehand was not what came"
    _outlook(controller.outlook(done), ended=True)
    return given


def _outlook(outlook: Outlook, *, ended: bool) -> None:
    least, most = outlook.at_least, outlook.at_most
    assert least.trials >= 0 and least.seconds >= 0, f"outlook: {outlook}"
    assert most is None or least.trials <= most.trials, f"outlook: {outlook}"
    assert not ended or least.trials == 0, f"at its end it still expects {least.trials} trials"


def _name(name: str) -> None:
    assert name and name == name.strip() and "\n" not in name, f"name: {name!r}"


def _places(places: Sequence[Place], owner: Owner) -> None:
    names = [place.name for place in places]
    assert len(names) == len(set(names)), f"places: a name stands there twice: {names}"
    for place in places:
        assert place.owner is owner, f"place {place}: owned by {place.owner}"
        assert place.counter, f"place {place}: what counts its losses?"
        assert place.source, f"place {place}: which code drops there?"


def _problems(problems: Sequence[str]) -> None:
    assert not isinstance(problems, str), "problems: a sequence of lines, not one text"
    for problem in problems:
        assert problem, "problems: an empty line"
        _one_line(problem, "problems")


def _one_line(words: str, what: str) -> None:
    assert "\n" not in words, f"{what}: more than one line: {words}"


def _facts(facts: Json) -> None:
    json.dumps(facts, allow_nan=False)  # they go into the manifest
