"""Repeated until it is known closely: what the interval of a cell then covers, and who stops when.

Every simulation is seeded. NODROP_SIMULATIONS=10000 repeats each so many times; with `pytest -s`
the rates are printed, and docs/methodology.md has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nodrop.cli import main
from nodrop.config.search import FEWEST, UNITS, Repetitions
from nodrop.measure.controllers.blocks import Asked, AskedCell, Blocks, Controller, TrialInput
from nodrop.results.summary import METRICS, known, looks
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import LookPlan, median_rank, runs_needed
from nodrop.testing.contracts import check_controller
from tests.known_answers.worlds import WORLDS, rate, repeated, seeded
from tests.made import outcome_runs

Runs = NDArray[np.float64]
PLANS = ((6, 40), (10, 60), (6, 150))


def covered(runs: Runs, ranks: Sequence[int], truth: Sequence[float], width: float) -> float:
    """Share of cases whose interval covers the truth at the stop: at the first that is narrow
    enough, or the last. `ranks` and `truth` go by the number of runs; a width of -1 stops as soon
    as the interval does not cover, and no other rule can do worse."""
    right = np.zeros(len(runs), dtype=bool)
    open_ = np.ones(len(runs), dtype=bool)
    last = runs.shape[1]
    for n in range(1, last + 1):
        if not ranks[n]:
            continue
        ordered = np.sort(runs[:, :n], axis=1)
        low, high = ordered[:, ranks[n] - 1], ordered[:, n - ranks[n]]
        covers = (low <= truth[n]) & (truth[n] <= high)
        ends = (~covers if width < 0 else (high - low) / 2 <= width) | (n == last)
        right[open_ & ends] = covers[open_ & ends]
        open_ &= ~ends
    return float(np.mean(right))


def ranks_of(looks: LookPlan) -> list[int]:
    return [looks.rank(n) for n in range(looks.last + 1)]


class TestCoverage:
    @pytest.mark.parametrize("plan", PLANS, ids=str)
    @pytest.mark.parametrize("world", WORLDS)
    def test_whenever_one_stops_it_covers(self, world: str, plan: tuple[int, int]) -> None:
        first, last = plan
        rng = seeded("stopping", world, plan)
        runs = WORLDS[world][0](rng, (repeated(500), last))
        truth = [WORLDS[world][1]] * (last + 1)
        for width in (-1.0, 0.2, 0.6, 2.0):
            found = covered(runs, ranks_of(LookPlan(first=first, last=last)), truth, width)
            rate(f"coverage, {world}, {plan}, until {width}", found)
            assert found >= 0.94 - 3 * (0.05 * 0.95 / len(runs)) ** 0.5 * (len(runs) < 2000)

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    @pytest.mark.parametrize("whole", [0.5, 1.0, 3.0])
    def test_under_a_drift_it_covers_the_median_of_what_was_there(
        self, whole: float, plan: tuple[int, int]
    ) -> None:
        """The runs drift by so many standard deviations until the last. What is covered is the
        median of the time in which the cell was measured."""
        first, last = plan
        rng = seeded("stopping, drift", whole, plan)
        runs = rng.normal(0, 1, (repeated(500), last)) + whole * np.arange(1, last + 1) / last
        truth = [whole * (n + 1) / 2 / last for n in range(last + 1)]
        for width in (-1.0, 0.2, 0.6, 2.0):
            found = covered(runs, ranks_of(LookPlan(first=first, last=last)), truth, width)
            assert rate(f"coverage, drift of {whole}, {plan}, until {width}", found) >= 0.94 - (
                0.03 if len(runs) < 2000 else 0
            )

    @pytest.mark.parametrize("within", [0.1, 1.0, 5.0])
    @pytest.mark.parametrize("trials", [2, 3, 8])
    def test_starts_are_counted_and_not_their_trials(self, within: float, trials: int) -> None:
        rng, last = seeded("stopping, starts", within, trials), 30
        shape = (repeated(500), last)
        each = rng.normal(0, within, (*shape, trials))
        starts = rng.normal(0, 1, shape) + np.median(each, axis=2)
        for width in (-1.0, 0.5, 1.0):
            found = covered(
                starts, ranks_of(LookPlan(first=6, last=last)), [0.0] * (last + 1), width
            )
            assert rate(f"coverage, starts {within}, {trials}, until {width}", found) >= 0.92

    @pytest.mark.parametrize(("world", "width"), [("normal", 0.6), ("skewed", 0.8), ("wide", 5.0)])
    def test_the_plain_interval_looked_at_each_time_would_not(
        self, world: str, width: float
    ) -> None:
        """Stopped at a width it loses some coverage, stopped at will most of it."""
        runs = WORLDS[world][0](seeded("naive", world), (repeated(2000), 40))
        naive = [0, *(median_rank(n, 0.05)[0] for n in range(1, 41))]
        truth = [WORLDS[world][1]] * 41
        at_width = rate(f"coverage, naive, {world}, width", covered(runs, naive, truth, width))
        at_will = rate(f"coverage, naive, {world}, at will", covered(runs, naive, truth, -1.0))
        assert at_will < 0.88 < at_width

    @pytest.mark.parametrize(("first", "last"), [(6, 14), (7, 12), (6, 6), (9, 15)])
    @pytest.mark.parametrize("error", [0.05, 0.2])
    def test_the_error_is_exact(self, first: int, last: int, error: float) -> None:
        """Each way in which the runs may lie about the median, one by one."""
        looks = LookPlan(first=first, last=last, error=error)
        signs = np.array(list(itertools.product((0, 1), repeat=last)))
        below = np.cumsum(signs, axis=1)
        wrong = np.zeros(len(signs), dtype=bool)
        for n in range(1, last + 1):
            if rank := looks.rank(n):
                wrong |= (below[:, n - 1] < rank) | (n - below[:, n - 1] < rank)
        interval = looks.interval(range(last))
        assert interval is not None
        assert np.mean(wrong) == pytest.approx(1 - interval.coverage)
        assert np.mean(wrong) <= error + 1e-12

    @pytest.mark.parametrize("n", [6, 9, 17, 40, 200])
    def test_a_single_look_is_the_plain_interval(self, n: int) -> None:
        assert LookPlan(first=n, last=n).rank(n) == median_rank(n, 0.05)[0]

    @pytest.mark.parametrize("plan", [(6, 40), (6, 1000), (13, 90)])
    def test_more_runs_never_leave_out_less(self, plan: tuple[int, int]) -> None:
        ranks = ranks_of(LookPlan(first=plan[0], last=plan[1]))
        assert ranks == sorted(ranks)
        assert ranks[plan[0] - 1] == 0 < ranks[plan[0]]
        assert LookPlan(first=plan[0], last=plan[1]).rank(plan[1] + 50) == ranks[-1]


# --- who stops when -------------------------------------------------------------------------------


def rule(least: int = 6, most: int = 40, *until: str) -> Repetitions:
    return Repetitions(min=least, max=most, until=until or ("loss_ratio half-width <= 0.1 points",))


def asked(cells: int, found: Repetitions, *, sut: str = "fresh", seed: int = 1) -> Asked:
    made = [AskedCell(factors={"load.multiplier": n}, load={"n": n}) for n in range(cells)]
    return Asked(
        cells=made, repetitions=found.max, rule=found, seed=seed,
        sut="standing" if sut == "standing" else "fresh", guess_s=10.0,
    )  # fmt: skip


def measured(trial: TrialInput, **fields: object) -> TrialRecord:
    """Cell 0 loses nothing, cell 1 about 1 %, cell 2 anything at all."""
    rng = seeded(str(trial.cell), trial.repetition)
    spread = (0.0, 0.00035, 0.4)[int(str(trial.cell["load.multiplier"])) % 3]
    found = {"cell": trial.cell, "repetition": trial.repetition, "index": trial.index}
    found |= {"run": trial.run_name, "outcome": "measured", "valid": True, "verdict": ""}
    found |= {"loss_ratio": float(spread * (2 + rng.normal()) ** 2), "took_s": 2.0}
    return outcome_runs.trial(**found | fields)


def all_of(
    controller: Controller, done: Sequence[TrialRecord] = (), *, each: int = 1
) -> list[TrialRecord]:
    """`each`: so many trials of a cell share a start of the SUT."""
    found = list(done)
    while (trial := controller.next(found)) is not None:
        world = 100 * ((trial.repetition - 1) // each) + int(str(trial.cell["load.multiplier"]))
        found.append(measured(trial, world=world))
    return found


def counts(found: Sequence[TrialRecord]) -> list[int]:
    multipliers = [int(str(record.cell["load.multiplier"])) for record in found]
    return [multipliers.count(n) for n in range(max(multipliers) + 1)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("most", [20, 40, 60])
def test_cells_stop_at_different_times_and_blocks_are_kept(seed: int, most: int) -> None:
    steady = rule(6, most)
    found = all_of(Blocks(asked(3, steady, seed=seed)))
    n = counts(found)
    assert n[0] == 6 < n[1] < n[2] == most
    assert [record.index for record in found] == list(range(1, len(found) + 1))
    # Never is a cell ahead of another by more than a block, as long as both go on.
    for k in range(len(found)):
        so_far = counts(found[: k + 1])
        going_on = [c for c, full in zip(so_far, n, strict=False) if c < full]
        assert not going_on or max(going_on) - min(going_on) <= 1
    for number in range(3):
        mine = [r for r in found if r.cell["load.multiplier"] == number]
        reached = known(mine, steady, "fresh")[0].reached
        assert reached == (number != 2)
        assert not known(mine[:-1], steady, "fresh")[0].reached


@pytest.mark.parametrize("seed", [1, 5, 9])
@pytest.mark.parametrize("sut", ["fresh", "standing"])
def test_a_resumed_run_goes_on_as_it_would_have(seed: int, sut: str) -> None:
    made = asked(3, rule(12, 48), sut=sut, seed=seed)
    whole = all_of(Blocks(made), each=2 if sut == "standing" else 1)
    for k in range(len(whole)):
        following = Blocks(made).next(whole[:k])
        assert following is not None and following.run_name == whole[k].run
    assert Blocks(made).next(whole) is None
    check_controller(Blocks, made, measured)


@pytest.mark.parametrize("lacking", [0, 7, 20, 33])
def test_a_void_trial_is_measured_again_and_no_number_twice(lacking: int) -> None:
    """A resumed run feeds it back without its void trials."""
    made = asked(3, rule(6, 40))
    whole = all_of(Blocks(made))
    void = whole[lacking]
    found = all_of(Blocks(made), [record for record in whole if record is not void])
    assert len({record.index for record in found}) == len(found)
    assert len({record.run for record in found}) == len(found)
    assert Blocks(made).next(found) is None


@pytest.mark.parametrize(("least", "each"), [(6, 1), (12, 2), (19, 3), (48, 8)])
def test_of_a_sut_that_stays_up_starts_are_counted(least: int, each: int) -> None:
    found = all_of(Blocks(asked(2, rule(least, 2 * least), sut="standing")), each=each)
    starts = [r for r in found if r.cell["load.multiplier"] == 0]
    assert len(starts) == each * (least // each)
    assert looks(rule(least, 2 * least), "standing").first >= FEWEST
    shares = list(Blocks(asked(2, rule(least, 60), sut="standing")).beforehand())
    assert sum(trial.new_world for trial in shares) == 2 * (least // each)


def test_the_outlook_is_a_range() -> None:
    blocks = Blocks(asked(3, rule(6, 40)))
    outlook = blocks.outlook([])
    assert outlook.at_most is not None
    assert (outlook.at_least.trials, outlook.at_most.trials) == (18, 120)
    outlook = blocks.outlook(all_of(blocks)[:20])
    assert outlook.at_most is not None
    assert outlook.at_least.trials == 2 and outlook.at_most.trials > 30
    assert outlook.at_most.seconds == outlook.at_most.trials * 2


@pytest.mark.parametrize(
    ("until", "values", "half"),
    [
        ("loss_ratio half-width <= 0.1 points", {"loss_ratio": [0.01, 0.012] * 3}, 0.1),
        ("sut_cpu_s half-width <= 5 %", {"sut_cpu_s": [1.9, 2.1] * 3}, 5),
        ("sut_cpu_s half-width <= 0.1 s", {"sut_cpu_s": [1.9, 2.1] * 3}, 0.1),
        ("sut_rss_peak_bytes half-width <= 2 MiB", {"sut_rss_peak_bytes": [0, 4 << 20] * 3}, 2),
        ("host_cpu_ratio half-width <= 3 points", {"host_cpu_ratio": [0.5, 0.56] * 3}, 3),
        ("activation_s half-width <= 0.2 s", {"activation_s": [2.1, 2.5] * 3}, 0.2),
    ],
)
def test_half_widths_in_their_units(
    until: str, values: dict[str, list[float]], half: float
) -> None:
    (name, found), blocks = next(iter(values.items())), Blocks(asked(1, rule(6, 6)))
    trials = [
        measured(trial, **{name: value})
        for trial, value in zip(blocks.beforehand(), found, strict=True)
    ]
    (said,) = known(trials, rule(6, 40, until), "fresh")
    assert said.half_width == pytest.approx(half)
    assert said.reached and str(said.until) == until


def test_what_is_not_measured_is_never_known() -> None:
    steady = rule(6, 9, "loss_ratio half-width <= 1 points", "sut_cpu_s half-width <= 9 %")
    made = asked(1, steady)
    found = all_of(Blocks(made))
    assert len(found) == 9
    assert [one.reached for one in known(found, steady, "fresh")] == [True, False]


def test_each_metric_of_a_rule_is_read_from_a_record() -> None:
    assert set(UNITS) == set(METRICS)
    assert runs_needed() == FEWEST


# --- bad input ------------------------------------------------------------------------------------

GOOD = """
name = "x"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:tiny"
"""
LOSS = 'until = "loss_ratio half-width <= 0.1 points"'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (f"min = 40, max = 6, {LOSS}", "min = 40 must be <= max = 6"),
        (f"min = 9, max = 8, {LOSS}", "min = 9 must be <= max = 8"),
        (f"min = 5, max = 8, {LOSS}", "repetitions.min = 5: must be >= 6"),
        (f"min = 0, max = 8, {LOSS}", "repetitions.min = 0: must be >= 6"),
        (f"min = 6.5, max = 8, {LOSS}", "repetitions.min = 6.5: must be a whole number"),
        (f"max = 1001, {LOSS}", "repetitions.max = 1001: must be <= 1000"),
        (LOSS, "repetitions.max: missing"),
        ("max = 8", "repetitions.until: missing"),
        ("max = 8, until = []", "must have at least one rule"),
        ("max = 8, until = 3", "repetitions.until = 3"),
        (f"max = 8, mix = 6, {LOSS}", "did you mean measure.repetitions.min?"),
        ('max = 8, until = "loss"', "must read"),
        ('max = 8, until = "loss_ratio <= 1 points"', "must read"),
        ('max = 8, until = "loss_ratio half-width <= 1"', "must read"),
        ('max = 8, until = "loss_ratio half-width <= 1..2 points"', "must read"),
        ('max = 8, until = "loss_ratios half-width <= 1 points"', "did you mean loss_ratio?"),
        ('max = 8, until = "x half-width <= 1 points"', "no such metric; allowed are"),
        ('max = 8, until = "loss_ratio half-width <= 1 s"', "is no unit of loss_ratio"),
        ('max = 8, until = "loss_ratio half-width <= 1 %"', "allowed are points"),
        ('max = 8, until = "activation_s half-width <= 1 parsec"', "allowed are s, %"),
        ('max = 8, until = "loss_ratio half-width <= -1 points"', "must be > 0"),
        ('max = 8, until = "loss_ratio half-width <= 0 points"', "must be > 0"),
        ('max = 8, until = "loss_ratio half-width <= 1e999 points"', "must be > 0 and finite"),
    ],
)
def test_a_rule_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, said: str
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f"{GOOD}[measure]\nrepetitions = {{{table}}}\n")
    for argv in (["plan", str(file)], ["run", str(file), "--out", str(tmp_path / "out")]):
        code, line = main.exit_code(argv), capsys.readouterr().err
        assert (code, len(line.splitlines())) == (2, 1), line
        assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["capacity", "other"])
def test_a_rule_is_for_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'{GOOD}[measure]\nmode = "{mode}"\nrepetitions = {{max = 9, {LOSS}}}\n')
    assert main.exit_code(["plan", str(file)]) == 2
    assert 'a table is for mode = "blocks"' in capsys.readouterr().err
