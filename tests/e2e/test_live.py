"""Reports of a real run while it goes on, and their trace in the run directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.report.story import read_story
from nodrop.report.timeline import timeline
from nodrop.results.rundir import open_run
from nodrop.results.trial import Live
from nodrop.watch.follow import RunFollower, View

EXPERIMENT = """
name = "live"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
speed = 3 # 3.3 s
[measure]
repetitions = 1
"""


class Listening(Progress):
    """Hears what is reported, and looks at the run directory as a watcher would."""

    def __init__(self, results: Path) -> None:
        self.readings: list[Live] = []
        self.views: list[View] = []
        self._results = results

    def live(self, reading: Live) -> None:
        self.readings.append(reading)
        (directory,) = self._results.iterdir()
        self.views.append(RunFollower.of(directory).look())


@pytest.mark.alone  # twice a second is the promise
def test_a_run_tells_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    heard = Listening(tmp_path / "results")
    outcome = run_experiment(
        load_experiment(file, ()),
        load_lab(None),
        out=tmp_path / "results",
        resume=False,
        progress=heard,
    )
    (record,) = outcome.records
    first, *offering, last = heard.readings
    assert (first.phase, first.sent_packets) == ("offer", 0)
    assert first.decoded_packets in (None, 0), "the sink reports twice a second, perhaps not yet"
    assert 2 <= len(offering) <= 8, "about twice a second for 3.3 s"
    sent = [r.sent_packets for r in offering if r.sent_packets is not None]
    assert sent == sorted(sent) and 0 < sent[-1] <= record.offered.sent
    assert any(r.received_packets for r in offering), "the sampler's rows are read as they come"
    assert any(r.busiest_thread for r in offering)
    assert last.phase == "drained"
    assert last.sent_packets == record.offered.sent
    assert last.decoded_packets == record.packets.decoded_packets

    assert {view.trial for view in heard.views} == {record.run}
    assert all(view.goes_on and not view.over for view in heard.views)
    assert heard.views[-2].reading == offering[-1]
    assert RunFollower.of(outcome.directory).look().finished

    run = open_run(outcome.directory)
    assert run.manifest["undo"]["left"] == []
    assert len(run.manifest["undo"]["changed"]) == 2, "two network namespaces"
    offered = run.detail(record.run, "offered")
    assert isinstance(offered, dict)
    assert sum(offered["achieved"]["packets"]) == record.offered.sent
    drawn = timeline(*_only(outcome.directory))
    assert drawn is not None
    assert [panel.title for panel in drawn.panels[:4]] == [
        "Offered and received",
        "Schedule error, largest",
        "Capture ring",
        "Counted, as reported while it ran",
    ]


def _only(directory: Path):  # type: ignore[no-untyped-def]
    story = read_story([directory])
    return story.sources[0], story.trials[0]
