"""Trust says which certificate a run stands on, and never more than its manifest does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.measure import baselines
from nodrop.report.story import read_story
from nodrop.report.trust import findings
from tests.made.rundirs import Fake, make_run
from tests.pages import page_of
from tests.unit.calibrate.test_calibration import certificate


def said(tmp_path: Path, calibration: Any) -> list[tuple[bool, str]]:
    manifest = {} if calibration is None else {"calibration": calibration}
    run = make_run(tmp_path, Fake(repetitions=1, samples=False, manifest=manifest))
    page = page_of(run, out=tmp_path / "out")
    found = [
        (f.good, f.text)
        for f in findings(read_story([run]))
        if "certificate" in f.text or "calibrated" in f.text
    ]
    assert all(words[1:].replace("'", "&#39;") in page for _, words in found)
    return found


def test_the_certificate_is_named(tmp_path: Path) -> None:
    one = baselines._standing("bare", certificate("caught", "caught", "not possible here"))
    [(good, words)] = said(tmp_path, [one])
    assert good
    assert words == (
        "bare stands on the certificate of 2026-11-22T16:00:00+00:00: "
        "2 of 2 known answers caught; not possible here: c2"
    )


def test_what_it_missed_is_held_against_the_run(tmp_path: Path) -> None:
    one = baselines._standing("bare", certificate("caught", "missed"))
    [(good, words)] = said(tmp_path, [one])
    assert not good
    assert words.endswith("1 of 2 known answers caught, missed c1")


def test_without_one_it_is_not_calibrated(tmp_path: Path) -> None:
    why = "the certificate of 2026-11-01 is for another kernel (5.10)"
    [(good, words)] = said(tmp_path, [baselines._standing("bare", why)])
    assert (good, words) == (False, f"bare: not calibrated ({why})")


@pytest.mark.parametrize("broken", [None, "x", [], [7], {"bare": 1}])
def test_a_manifest_that_does_not_say(tmp_path: Path, broken: Any) -> None:
    assert said(tmp_path, broken) == []


@pytest.mark.parametrize(
    "certificate", [{}, {"caught": 7, "missed": None}, {"smallest_loss": {"packets": "<b>"}}]
)
def test_a_broken_certificate_claims_nothing(tmp_path: Path, certificate: Any) -> None:
    [(_, words)] = said(tmp_path, [{"setup": "bare", "certificate": certificate}])
    assert "0 of 0 known answers caught" in words
