"""Claims of the thread study: they hold, do not hold, or cannot be judged, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodrop.profile.scaling import ThreadModelRun, time_sharing
from nodrop.stats.interval import Summary, summarize
from nodrop_studies.study_2017 import Judged, Stands, judged


def around(value: float, n: int = 6) -> Summary | None:
    """n runs within 1 %."""
    return summarize([value * (1 + 0.002 * i) for i in range(n)])


def model(runmode: str, capture: int, detect: int = 0, **more: Any) -> ThreadModelRun:
    given: dict[str, Any] = {
        "label": f"{runmode}-{capture}x{detect}",
        "cpus": 16,
        "ports": 1,
        "load": "4X",
    }
    return ThreadModelRun(
        runmode=runmode, capture_threads=capture, detect_threads=detect, **(given | more)
    )


def claim(models: list[ThreadModelRun], begins: str) -> Judged:
    (found,) = [one for one in judged(models) if one.claim.startswith(begins)]
    assert found.evidence
    return found


@pytest.mark.parametrize(
    ("one", "several", "stands"),
    [
        ((100.0, 104.0), (100.0, 105.0), Stands.HOLDS),
        ((100.0, 104.0), (108.0, 112.0), Stands.HOLDS),
        ((100.0, 104.0), (150.0, 157.0), Stands.DOES_NOT),
        ((100.0, 104.0), (119.0, 125.0), Stands.DOES_NOT),
        ((100.0, 110.0), (112.0, 120.0), Stands.CANNOT_TELL),
    ],
)
@pytest.mark.parametrize("threads", [2, 4, 8])
def test_more_capture_threads_of_autofp(
    one: tuple[float, float], several: tuple[float, float], stands: Stands, threads: int
) -> None:
    models = [
        model("autofp", 1, 4, capacity=one, load=""),
        model("autofp", threads, 4, capacity=several, load=""),
        model("workers", threads, capacity=(900.0, 910.0), load=""),
    ]
    assert claim(models, "Autofp gains").stands is stands


@pytest.mark.parametrize(
    ("two", "threads", "cpus", "stands"),
    [
        ((100.0, 104.0), 2, 16, Stands.HOLDS),
        ((126.0, 127.0), 2, 16, Stands.HOLDS),
        ((180.0, 190.0), 2, 16, Stands.DOES_NOT),
        ((127.0, 135.0), 2, 16, Stands.CANNOT_TELL),
        ((180.0, 190.0), 2, 1, Stands.CANNOT_TELL),
        ((180.0, 190.0), 4, 16, Stands.CANNOT_TELL),
    ],
    ids=["no-gain", "as-printed", "gains", "bounds-enclose", "time-sharing", "other-threads"],
)
def test_a_second_port(two: tuple[float, float], threads: int, cpus: int, stands: Stands) -> None:
    models = [
        model("workers", 1, cpus=cpus, capacity=(100.0, 102.0), load=""),
        model("workers", threads, ports=2, cpus=cpus, capacity=two, load=""),
    ]
    assert claim(models, "Workers gain").stands is stands


@pytest.mark.parametrize(
    ("one", "two", "cpus", "stands"),
    [
        (0.02, 0.5, 16, Stands.HOLDS),
        (0.3, 0.1, 16, Stands.DOES_NOT),
        (0.45, 0.5, 16, Stands.CANNOT_TELL),
        (0.0, 0.0, 16, Stands.CANNOT_TELL),
        (0.02, 0.5, 1, Stands.CANNOT_TELL),
    ],
    ids=["two-lose", "one-loses", "both-lose", "too-small-a-load", "time-sharing"],
)
def test_what_two_ports_lose(one: float, two: float, cpus: int, stands: Stands) -> None:
    models = [
        model("workers", 1, cpus=cpus, loss=around(one)),
        model("workers", 2, ports=2, cpus=cpus, loss=around(two)),
    ]
    assert claim(models, "About half").stands is stands


@pytest.mark.parametrize("cpus", [1, 2, 3])
def test_no_claim_of_scaling_is_judged_where_threads_take_turns(cpus: int) -> None:
    cost = [around(4.0), around(8.0)]
    models = [
        model("autofp", n, 3, cpus=cpus, capacity=(100.0 * n, 104.0 * n), load="",
              cpu_s_per_million=cost[n - 1])
        for n in (1, 2)
    ]  # fmt: skip
    for begins in ("Autofp gains", "CPU grows"):
        found = claim(models, begins)
        assert found.stands is Stands.CANNOT_TELL
        assert "time-sharing, not scaling" in found.evidence
    assert time_sharing(models).startswith("2 of 2 thread models ran more")
    # Models are counted, and not the loads that each ran at.
    assert "2 of 2 thread models" in time_sharing(
        [*models, *(replace(m, load="2") for m in models)]
    )
    alone = [replace(models[0], load=load) for load in ("1", "2")]
    assert time_sharing(alone).startswith("The only thread model ran more")
    assert time_sharing([model("workers", 2, cpus=2)]) == ""


def test_capacities_that_were_not_searched_judge_nothing() -> None:
    found = claim([model("autofp", 1, 2), model("autofp", 2, 2)], "Autofp gains")
    assert found.stands is Stands.CANNOT_TELL and "not searched" in found.evidence


@pytest.mark.parametrize(
    ("fewer", "more", "threads", "stands"),
    [
        (4.0, 16.0, 4, Stands.HOLDS),
        (4.0, 8.0, 2, Stands.HOLDS),
        (4.0, 4.2, 4, Stands.DOES_NOT),
        (4.0, 3.0, 8, Stands.DOES_NOT),
        (4.0, 10.0, 4, Stands.CANNOT_TELL),
    ],
)
def test_cpu_per_packet_over_threads(
    fewer: float, more: float, threads: int, stands: Stands
) -> None:
    models = [
        model("workers", 1, cpu_s_per_million=around(fewer)),
        model("workers", threads, cpu_s_per_million=around(more)),
    ]
    assert claim(models, "CPU grows").stands is stands


def test_cpu_per_packet_of_few_runs_or_other_loads_judges_nothing() -> None:
    few = [model("workers", n, cpu_s_per_million=around(4.0 * n, n=3)) for n in (1, 2)]
    assert claim(few, "CPU grows").stands is Stands.CANNOT_TELL
    other = [model("workers", n, load=f"{n}X", cpu_s_per_million=around(4.0 * n)) for n in (1, 2)]
    assert "no models of one run mode and load" in claim(other, "CPU grows").evidence


@pytest.mark.parametrize(
    ("over", "stands"),
    [
        ([0.4, 0.2], Stands.HOLDS),
        ([0.1], Stands.HOLDS),
        ([0.02, 0.05], Stands.DOES_NOT),
        ([0.02, 0.6], Stands.CANNOT_TELL),
        ([], Stands.CANNOT_TELL),
    ],
)
def test_uneven_load(over: list[float], stands: Stands) -> None:
    models = [model("workers", n + 2, over_mean=around(o)) for n, o in enumerate(over)]
    assert claim([*models, model("single", 1)], "The load over threads").stands is stands


@pytest.mark.parametrize(
    ("shares", "stands", "words"),
    [
        ([(0.6, 0.7), (0.8, 0.9)], Stands.HOLDS, "60 % to 80 %"),
        ([(0.08, 0.1), (0.43, 0.49)], Stands.DOES_NOT, "8 % to 43 %"),
        ([(0.24, 0.3)], Stands.DOES_NOT, "up to 30 % with switching, in 1 models"),
        ([(0.24, 0.31), (0.32, 0.62)], Stands.CANNOT_TELL, "up to 62 % with switching"),
        ([(0.3, 0.4), (0.7, 0.8)], Stands.CANNOT_TELL, "30 % to 70 %"),
    ],
)
def test_locks_and_polling(shares: list[tuple[float, float]], stands: Stands, words: str) -> None:
    models = [model("workers", n + 1, coordination=s) for n, s in enumerate(shares)]
    found = claim([*models, model("single", 1)], "Most time is spent in locks")
    assert found.stands is stands and words in found.evidence


def test_what_one_port_and_no_profile_cannot_tell() -> None:
    models = [model("workers", n) for n in (1, 2)]
    for begins in ("Workers gain", "Most time is spent in locks"):
        assert claim(models, begins).stands is Stands.CANNOT_TELL
