"""The picture of a search: every trial a mark, the fitted curve, what is void or stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.capacity.pictures import knee_of
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.section import CapacitySection, capacity_section, capacity_tables
from nodrop.capacity.words import fitted, stand_apart
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.stats.loss_curve import LossCurve, NoCurve
from tests.depth import depth
from tests.made.outcome_runs import Load, outcome_search, tried
from tests.made.told import told


def exactly(capacity: float, loads: Sequence[float]) -> list[Load]:
    """Losses of each load by a SUT of this capacity (in X, of 1,000 packets/s)."""
    return [tried(x, [max(0.0, 1 - capacity / x)]) for x in loads]


def search_of(run: Path) -> SearchedCell:
    (found,) = searches(read_story([run]))
    return found


def section_of(run: Path) -> CapacitySection:
    found = capacity_section(read_story([run]))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("capacity", "words"), [(8.0, "8,000"), (61.25, "61,250"), (3.456, "3,456"), (0.5, "500")]
)
def test_the_curve_is_that_of_a_sut_whose_capacity_is_known(
    tmp_path: Path, capacity: float, words: str
) -> None:
    loads = [capacity * part for part in (0.25, 0.5, 0.99, 1.01, 1.02, 1.05, 1.2)]
    run = outcome_search(tmp_path, exactly(capacity, loads))
    found = fitted(search_of(run))
    assert isinstance(found, LossCurve)
    assert found.capacity_pps == pytest.approx(capacity * 1000, rel=1e-3)
    assert (found.n, found.lossy) == (7, 4)
    curve = knee_of(search_of(run)).curve
    assert (curve[0].pps, curve[-1].pps) == pytest.approx((loads[0] * 1000, loads[-1] * 1000))
    assert curve[-1].loss_pct == pytest.approx(100 - 100 / 1.2, abs=0.1)
    (view,) = section_of(run).views
    assert f"takes {words} packets/s" in view.caption
    assert 'class="area fit"' in str(view.knee) and "its 95 % band" in str(view.knee)


@pytest.mark.parametrize(
    ("loads", "why"),
    [
        ([tried(n, [0.1]) for n in (1, 2, 4, 8, 16)], "every trial lost"),
        ([tried(n, [0.0]) for n in (1, 2, 4, 8, 16)], "no trial that decides lost"),
        ([tried(n, [0.0]) for n in (1, 2)] + [tried(3, [0.1])], "3 trials, and it takes 5"),
        ([tried(1, [0.0])] + [tried(n, [0.1]) for n in (2, 4, 8, 16)], "the same share"),
    ],
)
def test_where_no_curve_is_fitted_the_reason_stands(
    tmp_path: Path, loads: list[Load], why: str
) -> None:
    run = outcome_search(tmp_path, loads)
    found = fitted(search_of(run))
    assert isinstance(found, NoCurve) and why in found.why
    (view,) = section_of(run).views
    assert f"No loss curve is fitted: {found.why}." in view.caption
    assert 'class="area fit"' not in str(view.knee)


def test_what_the_rings_held_is_no_capacity(tmp_path: Path) -> None:
    """Half of what was too much found room; the pace shows the rest."""
    loads = [tried(x, [0.0]) for x in (2, 4, 7, 7.9)]
    for x in (8.2, 8.4, 8.8, 9.6):
        lost = (1 - 8 / x) / 2
        pace = {"service_pps_at_least": 8000.0, "sustained": None}
        one = tried(x, [lost])
        loads.append(Load(cell={}, trials=[lost], pps=one.pps, duration_s=5.0,
                          fields={**one.fields, **pace}, each=one.each))  # fmt: skip
    found = fitted(search_of(outcome_search(tmp_path, loads)))
    assert isinstance(found, LossCurve)
    assert found.capacity_pps == pytest.approx(8000, rel=1e-3)


@pytest.mark.parametrize(("void", "failed"), [(1, 0), (3, 1), (0, 2)])
def test_void_and_failed_trials_are_shown_apart(tmp_path: Path, void: int, failed: int) -> None:
    loads = [tried(4, [0.0]), tried(5, [0.1]), tried(6, ["late"] * void + ["died"] * failed)]
    (view,) = section_of(outcome_search(tmp_path, loads)).views
    trials, key = 2 + void + failed, 1
    assert len(view.knee.panes[-1].plots[0].told) == trials == len(told(view.way))
    for drawing in (view.knee, view.way):
        drawn = str(drawing).rpartition('class="pad')[2]
        assert drawn.count('"#m-diamond"') == void
        assert drawn.count('"#m-cross"') == failed
    for drawing in (view.knee, view.way):
        assert str(drawing).count(" void</li>") == (key if void else 0)
        assert str(drawing).count(" the SUT failed</li>") == (key if failed else 0)
    assert ("void ones" in view.caption) == bool(void)


@pytest.mark.parametrize("loss", [0.2, 0.5, 0.9])
def test_what_stands_apart_is_marked_and_changes_no_answer(tmp_path: Path, loss: float) -> None:
    usual = [tried(8, [0.0] * 7), tried(8.1, [0.0125, 0.0123, 0.0127, 0.0124, 0.0126, 0.0122])]
    wild = [tried(8.2, [loss])]
    quiet, other = (
        outcome_search(tmp_path / name, loads, search={"rounds": 7})
        for name, loads in (("quiet", usual), ("other", [*usual, *wild]))
    )
    assert stand_apart(search_of(quiet)) == {}
    ((run, words),) = stand_apart(search_of(other)).items()
    assert words.startswith("stands apart: it served ")
    (view,) = section_of(other).views
    assert any(run in said for said in told(view.knee))
    assert str(view.knee).count('"#m-halo"') == 1 and "stands apart from" in str(view.knee)
    assert "What stands apart is marked" in view.caption
    assert len(list(view.steps.rows)) == 14
    assert [words in row.values[-1].shown for row in view.steps.rows].count(True) == 1
    known = fitted(search_of(other))
    assert isinstance(known, LossCurve) and known.n == 14, "and it is in the fit"


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.004])
def test_less_than_a_percent_is_not_apart(tmp_path: Path, noise: float) -> None:
    losses = [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 + noise]
    run = outcome_search(tmp_path, [tried(8, losses)], search={"rounds": 7})
    assert stand_apart(search_of(run)) == {}


@pytest.mark.parametrize("first", [12, 40, 400])
def test_loads_near_the_answer_have_a_panel_of_their_own_if_the_search_began_far_from_them(
    tmp_path: Path, first: float
) -> None:
    short = tried(first, [0.5])
    each = {1: {"searched": {**short.each[1]["searched"], "duration_s": 3.0}}}
    far = Load(cell={}, trials=[0.5], pps=short.pps, fields=short.fields, each=each)
    loads = [*exactly(9, [8, 8.5, 8.9, 9.1, 9.3, 9.4]), far]
    (view,) = section_of(outcome_search(tmp_path, loads)).views
    assert [pane.heading for pane in view.knee.panes] == ["Lost", "All loads"]
    assert [len(pane.plots[0].told) for pane in view.knee.panes] == [5, 7]


def test_rounds_are_told_apart_in_the_order(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(4, [0.0] * 3), tried(5, [0.1] * 3)])
    (view,) = section_of(run).views
    assert [str(view.way).count(f"round </tspan>{n}<") for n in (1, 2, 3, 4)] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (1, ""),
        (3, "; 6,000 packets/s (6X) in each of 3 rounds"),
        (6, "; 6,000 packets/s (6X) in each of 6 rounds; 95 % interval 6,000 packets/s (6X)"),
    ],
)
def test_bars_say_what_rounds_carried(tmp_path: Path, rounds: int, words: str) -> None:
    loads = [
        tried(value, [loss] * rounds, cell={"setup.kind": setup})
        for setup in ("bare", "vm")
        for value, loss in ((6, 0.0), (7, 0.2))
    ]
    run = outcome_search(tmp_path, loads, search={"rounds": rounds, "goals": [0.0]})
    assert f'vm, no loss: 6,000 packets/s (6X){words}"' in str(section_of(run).bars)


@pytest.mark.parametrize("known", ["bare", "vm"])
def test_bars_without_an_end_say_at_least(tmp_path: Path, known: str) -> None:
    """Two cells whose searches ended elsewhere are not compared by the length of their bars."""
    loads = [tried(6, [0.0], cell={"setup.kind": setup}) for setup in ("bare", "vm")]
    loads.append(tried(7, [0.2], cell={"setup.kind": known}))
    bars = str(section_of(outcome_search(tmp_path, loads, search={"goals": [0.0]})).bars)
    assert bars.count(">  at least 6,000 packets/s (6X)<") == 1
    assert bars.count(">  6,000 packets/s (6X)<") == 1


@pytest.mark.parametrize("capacity", [5.0, 10.0, 25.0])
def test_the_whole_curve_is_in_sight(tmp_path: Path, capacity: float) -> None:
    """Rings hid most of the loss: the axis is that of the curve, not of the marks."""
    loads = [tried(capacity * x, [0.0]) for x in (0.9, 0.95, 0.99)]
    for x in (1.05, 1.1, 1.2):
        one = tried(capacity * x, [0.001])
        pace = {"service_pps_at_least": capacity * 1000, "sustained": None}
        loads.append(Load(cell={}, trials=[0.001], pps=one.pps, duration_s=5.0,
                          fields={**one.fields, **pace}, each=one.each))  # fmt: skip
    (view,) = section_of(outcome_search(tmp_path, loads)).views
    assert ">20</text>" in str(view.knee), "1 - 1/1.2 = 17 %"
    assert str(view.knee).count('class="span held"') == 3 + 1, "what rings held, and the key"
    assert "Bars above marks" in view.caption


def test_bars_name_the_cell_once_and_nothing_found_is_no_bar(tmp_path: Path) -> None:
    loads = [
        tried(value, [loss], cell={"setup.kind": setup})
        for setup, most in (("bare", 8), ("docker", 6))
        for value, loss in ((most, 0.0), (most + 1, 0.2))
    ]
    section = section_of(outcome_search(tmp_path / "found", loads))
    assert len(section.bars.panes) == 2 and "packets/s (8X)" in str(section.bars)
    none = [tried(2, ["late"] * 3, cell={"setup.kind": s}) for s in ("bare", "docker")]
    section = section_of(outcome_search(tmp_path / "none", none))
    assert not section.bars


@pytest.mark.parametrize("rounds", [1, depth(3), 6])
def test_files_have_curves_and_what_a_core_carries(tmp_path: Path, rounds: int) -> None:
    """The core's interval is that of starts, from six on; each cell without a curve says why."""
    loads = [
        tried(x, [max(0.0, 1 - capacity / x)] * rounds, cell={"setup.kind": kind})
        for kind, capacity in (("bare", 8), ("vm", 100))
        for x in (2, 4, 7, 9, 9.2, 9.4)
    ]
    run = outcome_search(tmp_path, loads, search={"rounds": rounds})
    tables = {table.name: table for table in capacity_tables(read_story([run]))}
    curves, work = (
        [dict(zip((c.name for c in tables[name].columns), (v.raw for v in row.values), strict=True))
         for row in tables[name].rows]
        for name in ("loss-curves", "efficiency")
    )  # fmt: skip
    assert [row["cell"] for row in curves] == [row["cell"] for row in work] == ["bare", "vm"]
    assert curves[0]["capacity_pps"] == pytest.approx(8000, rel=1e-3)
    assert (curves[0]["trials"], curves[0]["why_none"]) == (6 * rounds, "")
    assert (curves[1]["capacity_pps"], curves[1]["why_none"]) == (
        None,
        "no trial that decides lost packets",
    )
    table = tables["loss-curves"]
    at = [column.name for column in table.columns].index("capacity_pps")
    assert table.rows[0].values[at].shown == "8,000", "and not *not known*"
    sent_per_cpu_s = 16 * 1000 * 5
    assert work[0]["cpu_us_per_packet"] == pytest.approx(1e6 / sent_per_cpu_s)
    assert (work[0]["cpu_us_low"] is None) == (2 * rounds < 6), "of 4X and 7X"
    assert work[0]["packets_per_cpu_s"] is None, "its busiest thread had 15 % of a CPU"
    write_report(read_story([run]))
    drawn = {path.stem for path in (run / "report" / "figures").glob("*.svg")}
    assert {"knee", "knee-2", "search", "search-2", "capacity"} <= drawn


def test_a_search_of_void_trials_alone_has_a_page(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(2, ["late"] * 3), tried(4, ["late"] * 3)])
    (view,) = section_of(run).views
    assert len(told(view.knee)) == 6
    assert write_report(read_story([run])).exists()
