"""Other users of the host: seen in a fake /proc, and said of records before the budget is spent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodrop.ledger.sender import Quota
from nodrop.measure.busy import Others, budget_words, quota_words
from nodrop.measure.manager import start_words
from nodrop.results.trial import Disturbed, Program, TrialRecord
from tests.made import outcome_runs
from tests.unit.hosts.test_own_quotas import V2, host

HZ = os.sysconf("SC_CLK_TCK")
KTHREAD = 0x00200000


def put(
    root: Path,
    pid: int,
    name: str,
    own_s: float,
    children_s: float = 0,
    *,
    parent: int = 1,
    **of: int,
) -> None:
    fields = ["S", parent, 0, 0, 0, 0, of.get("flags", 0), 0, 0, 0, 0]
    fields += [round(own_s * HZ), 0, round(children_s * HZ), 0, 20, 0, 1, 0, of.get("start", pid)]
    file = root / f"proc/{pid}/stat"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pid} ({name}) {' '.join(map(str, fields))} 0\n")


def gone(root: Path, pid: int) -> None:
    (root / f"proc/{pid}/stat").unlink()


def seen(root: Path, others: Others) -> list[tuple[str, float, bool]]:
    return [(one.name, one.cpu_s, one.by_children) for one in others.used()]


def test_programs_of_others_the_largest_first(tmp_path: Path) -> None:
    put(tmp_path, 10, "nodrop", 5)
    put(tmp_path, 11, "nodrop-node", 0, parent=10)
    put(tmp_path, 20, "yes", 100)
    put(tmp_path, 21, "a (b) c", 1)
    put(tmp_path, 22, "ksoftirqd/0", 1, flags=KTHREAD)
    others = Others([10], tmp_path)
    put(tmp_path, 10, "nodrop", 7)
    put(tmp_path, 11, "nodrop-node", 3, parent=10)
    put(tmp_path, 12, "sink", 9, parent=11)
    put(tmp_path, 20, "yes", 102)
    put(tmp_path, 21, "a (b) c", 4)
    put(tmp_path, 22, "ksoftirqd/0", 9, flags=KTHREAD)
    assert seen(tmp_path, others) == [("a (b) c", 3.0, False), ("yes", 2.0, False)]


def test_compilers_that_came_and_went_count_with_their_build(tmp_path: Path) -> None:
    put(tmp_path, 30, "make", 1)
    put(tmp_path, 31, "sh", 0, 40, parent=30)
    put(tmp_path, 32, "cc1", 50, parent=31)
    others = Others([], tmp_path)
    # The shell and its compiler end: 40 + 50 s are from before, 4 s are new.
    gone(tmp_path, 31)
    gone(tmp_path, 32)
    put(tmp_path, 30, "make", 1, 94)
    assert seen(tmp_path, others) == [("make", 4.0, True)]


def test_a_pid_that_is_used_again_is_another_program(tmp_path: Path) -> None:
    put(tmp_path, 40, "old", 500)
    others = Others([], tmp_path)
    put(tmp_path, 40, "new", 2, start=999)
    assert seen(tmp_path, others) == [("new", 2.0, False)]


YES = Program(name="yes", pid=4711, cpu_s=2.9)


def trial(index: int, *, void: str = "", steal: float = 0.0, **beside: Any) -> TrialRecord:
    found = outcome_runs.trial(
        cell={},
        repetition=1,
        index=index,
        run=f"{index:04d}",
        verdict=void or "no loss",
        valid=not void,
        invalid_reasons=[void] if void else [],
        took_s=10.0,
        duration_s=3.0,
        steal_ratio=steal,
    )
    return found.model_copy(update={"disturbed": Disturbed(**beside)})


LATE = "sender_late"
QUIET = {"others_ratio": 0.02}
CROWDED = {"others_ratio": 0.61, "programs": [YES], "cpus": [0, 1]}


@pytest.mark.parametrize(
    "done",
    [
        [],
        [trial(1, void=LATE, **CROWDED)],
        [trial(1, void=LATE, **CROWDED), *(trial(n, **QUIET) for n in (2, 3, 4))],
        [trial(n, void=LATE, **QUIET) for n in (1, 2, 3)],
        [trial(n, void="residual", **QUIET) for n in (1, 2)],
    ],
)
def test_nothing_is_said_of_a_quiet_host_or_of_one_accident(done: list[TrialRecord]) -> None:
    assert budget_words(done, 240) == ""


@pytest.mark.parametrize(
    ("start_s", "budget_s", "said"),
    [(51.5, 120, "52 s of the budget of 2 min 0 s"), (25.2, 60, "took 25 s"), (2.0, 60, ""),
     (51.5, 600, ""), (51.5, None, ""), (None, 60, "")],
)  # fmt: skip
def test_a_long_start_is_named_where_there_is_a_budget(
    start_s: float | None, budget_s: float | None, said: str
) -> None:
    """Seen: rules took 51 s to load, and nothing said so while 2 minutes ran out."""
    record = trial(1, **QUIET).model_copy(update={"activation_s": start_s})
    words = start_words(record, budget_s)
    assert said in words and bool(words) == bool(said)


def test_the_program_its_cost_and_what_helps() -> None:
    done = [trial(1, void=LATE, **CROWDED), trial(2, **QUIET), trial(3, void=LATE, **CROWDED)]
    said = budget_words(done, 240)
    assert "2 of the first 3 trials" in said
    assert "61 %" in said and "mostly yes (pid 4711)" in said
    assert "2 min 40 s of the budget of 4 min 0 s" in said
    assert "end yes (pid 4711)" in said


def test_the_program_of_most_trials_is_named_not_that_of_one() -> None:
    build = Program(name="bash", pid=9, cpu_s=3.3, by_children=True)
    both = [trial(n, void=LATE, **CROWDED) for n in (1, 2)]
    both[0] = trial(1, void=LATE, others_ratio=0.9, programs=[build, YES], cpus=[0, 1])
    assert "end yes (pid 4711)" in budget_words(both, 60)
    once = [trial(n, void=LATE, others_ratio=0.9, programs=[build]) for n in (1, 2)]
    assert "end what bash (pid 9) runs" in budget_words(once, 60)


def test_nobody_is_told_to_end_what_init_runs() -> None:
    init = Program(name="process_api", pid=1, cpu_s=9.3, by_children=True)
    hit = [trial(n, void=LATE, others_ratio=0.9, programs=[init]) for n in (1, 2)]
    said = budget_words(hit, 60)
    assert "process_api (pid 1)" in said and "end what" not in said


def test_one_void_trial_is_singular() -> None:
    said = budget_words([trial(1, void=LATE, others_ratio=0.8), trial(2, others_ratio=0.8)], None)
    assert "1 of them says " in said


def test_a_program_that_is_another_containers_is_not_invented() -> None:
    said = budget_words([trial(n, void=LATE, others_ratio=0.8) for n in (1, 2)], None)
    assert "2 of them say " in said and "pid" not in said


def test_the_hypervisor() -> None:
    said = budget_words([trial(n, void="cpu_stolen", steal=0.12) for n in (1, 2, 3)], 90)
    assert "the hypervisor gave up to 12 %" in said
    assert "1 min 30 s of the budget of 1 min 30 s" in said


def test_a_quota_is_named_before_programs() -> None:
    held = Quota(
        group="/sys/fs/cgroup/x", cpus=0.4, periods=30, throttled_periods=29, throttled_s=1.7
    )
    said = budget_words([trial(n, void=LATE, quota=held, **CROWDED) for n in (1, 2)], 240)
    assert "(0.4 CPUs, /sys/fs/cgroup/x)" in said
    assert "raise the quota (systemd CPUQuota=" in said


@pytest.mark.parametrize(("held_s", "is_one"), [(0.14, False), (0.16, True)])
def test_a_quota_that_held_for_a_moment_disturbs_nothing(held_s: float, is_one: bool) -> None:
    held = Quota(group="/x", cpus=3, periods=30, throttled_periods=1, throttled_s=held_s)
    assert trial(1, quota=held).host_was_busy is is_one


@pytest.mark.parametrize(
    ("quota", "cpus", "words"),
    [
        ("40000 100000", {0, 1}, "to 0.4 of 2 CPUs"),
        ("300000 100000", {0, 1, 2, 5}, "to 3 of 4 CPUs"),
        ("200000 100000", {0, 1}, ""),
        ("max 100000", {0}, ""),
    ],
)
def test_a_quota_is_said_before_a_run(
    tmp_path: Path, quota: str, cpus: set[int], words: str
) -> None:
    files = {
        "sys/fs/cgroup/x/cpu.max": quota,
        "sys/fs/cgroup/x/cpu.stat": "nr_periods 465\nnr_throttled 453\nthrottled_usec 7\n",
    }
    said = [*quota_words(host(tmp_path, V2, "0::/x\n", files), cpus)]
    assert len(said) == bool(words)
    for one in said:
        assert one.startswith("will disturb: ")
        assert words in one
        assert "throttled in 453 of 465 periods" in one
