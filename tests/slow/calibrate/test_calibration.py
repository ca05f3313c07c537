"""All known answers as experiments, and the exit codes of `nodrop calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.calibrate import cases
from nodrop.calibrate.case import Site
from nodrop.calibrate.cases import known_answers
from nodrop.cli import main
from nodrop.config.experiment import load_experiment
from nodrop.measure.plan import make_plan
from nodrop.results.calibration import Certificate
from tests.unit.calibrate.test_calibration import certificate, site

__all__ = ["site"]


def test_every_case_is_an_experiment_with_one_expectation_per_trial(site: Site) -> None:
    for case in known_answers(site):
        file = site.work / "case.toml"
        file.write_text(cases.EXPERIMENT.format(name=case.name, setup="bare"))
        plan = make_plan(load_experiment(file, case.settings))
        if case.expected:
            trials = plan.controller.beforehand()
            assert len(case.expected) == len(trials) == plan.repetitions, case.name


def test_what_a_normal_user_or_a_guest_cannot_put_in(site: Site, tmp_path: Path) -> None:
    def impossible(**changes: Any) -> set[str]:
        fields = {"lab": site.lab, "setup": "bare", "work": tmp_path, "cpus": (0,)}
        found = known_answers(Site(**({**fields, "rootless": False} | changes)))
        return {case.name for case in found if case.not_possible}

    rootless = impossible(rootless=True) - impossible()
    assert rootless == {"lose-on-path"}
    assert {"frozen-thread", "sut-crashes", "shared-cpu"} <= impossible(setup="vm")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (("caught", "caught"), 0),
        (("caught", "not possible here"), 0),
        (("caught", "missed"), 1),
        (("missed",), 1),
    ],
)
def test_exit_codes(
    answers: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("nodrop.testbed.hosts.rights.ensure_privileges", lambda: None)
    monkeypatch.setattr(cases, "calibrate", lambda *_, **__: certificate(*answers))
    assert main.exit_code(["calibrate"]) == code
    out = capsys.readouterr().out
    assert all(word in out for word in answers)
    [kept] = (tmp_path / "nodrop" / "calibrate").glob("*.json")
    assert out.splitlines()[-1] == f"certificate: {kept}"
    assert Certificate.model_validate_json(kept.read_bytes()) == certificate(*answers)


def test_some_cases_alone_make_no_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("nodrop.testbed.hosts.rights.ensure_privileges", lambda: None)
    monkeypatch.setattr(cases, "calibrate", lambda *_, **__: certificate("caught"))
    assert main.exit_code(["calibrate", "--only", "nothing"]) == 0
    assert "no certificate" in capsys.readouterr().out
    assert not (tmp_path / "nodrop" / "calibrate").exists()
    assert main.exit_code(["calibrate", "--only", "nothnig"]) == 2
    assert "nothing" in capsys.readouterr().err
