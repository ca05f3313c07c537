"""Each finding on runs that have the trouble, and on runs that are sound."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from nodrop.findings.observations import RunObservation, observations_of
from nodrop.findings.rules import find
from nodrop.results.trial import Disturbed, Offered, Slowed, TrialRecord, Unscheduled
from tests.made.outcome_runs import trial
from tools import places as registry

DAY_S = 86_400
START = 1_460_000_000.0
SETUPS = ("BM", "Docker", "VM")
LOADS = (1.0, 2.0, 4.0)
RUNS = 8
TRACE = 100_000


def sound() -> list[RunObservation]:
    """Three setups at three loads, runs in blocked random order, nothing wrong."""
    rng = random.Random(590)
    found: list[RunObservation] = []
    for repetition in range(RUNS):
        block = [(setup, load) for setup in SETUPS for load in LOADS]
        rng.shuffle(block)
        for setup, load in block:
            sent = TRACE * load
            found.append(
                RunObservation(
                    run=f"{setup}{load}-{repetition}",
                    cell=f"{setup} {load:g}X",
                    group=setup,
                    load=load,
                    started_s=START + 60 * len(found),
                    sent_packets=sent,
                    captured_packets=sent,
                    dropped_packets=1000 * (load - 1) ** 2,
                    decoded_packets=sent - 1000 * (load - 1) ** 2,
                    offered_pps=1000 * load + rng.uniform(-5, 5),
                )
            )
    return found


Change = Callable[[RunObservation], RunObservation]


def changed(change: Change, *, only: Sequence[str] = SETUPS) -> list[RunObservation]:
    return [change(run) if run.group in only else run for run in sound()]


def path_loss(run: RunObservation) -> RunObservation:
    lost = 37 * (run.load or 0)
    return replace(
        run,
        captured_packets=(run.captured_packets or 0) - lost,
        decoded_packets=(run.decoded_packets or 0) - lost,
    )


def slow_sender(run: RunObservation) -> RunObservation:
    pps = min(run.offered_pps or 0, 2380)
    return replace(run, offered_pps=pps)


def late_capture(run: RunObservation) -> RunObservation:
    return replace(run, captured_packets=(run.captured_packets or 0) - 5000)


def one_after_the_other() -> list[RunObservation]:
    runs = sorted(sound(), key=lambda run: (run.group, run.load or 0))
    return [replace(run, started_s=START + 60 * n) for n, run in enumerate(runs)]


def same_order_in_blocks() -> list[RunObservation]:
    runs = sorted(sound(), key=lambda run: (run.run[-1], run.group, run.load or 0))
    return [replace(run, started_s=START + 60 * n) for n, run in enumerate(runs)]


def one_setup_at_night() -> list[RunObservation]:
    return [
        replace(run, started_s=START + DAY_S * n + (6 * 3600 if run.group == "VM" else 0))
        for n, run in enumerate(sound())
    ]


def lost_runs() -> list[RunObservation]:
    return [run for run in sound() if run.run not in ("VM1.0-2", "VM1.0-3")]


def iperf3(run: RunObservation) -> RunObservation:
    seen = Unscheduled(
        generator="iperf 3.12",
        flows=1,
        mean_frame_bytes=58_810,
        longest_on_wire_bytes=3014,
        least_pps=27_000,
        most_pps=44_000,
        spread_ratio=0.09,
        said_lost_packets=10,
        socket_full_packets=12,
    )
    return replace(run, unscheduled=seen)


def codes(runs: Sequence[RunObservation]) -> set[str]:
    return {finding.code for finding in find(runs)}


def test_sound_runs_raise_nothing() -> None:
    assert find(sound()) == []
    assert find([]) == []


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (changed(path_loss, only=["Docker"]), {"loss-per-replica"}),
        (changed(slow_sender), {"offered-below-nominal"}),
        (changed(late_capture), {"captured-below-decoded"}),
        (one_after_the_other(), {"fixed-run-order"}),
        (same_order_in_blocks(), {"fixed-run-order"}),
        (one_setup_at_night(), {"time-of-day"}),
        (lost_runs(), {"missing-samples"}),
        (changed(iperf3, only=["VM"]), {"no-schedule"}),
    ],
)
def test_each_trouble_raises_its_finding_and_no_other(
    runs: list[RunObservation], expected: set[str]
) -> None:
    assert codes(runs) == expected


def test_a_load_without_schedule_is_said_in_figures() -> None:
    (finding,) = find([run for run in changed(iperf3, only=["VM"]) if run.cell == "VM 1X"])
    for words in (
        "1 flow;",
        "packets/s in 8 trials",
        "27,000 to 44,000 packets/s in windows of 100 ms within a trial, standard deviation 9.0%",
        "58,810 bytes a frame on a link that carries 3,014: segments cross glued together (GSO)",
        "it reports 80 lost: its own server's socket was full 96 times",
    ):
        assert words in finding.values["evidence"], finding.values["evidence"]


@pytest.mark.parametrize(
    "change",
    [
        # Overload drops in the kernel: arrived, then dropped, more at each load.
        lambda run: replace(
            run,
            dropped_packets=5000 * (run.load or 0) ** 2,
            decoded_packets=(run.sent_packets or 0) - 5000 * (run.load or 0) ** 2,
        ),
        # Loss on the way that grows faster than the load.
        lambda run: replace(
            run,
            captured_packets=(run.captured_packets or 0) - 300 * (run.load or 0) ** 3,
            decoded_packets=(run.decoded_packets or 0) - 300 * (run.load or 0) ** 3,
        ),
        # Nothing but the packets was measured.
        lambda run: RunObservation(
            run=run.run,
            cell=run.cell,
            group=run.group,
            load=run.load,
            sent_packets=run.sent_packets,
            decoded_packets=run.sent_packets,
        ),
    ],
)
def test_what_looks_like_it_and_is_not(change: Change) -> None:
    assert codes(changed(change)) == set()


def test_fewer_runs_than_planned() -> None:
    planned = {"BM 1X": RUNS, "VM 4X": RUNS + 2}
    (finding,) = find(sound(), planned=planned)
    assert (finding.code, finding.values["evidence"]) == ("missing-samples", "VM 4X: 8 of 10")


def _trial(index: int, load: int, **figures: object) -> TrialRecord:
    values = {
        "cell": {"setup.kind": "bare", "load.multiplier": load},
        "repetition": index + 1,
        "index": index,
        "run": f"{index:04d}",
        "valid": True,
        "verdict": "",
        "offered_packets": 1000 * load,
        "captured_packets": 986 * load,
        "decoded_packets": 986 * load,
        "lost_packets": 0,
        "merged_packets": 14 * load,
        "activation_s": 1.5,
        **figures,
    }
    return trial(**values)


def test_trials_of_our_own_are_judged_by_the_same_rules() -> None:
    merged = [_trial(index, load) for index, load in enumerate((1, 2, 4))]
    assert find(observations_of(merged)) == []  # what defragmentation took out is no loss
    lossy = [
        _trial(
            index,
            load,
            captured_packets=976 * load,
            decoded_packets=976 * load,
            lost_packets=10 * load,
            lost_by_place={"path": 10 * load},
        )
        for index, load in enumerate((1, 2, 4))
    ]
    # The SUT was ready by an event, so it was no race.
    assert {f.code for f in find(observations_of(lossy))} == {"loss-per-replica"}


def test_trials_that_repeat_flows_are_named() -> None:
    """A first trial, and a trial of a SUT of its own, repeat nothing."""
    for repeats, said in (
        ((False, True, True), "kind bare, multiplier 1: 2 of 3 trials"),
        ((False, False, False), None),
        ((None, None), None),
    ):
        records = [
            _trial(n, 1).model_copy(update={"offered": Offered(repeats_flows=again)})
            for n, again in enumerate(repeats)
        ]
        found = {finding.code: finding for finding in find(observations_of(records))}
        assert ("repeated-flows" in found) == (said is not None)
        assert said is None or found["repeated-flows"].values["evidence"] == said


def test_a_core_that_others_use_is_named() -> None:
    """Seen on a virtual machine: 42 to 55 us a packet under one load."""
    half = "in 2 of 4 trials CPU 3 ran at 70% of its speed for 20% to 60% of the time"
    for ratios, said in (
        ((0.6, 0.2, 0.1, 0.0), f"kind bare, multiplier 1: {half}"),
        ((0.6, 0.1, 0.1, None), None),
        ((0.9,), None),
    ):
        slowed = [
            None if ratio is None else Slowed(cpu=3, slow_ratio=ratio, slow_speed_ratio=0.7)
            for ratio in ratios
        ]
        records = [
            _trial(n, 1).model_copy(update={"disturbed": Disturbed(slowed=one)})
            for n, one in enumerate(slowed)
        ]
        found = {finding.code: finding for finding in find(observations_of(records))}
        assert ("slowed-cpu" in found) == (said is not None)
        assert said is None or found["slowed-cpu"].values["evidence"] == said


@pytest.mark.parametrize(
    ("worlds", "said"),
    [
        ([1, 1, 3], "bare, multiplier 1: 3 trials of 2 starts"),
        ([1, 1, 1, 1], "4 trials of 1 starts"),
        ([1, 1, 3, 3, 5, 5, 5], "7 trials of 3 starts"),
        ([1, 2, 3], None),
        ([None, None], None),
    ],
)
def test_trials_that_share_a_start_are_said(worlds: list[int | None], said: str | None) -> None:
    records = [
        _trial(n, 1, world=world, activation_s=1.5 if world in (n + 1, None) else None)
        for n, world in enumerate(worlds)
    ]
    seen = observations_of(records)
    found = {finding.code: finding for finding in find(seen)}
    assert set(found) == ({"shared-starts"} if said else set())
    assert said is None or found["shared-starts"].values["evidence"].endswith(said)


@pytest.mark.parametrize(("place", "within"), [
    *((one.place.name, one.place.within_sut) for one in registry.places(registry.built_in())),
    ("a plugin's own queue", False),
])  # fmt: skip
def test_what_was_lost_before_the_sut_did_not_arrive(place: str, *, within: bool) -> None:
    """100 packets lost in softnet were reported as arrived."""
    before = {"lost_before_sut_packets": 0 if within else 100}
    captured = 976 if within else 876
    record = _trial(
        0, 1, captured_packets=captured, decoded_packets=876, lost_packets=100,
        lost_by_place={place: 100}, **before,
    )  # fmt: skip
    (seen,) = observations_of([record])
    assert seen.dropped_packets == (100 if within else 0)
    assert seen.arrived_packets == captured + seen.explained_packets
