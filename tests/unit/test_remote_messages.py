"""Orders to the far half of a run, and its reports: JSON that means the same at both ends."""

from __future__ import annotations

import json
import pickle
import queue
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import LabSource, load_lab
from nodrop.config.search import Repetitions
from nodrop.errors import (
    BadInput,
    LabProblem,
    LoadFailed,
    NodeDied,
    NodropError,
    NotReady,
    SystemRefused,
    TrialFailed,
)
from nodrop.ledger.imbalance import BusyThread
from nodrop.measure.cells import Cell, OfferLength, Parting
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.plan import PlanFacts
from nodrop.remote.agent import Told
from nodrop.remote.messages import (
    CopiedImage,
    CurrentManifest,
    DoctorAnswer,
    EarlierTrials,
    Ended,
    EndOrder,
    ErrorKind,
    FarError,
    FileHead,
    Greeting,
    LiveReading,
    Next,
    Note,
    Order,
    Phase,
    Report,
    Request,
    RunFolder,
    Task,
    TrialEnded,
    TrialStarted,
    content_of,
    order_of,
    report_of,
)
from nodrop.results.capacity import Forecast
from nodrop.results.load_window import LoadWindow
from nodrop.results.trial import Live, Ramp, Searched
from nodrop.testbed.images.image_cache import Image
from nodrop.testbed.labs.api import Receiving
from nodrop.testbed.labs.split import Splitter
from nodrop.testbed.load.api import PeakDemand, Planned
from nodrop.testbed.setups.api import Limits
from nodrop.untrusted.json_text import NotJson

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
FACTORS = {"setup.kind": "bare", "load.trace": ["a.pcap", "b.pcap"], "load.speed": 0.1}
WINDOW = LoadWindow(
    span="0..1/3", from_s=0.0, to_s=1 / 3, packets=3, frame_bytes=180, pps=9.1, bps=4368.0,
    trace_packets=9, trace_bytes=540, trace_s=1.0, mean_pps=9.0, mean_bps=4320.0, peak_pps=9.0,
    peak_bps=4320.0, begun_packet_ratio=None, begun_byte_ratio=None,
)  # fmt: skip
TRIAL = TrialInput(
    index=3,
    cell=FACTORS,
    repetition=2,
    load={"kind": "replay", "trace": ["a.pcap", "b.pcap"], "pps": 1e6, "cpu": "0-1"},
    searched=Searched(by="pps", value=1e6, duration_s=3.0, round=1, ramp=Ramp(start=1e3)),
    reset_s=61.25,
)
PLAN = PlanFacts(
    seed=2**63,
    cells=(
        Cell(
            factors=FACTORS,
            setup={"kind": "bare"},
            sut={"kind": "suricata", "overrides": {"stream.memcap": "1gb", "deep": {"list": [1]}}},
            load=TRIAL.load,
            limits=Limits(cpus="1", cpus_left=True, memory_bytes=2**33),
            instances=2,
            splitter=Splitter(kind="bridge", bridge_netfilter=False),
            receiving=Receiving(queues=2, rps_cpus=(1, 3)),
            tune={"rx": "off"},
        ),
        Cell(factors={}, setup={}, sut={}, load={}, limits=Limits()),
    ),
    repetitions=3,
    load_s=None,
    around_s=0.1 + 0.2,
    peak_demand=PeakDemand(packets_in_1_ms=3, packets_in_10_ms=5),
    changed=("load.trace: cut",),
    lengths=(
        OfferLength(
            cell=FACTORS,
            offered_s=5.0,
            least_s=float("inf"),
            planned=Planned(
                packets=3,
                frame_bytes=180,
                flows=1,
                duration_s=None,
                window_packets=3,
                window_s=1 / 3,
            ),
            window=WINDOW,
        ),
    ),
    searched_by="pps",
    forecast=Forecast(budget_s=60.0, trials=9, relative_width=None),
    likely=(9, 61.5),
    rule=Repetitions(max=9, until=("loss_ratio half-width <= 0.1 points",)),
    parted_senders=(1, 0),
    parting=Parting(generator=(0,), sut=(1, 2, 3)),
)
IMAGE = Image(
    name="suricata", sha256="0" * 64, release="bookworm", program="usr/bin/suricata",
    version="7.0.10", built_utc="2026-11-29T00:00:00+00:00", suites=["bookworm"],
    packages={"suricata": "1:7.0.10-1"}, mmdebstrap="1.3",
)  # fmt: skip


