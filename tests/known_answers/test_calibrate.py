"""`nodrop calibrate` in a real lab: what is put in is caught, with other sizes too, and a run says
on which certificate it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.calibrate import faults
from nodrop.calibrate.case import Case, CaseOutcome, CaseResult, Expected, Site, steady_load
from nodrop.calibrate.cases import calibrate, known_answers, try_case
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.baselines import store
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.rundir import open_run
from tests.depth import depth

PATIENT = (
    "measure.late_p99_us=60e6",
    "measure.late_burst_max_ratio=1",
    "measure.steal_max_ratio=1",
)
"""However busy this machine is, the packets are the question."""
SINK = """
name = "after"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
pps = 10000
duration_s = 0.1
[measure]
repetitions = 1
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _patience: None) -> Site:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Site.here(load_lab(None), "bare", tmp_path)


class Nobody:
    def begins(self, case: Case, ahead: Sequence[Case]) -> None:
        pass

    def ended(self, tried: CaseResult) -> None:
        pass


def sizes(site: Site, *packets: int, place: str, knob: str) -> dict[str, object]:
    """A case of one load in all trials, and the packets that each trial loses of it."""
    return {
        "put_in": "",
        "settings": [
            *steady_load(site, 20_000, 4_000),
            f"measure.repetitions={len(packets)}",
            *PATIENT,
        ],
        "expected": [Expected(lost=(k, k), place=place, knob=knob) for k in packets],
    }


def test_what_is_lost_on_egress_is_named_to_the_packet(site: Site) -> None:
    case = Case(
        name="egress",
        **sizes(site, 1, 7, 333, place="^path$", knob="egress"),
        faults={
            "read counters": faults.per_trial(
                *(faults.egress_drops(site.tx, k) for k in (1, 7, 333))
            )
        },
        not_possible=site.no_filter(),
    )  # type: ignore[arg-type]
    tried = try_case(site, case)
    assert tried.answer is CaseOutcome.CAUGHT, tried.why


def test_what_an_xdp_program_drops_is_named_to_the_packet(site: Site) -> None:
    case = Case(
        name="xdp",
        **sizes(site, 1, 42, 3999, place="^path$", knob="XDP"),
        faults={
            "read counters": faults.per_trial(
                *(faults.first_dropped_by_xdp(site.tx, site.rx, k, "drv") for k in (1, 42, 3999))
            )
        },
        not_possible=site.no_xdp(),
    )  # type: ignore[arg-type]
    tried = try_case(site, case)
    if tried.answer is CaseOutcome.NOT_POSSIBLE:
        pytest.skip("gives normal users no user namespace that may attach XDP programs")
    assert tried.answer is CaseOutcome.CAUGHT, tried.why


def test_a_false_expectation_is_missed(site: Site) -> None:
    """One run is held against an expectation that was not put in."""
    case = Case(
        name="false",
        **sizes(site, 5, place="socket ring", knob="ring_size"),
        faults={"read counters": faults.egress_drops(site.tx, 6)},
    )  # type: ignore[arg-type]
    tried = try_case(site, case)
    assert tried.answer is CaseOutcome.MISSED
    assert "lost 6, not 5" in tried.why
    assert "place 'path'" in tried.why


@pytest.mark.parametrize(("frames", "threads"), [(1000, 2), depth(3, 1), depth(100, 1)])
def test_foreign_frames_void_a_trial(site: Site, frames: int, threads: int) -> None:
    (inject,) = (case for case in known_answers(site) if case.name == "inject")
    tried = try_case(
        site,
        Case(
            name="inject",
            put_in="",
            settings=[*steady_load(site, 20_000, 2_000), f"sut.threads={threads}", *PATIENT],
            expected=inject.expected[:1],
            faults={"drain": faults.injected(site.tx, frames)},
        ),
    )
    assert tried.answer is CaseOutcome.CAUGHT, tried.why


def test_a_run_stands_on_the_certificate_that_was_made(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "after.toml"
    file.write_text(SINK)

    def standing() -> tuple[dict[str, object], str]:
        outcome = run_experiment(
            load_experiment(file), site.lab, out=tmp_path, resume=False, progress=Progress()
        )
        page = write_report(read_story([outcome.directory]), tmp_path / "report")
        (said,) = open_run(outcome.directory).manifest["calibration"]
        return said, page.read_text()

    said, page = standing()
    assert said["certificate"] is None
    assert "bare: not calibrated (run <code>nodrop calibrate --setup bare</code>)" in page

    (inject,) = (case for case in known_answers(site) if case.name == "inject")
    cases = [replace(inject, settings=[*inject.settings, *PATIENT])]
    made = calibrate(site, cases, Nobody(), keep=False)
    assert made.named("caught") == ["inject"]
    assert [clock.host for clock in made.clocks] == ["tx", "rx"]
    store(made)
    said, page = standing()
    assert isinstance(said["certificate"], dict)
    assert said["certificate"]["sha256"] == made.sha256
    assert f"Bare stands on the certificate of {made.made_utc}: 1 of 1 known answers" in page

    other = made.key.model_copy(update={"kernel": "5.10"})
    store(made.model_copy(update={"key": other}))
    said, _ = standing()
    assert isinstance(said["certificate"], dict), "the one of this kernel is still there"
