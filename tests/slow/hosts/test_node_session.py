"""The controller's side of the node protocol, against a node that misbehaves in every known way."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from nodrop.errors import LabProblem, NodeDied, NodeRefused
from nodrop.testbed.hosts.node import NodeProcess, start_job
from tests import fake_node


@contextmanager
def job(
    behaviour: str,
    *,
    kind: str = fake_node.ERRAND,
    again: bool = False,
    timeout_s: float = 20,
) -> Iterator[NodeProcess]:
    started = start_job(
        fake_node.command(behaviour, kind),
        {"job": kind, "what": ["tsc"], "again": again},
        env=os.environ,
        where="here",
        timeout_s=timeout_s,
    )
    with closing(started):
        yield started


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not end by itself is killed soon."""
    monkeypatch.setattr("nodrop.testbed.hosts.node.CLOSE_GRACE_S", 0.3)


def lives(process: NodeProcess) -> bool:
    return Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("behaviour", ["good", "noise"])
def test_a_job_from_ready_to_result(behaviour: str) -> None:
    with job(behaviour) as session:
        assert session.ready == {"type": "ready", "job": fake_node.ERRAND}
        session.start()
        session.stop()
        said = session.result(timeout_s=20)
        assert said == {"type": "result", "job": fake_node.ERRAND, "packets": 3}
        assert [sample["packets"] for sample in session.samples()] == [1, 2]
        assert session.result(timeout_s=0)["packets"] == 3  # asked again: the same answer
    assert not lives(session)


def test_who_waits_for_a_result_is_called_now_and_then() -> None:
    ticks: list[int] = []
    with job("good") as session:

        def tick() -> None:
            ticks.append(len(session.samples()))
            if len(ticks) == 2:
                session.stop()

        session.start()
        assert session.result(timeout_s=20, tick=tick)["packets"] == 3


def test_ticks_do_not_put_off_the_deadline() -> None:
    ticks: list[None] = []
    with job("good") as session:
        session.start()
        with pytest.raises(LabProblem, match=r"sent no result within 1\.2 s"):
            session.result(timeout_s=1.2, tick=lambda: ticks.append(None))
    assert ticks


def test_a_probe_answers_without_start() -> None:
    with job("good", kind="probe") as session:
        assert session.ready == {}
        assert session.result(timeout_s=20) == {"type": "result", "tsc": {"batches": 0, "ns": {}}}


def test_a_clock_that_is_far_is_asked_less_often() -> None:
    with job("far") as session:
        fix = session.clock(rounds=1000, timeout_s=3)
        assert abs(fix.offset_ns + fake_node.CLOCK_AHEAD_NS) <= fix.bound_ns
        assert fix.bound_ns >= fake_node.FAR_S / 2 * 1e9


def test_the_clock_exchange_finds_the_offset_within_its_own_bound() -> None:
    with job("good") as session:
        fix = session.clock()
        assert 0 < fix.bound_ns < 1_000_000_000
        assert abs(fix.offset_ns + fake_node.CLOCK_AHEAD_NS) <= fix.bound_ns


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        ("old-protocol", LabProblem, "speaks protocol 99, not 2"),
        ("refuse", NodeRefused, "no interface nope0; choose another"),
        ("crash-early", NodeDied, "exit status 1.*stderr: cannot load: bad magic"),
        ("babble", NodeRefused, "not a protocol line: thread 'main' is confused"),
        ("unknown-event", LabProblem, "sent 'surprise' when 'ready' was due"),
    ],
)
def test_a_job_that_does_not_become_ready(
    behaviour: str, error: type[LabProblem], words: str
) -> None:
    with pytest.raises(error, match=words), job(behaviour):
        pass


def test_a_refusal_keeps_the_protocols_word() -> None:
    with pytest.raises(NodeRefused) as caught, job("refuse"):
        pass
    assert (caught.value.kind, caught.value.exit_code) == ("no_such_interface", 3)
    assert caught.value.said == "no interface nope0"


def test_silence_ends_at_the_deadline() -> None:
    with (
        pytest.raises(LabProblem, match=r"sent no hello within 0\.5 s"),
        job("silent", timeout_s=0.5),
    ):
        pass


def test_a_crash_brings_its_last_words() -> None:
    with job("crash") as session:
        session.start()
        with pytest.raises(NodeDied, match=r"exit status -9.*panicked at 'ring is gone'"):
            session.result(timeout_s=20)
        with pytest.raises(NodeDied):  # and writing to the dead says the same
            session.stop()
            session.result(timeout_s=20)


def test_an_exit_without_result_is_a_death() -> None:
    with job("no-result") as session:
        session.stop()
        with pytest.raises(NodeDied, match="exit status 0"):
            session.result(timeout_s=20)


def shell(words: str) -> list[str]:
    return ["/bin/sh", "-c", words]


HELLO = '{"type": "hello", "protocol": 2, "version": "f", "job": "errand", "pid": 1}'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("yes nonsense; true", "more than 64 KiB and no hello; before hello: nonsense"),
        ("cat /dev/zero; true", "more than 64 KiB and no hello"),
        ("trap '' PIPE; yes nonsense; sleep 1000", "more than 64 KiB and no hello"),
        ("yes nonsense & yes more", "more than 64 KiB and no hello"),
        (f"echo '{HELLO}'; yes nonsense; true", "not a protocol line: nonsense"),
        ("""yes '{"type": "ready"}'; true""", "sent 'ready' when 'hello' was due"),
        ("""echo '{"type": "hallo"}'; sleep 1000""", "sent 'hallo' when 'hello' was due"),
    ],
)
def test_a_flood_of_nonsense_ends_the_job_and_what_it_began(
    impatient: None, script: str, words: str
) -> None:
    started = NodeProcess(shell(script), {"job": "errand"}, env=os.environ, where="here")
    with pytest.raises(NodeRefused, match=words) as caught:
        started.prepare(timeout_s=60)
    assert len(str(caught.value)) < 600
    assert ended(started.pid)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("script", ["sleep 1000 & exit 1", "trap '' PIPE TERM; sleep 1000; true"])
def test_what_a_silent_job_began_is_ended_too(script: str) -> None:
    started = NodeProcess(shell(script), {"job": "errand"}, env=os.environ, where="here")
    started.close()
    assert ended(started.pid)


def ended(pid: int) -> bool:
    """Whether all of the job's group are gone: they end by signals, so a moment later."""
    deadline = time.monotonic() + 20
    while group_of(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def group_of(pid: int) -> list[int]:
    """Processes of the job's group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = path.read_text().rpartition(") ")[2].split()[:3]
            if int(group) == pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def test_close_is_the_dead_mans_switch() -> None:
    with job("good") as session:
        session.start()
    assert not lives(session)


@pytest.mark.usefixtures("impatient")
def test_close_kills_the_deaf() -> None:
    with job("deaf") as session:
        session.start()
    assert not lives(session)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(LabProblem, match="cannot start /nope: No such file"):
        NodeProcess(["/nope"], {"job": "sink"}, env={}, where="here")


def test_one_process_does_one_spec_after_another() -> None:
    with job("good", again=True) as session:
        for number in (1, 2, 3):
            session.start()
            session.stop()
            assert session.result(timeout_s=20)["packets"] == 3
            assert len(session.samples()) == 2  # of this round alone
            session.again({"job": "sink", "again": number < 3}, timeout_s=20)
            assert session.samples() == []
        session.start()
        session.stop()
        session.result(timeout_s=20)
    assert not lives(session)
