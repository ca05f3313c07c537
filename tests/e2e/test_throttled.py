"""A CPU quota that keeps the SUT from running is named as the cause of what it loses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import RunOutcome
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.control_groups import NOT_V1, Mount, group_path, mounts
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import labelled

pytestmark = [pytest.mark.usefixtures("suricata"), pytest.mark.alone]

TEXT = """
name = "throttled"
[sut]
kind = "suricata"
[load]
kind = "replay"
trace = "make:demo"
pps = 20000
duration_s = 2
[measure]
repetitions = 1
late_p99_us = 60e6 # a busy machine is late; the cause of the losses is the question
late_burst_max_ratio = 1
steal_max_ratio = 1
"""
AROUND = """
name = "around"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
pps = 100000
loops = 5
[measure]
repetitions = 1
steal_max_ratio = 1
"""
PERIOD_US, QUOTA_US = 100_000, 2_000


class Quota(Progress):
    """Holds a program from before the first packet until the last; the drain does not matter.

    Its processes are in a group below the one that has the quota.
    """

    program = "Suricata"

    def __init__(self, group: Path, version: int) -> None:
        self.group, self._version = group, version

    def trial_started(self, trial: TrialInput) -> None:
        pass

    def phase(self, name: str) -> None:
        if name == "offer":
            self.set(QUOTA_US)
            (pid,) = labelled(self.program)
            (self.group / "inner/cgroup.procs").write_text(str(pid))
        if name == "drain":
            self.set(None)

    def above(self) -> str | None:
        """The quota of the group that ours is made in; None if it can have none."""
        name = "cpu.max" if self._version == 2 else "cpu.cfs_quota_us"
        file = self.group.parent / name
        return file.read_text().split()[0] if file.exists() else None

    def set(self, quota_us: int | None) -> None:
        if self._version == 2:
            quota = "max" if quota_us is None else quota_us
            (self.group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            quota = -1 if quota_us is None else quota_us
            (self.group / "cpu.cfs_quota_us").write_text(str(quota))


def own_group(pid: int, mount: Mount) -> Path:
    name = "cpu" if mount.version == 1 else NOT_V1
    return mount.folder(group_path(Path(f"/proc/{pid}/cgroup"), name))


def move(pid: int, group: Path) -> None:
    (group / "cgroup.procs").write_text(str(pid))


@pytest.fixture(scope="session")
def real_trace() -> Path:
    """None is read here, so none need be there for `run`."""
    return Path("make:demo")


@pytest.fixture
def quota(real_root: None) -> Iterator[Quota]:
    mount = next(mounts("cpu"), None)
    handed_on = mount and mount.point / "cgroup.subtree_control"
    if mount is None or (handed_on and mount.version == 2 and "cpu" not in handed_on.read_text()):
        pytest.skip("cgroup v2 whose top does not hand on the cpu controller")
    group = mount.point / f"nodrop-test-{os.getpid()}"
    group.mkdir()
    try:
        if mount.version == 2:
            (group / "cgroup.subtree_control").write_text("+cpu")
        (group / "inner").mkdir()
        yield Quota(group, mount.version)
    finally:
        (group / "inner").rmdir()
        group.rmdir()


def throttled_s(outcome: RunOutcome) -> Any:
    (file,) = outcome.directory.glob("runs/*/trial.json")
    return json.loads(file.read_text())["details"]["throttled_s"]


def was_throttled(waited_s: float) -> str:
    return f"the SUT was throttled for {waited_s:.2f} s, summed over CPUs, by its CPU quota"


def test_a_quota_above_the_suts_own_group_is_the_cause(run: Run, quota: Quota) -> None:
    outcome = run("sut.ring_size=64", text=TEXT, progress=quota)
    record, waited_s = only(outcome), throttled_s(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    assert record.packets.loss_place == "socket ring"
    # Of a CPU it gets the fiftieth part, and its idle threads alone want more: 1 s was seen.
    assert waited_s > 0.2
    assert was_throttled(waited_s) in record.packets.loss_cause, record.verdict
    assert record.packets.loss_causes[0].rule == "throttled"
    assert "cpu.max, cpu.cfs_quota_us" in record.packets.knob
    assert record.packets.loss_cause in record.verdict


def test_without_a_quota_nobody_is_throttled(run: Run, quota: Quota) -> None:
    if quota.above() not in (None, "max", "-1"):
        pytest.skip("this machine has a CPU quota of its own")
    quota.set = lambda quota_us: None  # type: ignore[method-assign]
    outcome = run("sut.ring_size=64", text=TEXT, progress=quota)
    assert throttled_s(outcome) == 0.0
    assert "throttled" not in only(outcome).packets.loss_cause
    assert only(outcome).disturbed is not None
    assert only(outcome).disturbed.quota is None


def test_a_quota_around_nodrop_itself_is_named_and_not_the_sender_alone(
    run: Run, quota: Quota
) -> None:
    class Around(Progress):
        """This process and all that it starts, while packets leave."""

        def trial_started(self, trial: TrialInput) -> None:
            move(os.getpid(), quota.group / "inner")

        def phase(self, name: str) -> None:
            if name in ("offer", "drain"):
                quota.set(20_000 if name == "offer" else None)

    home = own_group(os.getpid(), next(mounts("cpu")))
    try:
        outcome = run(text=AROUND, progress=Around())
    finally:
        move(os.getpid(), home)
    record = only(outcome)
    assert "sender_late" in record.invalid_reasons, record.verdict
    assert f"the CPU quota around nodrop itself (0.2 CPUs, {quota.group})" in record.verdict
    assert record.disturbed is not None
    held = record.disturbed.quota
    assert held is not None
    assert held.throttled_periods > held.periods / 2
    assert held.throttled_s > 0.2
