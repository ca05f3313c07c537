"""`nodrop tune prove` on a SUT whose rate is put in: it names what helps and what harms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.cli import main
from tests.depth import depth


@pytest.mark.parametrize(
    ("knob", "states"),
    [
        depth("sut.service_rate_pps=100000", {"helps"}),
        depth("sut.service_rate_pps=1000", {"makes it worse"}),
        depth("tune.tx-queue-len=900", {"does not", "cannot tell yet"}),
    ],
)
def test_a_sut_with_a_known_rate(
    knob: str, states: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--set", "sut.service_rate_pps=4000", "--set", "sut.ring_frames=256"]
    load = ["make:demo", "--sut", "sink", "--window", "2.0..3.0", "--load", "4"]
    more = ["--most", "20", "--json", "--out", str(tmp_path)]
    code = main.exit_code(["tune", "prove", knob, *load, *base, *more])
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    (effect,) = answer["effects"]
    assert effect["knob"] == knob
    assert effect["state"] in states
    assert code == (6 if effect["state"] == "cannot tell yet" else 0)
    low, high = effect["interval"]
    assert (high < 0, low > 0) == ("helps" in states, "makes it worse" in states)
    assert json.loads(next(tmp_path.glob("prove-*/proved.json")).read_text()) == answer