def task(experiment: Path, *settings: str, lab: LabSource | None = None) -> Task:
    return Task(
        experiment=load_experiment(experiment, settings, most_trials=None),
        lab=lab or load_lab(),
        plan=PLAN,
        heeds_void=True,
        beforehand=(TRIAL,),
        copies={"../traces/ü.pcap": "/var/lib/nodrop/files/1/ü.pcap"},
        images=(CopiedImage(image=IMAGE, tar="/var/lib/nodrop/files/2/rootfs.tar"),),
        image_names={"suricata": IMAGE.sha256},
        earlier=EarlierTrials(manifest={"run_id": "r", "search": None}, lines=("{}",)),
        argv=("nodrop", "run", "a b"),
        yes=True,
        only_look=False,
    )


def over_the_wire(order: Order) -> Order:
    return order_of(content_of(order))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_task_is_the_same_there(path: Path) -> None:
    """A list for a tuple would make another cell of it, and another plan."""
    sent = task(path, "measure.seed=7", "load.speed=")
    assert over_the_wire(sent) == sent


def test_what_a_matrix_combines_is_the_same_there(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "x.pcap"\n'
        "[measure]\n"
        'repetitions = { min = 6, max = 12, until = "loss_ratio half-width <= 0.1 points" }\n'
        '[matrix]\n"load.multiplier" = [1, 2.0, 1e300]\n"sut.cpus" = ["0", "1-3"]\n'
        '[[matrix.exclude]]\n"load.multiplier" = [1]\n"sut.cpus" = ["0"]\n'
        "[matrix.cells.small]\nsut.ring_frames = 64\n"
    )
    sent = task(path)
    got = over_the_wire(sent)
    assert got == sent
    assert isinstance(got, Task)
    assert repr([*got.experiment.matrix.cells()]) == repr([*sent.experiment.matrix.cells()])


def test_a_search_is_the_same_there(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        'name = "x"\n[sut]\nkind = "suricata"\n[load]\nkind = "replay"\ntrace = "x.pcap"\n'
        '[measure]\nmode = "capacity"\noutcome = ["alerts", "flows"]\n'
        '[search]\ngoals_of = "detections"\nneed = "1Gbit/s"\n'
    )
    sent = task(path)
    assert over_the_wire(sent) == sent


@pytest.mark.parametrize(
    "order",
    [
        Next(trial=TRIAL, have={"runs/1/ledger.json": (12, "ab")}),
        Next(trial=None),
        EndOrder(signal=15),
    ],
)
def test_an_order_is_the_same_there(order: Order) -> None:
    assert over_the_wire(order) == order


def test_a_name_that_is_no_text_is_refused_here() -> None:
    named = replace(task(EXPERIMENTS[0]), argv=("nodrop", "run", "\udcff.toml"))
    with pytest.raises(BadInput, match=r"^cannot be sent to the receiver: .*surrogates"):
        content_of(named)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps(Next(trial=None)), "Invalid JSON"),
        (b'{"order":"next"', "Invalid JSON"),
        (b"[]", "Input should be"),
        (b'{"order":"nodrop.remote.messages.Task"}', "does not match any of the expected tags"),
        (b'{"order":"end"}', "end.signal: Field required"),
        (b'{"order":"end","signal":"kill"}', "end.signal: Input should be a valid integer"),
        (b'{"order":"end","signal":9,"host":"x"}', "end.host: Unexpected keyword argument"),
        (b'{"order":"next","trial":{"index":1}}', "next.trial.cell: Field required"),
    ],
)
def test_anything_else_is_one_sentence(content: bytes, words: str) -> None:
    with pytest.raises(NotJson) as error:
        order_of(content)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def told(*contents: bytes) -> Told:
    """The far half's ear, without its threads."""
    found: Any = Told.__new__(Told)
    found._orders = queue.Queue()
    for content in contents:
        found._take(content)
    return found  # type: ignore[no-any-return]


def test_an_order_that_makes_no_sense_ends_the_run_there() -> None:
    with pytest.raises(LabProblem, match=r"an order that makes no sense: .*tags: 'task', 'next'"):
        told(b'{"order":"run"}').next(Task)
    with pytest.raises(LabProblem, match="an order that makes no sense: next, out of turn"):
        told(content_of(Next(trial=None))).next(Task)
    assert told(content_of(Next(trial=None))).next(Next) == Next(trial=None)


