"""Each suspicion on published samples that have the trouble, and on samples that are sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import pytest

from nodrop.findings.rules import find
from nodrop_studies.suspicions import ImportedRun, SpreadClaim, suspicions
from tests.unit.findings.test_findings import sound as measured

Change = Callable[[ImportedRun], ImportedRun]


def sound() -> list[ImportedRun]:
    """Runs of `test_findings` with what others recorded beside the counters."""
    return [
        ImportedRun(
            **asdict(run),
            virtual=run.group == "VM",
            alerts=100 * (run.load or 0),
            sender_cpu_ratio=0.2 * (run.load or 0),
            host_cores=0.5 * (run.load or 0) + 0.03,
            process_cores=0.5 * (run.load or 0),
            cpus=4,
            threads_at_first_packet=12,
            threads_final=12,
            rows={"eve": 45, "receiver": 80},
        )
        for run in measured()
    ]


def changed(change: Change, *, only: Sequence[str] = ("BM", "Docker", "VM")) -> list[ImportedRun]:
    return [change(run) if run.group in only else run for run in sound()]


def race(run: ImportedRun) -> ImportedRun:
    """The first 2 % of every replica were sent before anything listened."""
    arrived = (run.sent_packets or 0) * 0.98
    dropped = run.dropped_packets or 0
    return replace(
        run,
        captured_packets=arrived,
        decoded_packets=arrived - dropped,
        threads_at_first_packet=1,
    )


def guest_twice(run: ImportedRun) -> ImportedRun:
    return replace(run, host_cores=(run.process_cores or 0) * 1.25)


def exploding(run: ImportedRun) -> ImportedRun:
    return replace(run, alerts=100 if run.load == 1 else 100_000)


def busy_sender(run: ImportedRun) -> ImportedRun:
    return replace(run, sender_cpu_ratio=0.99)


def survivors(run: ImportedRun) -> ImportedRun:
    longer = run.run.endswith("-3")
    return replace(run, rows={"eve": 47 if longer else 45, "receiver": 80})


def unpaired(run: ImportedRun) -> ImportedRun:
    return replace(run, rows={"eve": 45}) if run.run == "Docker2.0-5" else run


def codes(runs: Sequence[ImportedRun]) -> set[str]:
    return {finding.code for finding in suspicions(runs)}


def test_sound_samples_raise_nothing() -> None:
    assert not codes(sound()) and not codes([])


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (changed(race, only=["VM"]), {"start-up-race"}),
        (changed(guest_twice, only=["VM"]), {"guest-time-twice"}),
        (changed(exploding), {"alert-explosion"}),
        (changed(busy_sender), {"sender-saturated"}),
        (changed(survivors), {"survivor-tail"}),
        (changed(unpaired), {"unpaired-channels"}),
    ],
)
def test_each_trouble_raises_its_suspicion_and_no_other(
    runs: list[ImportedRun], expected: set[str]
) -> None:
    assert codes(runs) == expected


def test_evidence_names_numbers_and_cells() -> None:
    runs = changed(race, only=["VM"])
    # A race takes the same packets from each replica: both are said.
    (finding, _) = find(runs, more=suspicions(runs))
    assert finding.values["evidence"] == (
        "arrived of sent at 1X 98.00%, 2X 98.00%, 4X 98.00%; in 24 of 24 runs the SUT had 1 of its"
        " 12 threads when packets were already arriving"
    )
    assert finding.values["cells"] == ["VM 1X", "VM 2X", "VM 4X"]
    assert finding.values["severity"] == "serious"


@pytest.mark.parametrize(
    "change",
    [
        # Few threads while packets arrive, yet nothing is missing.
        lambda run: replace(run, threads_at_first_packet=3),
        # A saturated host hides what it would say more.
        lambda run: replace(run, host_cores=4.0, process_cores=3.5),
        # Alerts grow in proportion; a handful more is no explosion.
        lambda run: replace(run, alerts=50 + 25 * (run.load or 0)),
        # All threads were there, so what is missing at each load was lost elsewhere.
        lambda run: (
            replace(
                run, captured_packets=(run.captured_packets or 0) * 0.9989, decoded_packets=None
            )
            if run.load == 1
            else replace(
                run, captured_packets=(run.captured_packets or 0) * 0.998, decoded_packets=None
            )
        ),
    ],
)
def test_what_looks_like_it_and_is_not(change: Change) -> None:
    assert codes(changed(change)) == set()


@pytest.mark.parametrize(
    ("printed", "over_time", "between_runs", "wrong"),
    [(4.61, 4.61, 0.28, True), (0.28, 4.61, 0.28, False), (0.30, 0.31, 0.28, False)],
)
def test_a_sigma_over_time(
    printed: float, over_time: float, between_runs: float, wrong: bool
) -> None:
    claim = SpreadClaim(
        label="Table III BM", printed=printed, over_time=over_time, between_runs=between_runs
    )
    found = [finding.code for finding in suspicions(sound(), [claim])]
    assert found == (["spread-over-time"] if wrong else [])
