"""Time that a plan takes which several pairs share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.config.experiment import load_experiment
from nodrop.measure.controllers.blocks import Outlook
from nodrop.measure.plan import make_plan
from nodrop_fleet.members import in_parallel
from tests.slow.measure.fleet.test_pairs import EXPERIMENT


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Four cells, three repetitions of 5 s."""
    path = tmp_path / "asked.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.mark.parametrize(
    ("pairs", "host_invariant", "part"),
    [
        (1, False, 1),
        (2, False, 1 / 2),
        (3, False, 1 / 2),  # one of them has two of the four cells
        (4, False, 1 / 4),
        (9, False, 1 / 4),
        (3, True, 1 / 3),
        (9, True, 1 / 9),
    ],
)
def test_the_pair_with_most_cells_takes_longest(
    asked: Path, pairs: int, host_invariant: bool, part: float
) -> None:
    alone = make_plan(load_experiment(asked, ()))
    shared = in_parallel(alone, pairs, host_invariant=host_invariant)
    assert alone.load_s == pytest.approx(60) and shared.load_s == pytest.approx(60 * part)
    assert shared.around_s == pytest.approx(alone.around_s * part)

    def left_s(outlook: Outlook) -> float:
        return outlook.at_least.seconds

    assert left_s(shared.controller.outlook([])) == pytest.approx(
        left_s(alone.controller.outlook([])) * part
    )
    assert shared.controller.outlook([]).at_least.trials == 12


def test_plan_says_it_of_a_fleet_file(
    asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.toml").write_text(f'name = "pair{number}"\nkind = "netns"\n')
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'name = "four"\npairs = {[f"{number}.toml" for number in range(4)]}\n')
    said = {}
    for name, options in (("alone", []), ("shared", ["--fleet", str(fleet)])):
        assert exit_code(["plan", str(asked), *options, "--json"]) == 0
        said[name] = json.loads(capsys.readouterr().out)
    assert said["shared"]["load_s"] == said["alone"]["load_s"] / 4
    assert len(said["shared"]["trials"]) == 12