LIVE = Live(
    mono_ns=2**62,
    phase="offer",
    offering_s=0.1 + 0.2,
    intended_packets=9,
    dropped_by_thread={"W#02": 2, "W#01": 1},
    busiest_thread=BusyThread(name="W#01", cpu_ratio=1 / 3),
)


@pytest.mark.parametrize(
    "report",
    [
        Greeting(version="0.1.0"),
        RunFolder(path="/var/lib/nodrop/run.1/x"),
        CurrentManifest(manifest={"run_id": "r", "search": None, "seed": 2**63, "s": 0.1}),
        Note(words="a\x1bü"),
        Request(),
        Request(kept="ab"),
        TrialStarted(),
        Phase(name="offer"),
        LiveReading(live=LIVE),
        FileHead(path=("runs", "1", "ledger.json"), size=12, sha256="ab", begun=3),
        TrialEnded(line='{"format":2}', fetched=True),
        Ended(),
        Ended(interrupted=True),
        Ended(error=FarError(kind=ErrorKind.BAD_INPUT, message="a", hint="b")),
        Ended(
            findings=DoctorAnswer(problems=("a",), notes=(), calibration=({"setup": "bare"},)),
        ),
    ],
)
def test_a_report_is_the_same_here(report: Report) -> None:
    assert report_of(content_of(report)) == report


def test_a_reading_is_the_row_that_it_was_there() -> None:
    got = report_of(content_of(LiveReading(live=LIVE)))
    assert isinstance(got, LiveReading)
    assert json.dumps(asdict(got.live)) == json.dumps(asdict(LIVE))


REFUSED = SystemRefused(OSError(28, "No space left"), during="x", host="h", files="f")


@pytest.mark.parametrize(
    ("there", "kind", "here"),
    [
        (BadInput("a", hint="b"), ErrorKind.BAD_INPUT, BadInput),
        (NotReady("a"), ErrorKind.NOT_READY, NotReady),
        (LabProblem("a", hint="b"), ErrorKind.LAB_PROBLEM, LabProblem),
        (NodeDied("a"), ErrorKind.LAB_PROBLEM, LabProblem),
        (REFUSED, ErrorKind.SYSTEM_REFUSED, LabProblem),
        (TrialFailed("a"), ErrorKind.TRIAL_FAILED, TrialFailed),
        (LoadFailed("a"), ErrorKind.TRIAL_FAILED, TrialFailed),
        (NodropError("a"), ErrorKind.LAB_PROBLEM, LabProblem),
    ],
)
def test_an_error_has_the_same_words_here(
    there: NodropError, kind: ErrorKind, here: type[NodropError]
) -> None:
    sent = FarError.of(there)
    end = report_of(content_of(Ended(error=sent)))
    assert isinstance(end, Ended)
    got = end.error
    assert got == sent
    assert got is not None and got.kind is kind
    assert type(got.to_raise()) is here
    assert str(got.to_raise()) == str(there)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"report": "end", "error": {"kind": "X", "message": "a"}}, "end.error.kind: Input should"),
        ({"report": "end", "error": {"kind": "bad-input"}}, "end.error.message: Field required"),
        ({"report": "end", "error": "BadInput"}, "end.error: Input should be"),
        ({"report": "end", "status": 0}, "end.status: Unexpected keyword argument"),
        ({"report": "file", "path": "runs", "size": 1, "sha256": ""}, "file.path: Input should be"),
        ({"report": "task"}, "does not match any of the expected tags"),
        ({"event": "hello"}, "Unable to extract tag"),
        ([], "is not an object"),
    ],
)
def test_a_report_of_another_form_is_named(report: object, words: str) -> None:
    with pytest.raises(NotJson, match=words):
        report_of(json.dumps(report).encode())


def test_a_number_beyond_64_bits_is_no_report() -> None:
    with pytest.raises(NotJson, match="beyond 64 bits"):
        report_of(b'{"report":"manifest","manifest":{"n":%s}}' % (b"9" * 30))


def test_a_terminal_is_shown_one_clean_line() -> None:
    error = FarError(kind=ErrorKind.UNEXPECTED, message="a\x1b[2J\nb", hint="c\nd")
    assert str(error.to_raise()) == "a\\u001b[2J b; c d"
