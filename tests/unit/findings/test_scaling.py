"""Speed-up and efficiency only where threads have CPUs of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodrop.profile.scaling import ThreadModelRun, growing, not_compared, scalings
from nodrop_studies.study_2017 import Stands, judged
from tests.unit.findings.test_study_2017 import around, model


def workers(cpus: int, *carried: float, **more: int) -> list[ThreadModelRun]:
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


RING, RULES, TRACE = "sut.ring_size", "sut.rules", "load.trace"


def rest(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple((key.replace("__", "."), value) for key, value in sorted(values.items()))


@pytest.mark.parametrize("key", [RING, RULES, TRACE])
@pytest.mark.parametrize("odd", [1, 2, 4])
def test_cells_that_differ_in_more_than_threads_are_in_no_row_of_theirs(key: str, odd: int) -> None:
    """Seen: cells with other rules, rings or traces in one speed-up and one law."""
    name = key.replace(".", "__")
    models = [
        replace(one, rest=rest(**{name: "b" if n == odd else "a"}), label=f"w{n}")
        for n, one in enumerate(workers(8, 100, 190, 270, 340, 400), 1)
    ]
    found = scalings(models)
    assert [[growing(s.model) for s in one.steps] for one in found] == (
        [] if odd == 1 else [[n for n in (1, 2, 3, 4, 5) if n != odd]]
    )
    (said,) = not_compared(models)
    assert said.startswith(f"workers: w{odd}: compared with no other") and said.endswith(key)
    alike = [replace(one, rest=rest(**{name: "a"})) for one in models]
    assert [len(one.steps) for one in scalings(alike)] == [5] and not not_compared(alike)


def test_two_whole_rows_are_two_rows_by_name() -> None:
    small, large = (
        [replace(one, rest=rest(sut__ring_size=ring)) for one in workers(8, *carried)]
        for ring, carried in (("500", (50, 60)), ("4000", (100, 190)))
    )
    found = scalings([*small, *large])
    assert [one.name for one in found] == [f"workers, {RING} {ring}" for ring in ("500", "4000")]
    assert found[1].steps[1].speedup == pytest.approx((190 / 102, 190 * 1.02 / 100))
    assert not not_compared([*small, *large])


@pytest.mark.parametrize(
    ("key", "claim"), [(RING, "Autofp gains"), (RULES, "Workers gain"), (TRACE, "CPU grows")]
)
def test_no_claim_of_2017_is_judged_by_cells_that_differ_in_more_than_threads(
    key: str, claim: str
) -> None:
    pairs = {
        "Autofp gains": [model("autofp", n, 4, capacity=(c, c * 1.02), load="")
                         for n, c in ((1, 100.0), (4, 300.0))],
        "Workers gain": [model("workers", 2 * n, ports=n, capacity=(c, c * 1.02), load="")
                         for n, c in ((1, 100.0), (2, 190.0))],
        "CPU grows": [model("workers", n, cpu_s_per_million=around(n * 2.0)) for n in (1, 4)],
    }  # fmt: skip
    one, other = pairs[claim]

    def stands(*models: ThreadModelRun) -> Stands:
        (found,) = [one for one in judged(models) if one.claim.startswith(claim)]
        return found.stands

    assert stands(one, other) is not Stands.CANNOT_TELL
    assert stands(one, replace(other, rest=((key, "b"),))) is Stands.CANNOT_TELL


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
