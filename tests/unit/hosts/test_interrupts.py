"""A signal unwinds the run once; what comes later waits or is ignored."""

import os
import signal

import pytest

from nodrop.errors import Interrupted, interrupts, signals_held


def hit(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_becomes_an_exception_with_its_exit_code(number: signal.Signals) -> None:
    former = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught, interrupts():
        hit(number)
    assert caught.value.exit_code == 128 + number
    assert signal.getsignal(number) is former


def test_a_second_signal_does_not_break_the_unwinding() -> None:
    words = []
    with pytest.raises(Interrupted), interrupts():
        try:
            hit(signal.SIGINT)
        finally:
            hit(signal.SIGTERM)
            words.append("undone")
    assert words == ["undone"]


def test_a_signal_waits_while_held() -> None:
    words = []
    with pytest.raises(Interrupted), interrupts():
        with signals_held():
            hit(signal.SIGTERM)
            words.append("finished")
        words.append("not reached")
    assert words == ["finished"]


def test_a_signal_lost_in_a_destructor_is_raised_by_check() -> None:
    class Unlucky:
        def __del__(self) -> None:
            hit(signal.SIGTERM)

    with pytest.raises(Interrupted), interrupts() as gate:
        unlucky = Unlucky()
        del unlucky
        gate.check()


def test_a_run_that_nohup_began_outlives_its_terminal() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts():
            hit(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)
