"""Speed-up and efficiency only where threads have CPUs of their own."""

from __future__ import annotations

import pytest

from nodrop.findings.scaling import scalings
from nodrop.findings.study_2017 import Model
from tests.unit.findings.test_study_2017 import model


def workers(cpus: int, *carried: float, **more: int) -> list[Model]:
    """1, 2, … threads, each capacity within 2 %."""
    return [
        model("workers", n, cpus=cpus, capacity=(x, x * 1.02), load="", **more)
        for n, x in enumerate(carried, 1)
    ]


def test_speedup_and_efficiency_by_the_bounds_of_both_searches() -> None:
    (found,) = scalings(workers(8, 100, 190, 270, 340))
    one, two, *_, four = found.steps
    assert one.speedup == one.efficiency == (1.0, 1.0)
    assert two.speedup == pytest.approx((190 / 102, 190 * 1.02 / 100))
    assert four.efficiency == pytest.approx((340 / 102 / 4, 340 * 1.02 / 100 / 4))
    assert found.law is not None and found.why_no_law == ""
    assert found.law.at(4) == pytest.approx(343, rel=0.02)


@pytest.mark.parametrize(("cpus", "scaled"), [(8, [1, 2, 3, 4]), (3, [1, 2, 3]), (1, [1]), (0, [])])
def test_threads_that_take_turns_have_no_speedup(cpus: int, scaled: list[int]) -> None:
    (found,) = scalings(workers(cpus, 100, 190, 270, 340))
    assert [n for n, s in enumerate(found.steps, 1) if s.speedup is not None] == scaled
    assert (found.law is not None) == (cpus >= 4)
    assert ("time-sharing" in found.why_no_law) == (cpus < 4)


def test_rows_are_of_one_run_mode_and_one_number_of_ports() -> None:
    autofp = [
        model("autofp", receive, detect, capacity=(100.0, 101.0), load="")
        for receive in (1, 2)
        for detect in (1, 2)
    ]
    single = [model("single", 1, capacity=(90.0, 91.0), load="")]
    models = [*workers(8, 100, 190), *workers(8, 120, 200, ports=2), *autofp, *single]
    assert [found.name for found in scalings(models)] == [
        "workers",
        "workers, 2 ports",
        "autofp, 1 receive thread",
        "autofp, 2 receive threads",
    ]
    unsearched = [model("workers", n) for n in (1, 2, 3, 4)]
    assert scalings(unsearched) == ()
