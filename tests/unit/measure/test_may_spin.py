"""A sender may wait by spinning on a core that is its own, with a CPU left for all else."""

from __future__ import annotations

import pytest

from nodrop.config.units import parse_cpus
from nodrop.measure.cells import may_spin, sender_problems


def _spins(sender: object, sut: str | None, *, allowed: str, threads: int = 1) -> bool:
    def core_of(cpu: int) -> frozenset[int]:
        first = cpu - cpu % threads if threads else 0
        return frozenset(range(first, first + threads))

    load, common = {"cpu": sender}, frozenset(parse_cpus(allowed) if allowed else ())
    return may_spin(load, None, sut, in_common=common, core_of=core_of)


@pytest.mark.parametrize(
    ("sender", "sut", "allowed"), [(0, "1-3", "0-3"), (3, "0,1", "0-3"), ("2", "1", "0-2")]
)
def test_a_sender_with_a_core_of_its_own_spins(sender: object, sut: str, allowed: str) -> None:
    assert _spins(sender, sut, allowed=allowed)


@pytest.mark.parametrize(
    ("sender", "sut", "allowed"),
    [
        (0, "0-3", "0-3"),
        (2, "1,2", "0-3"),
        (0, None, "0-3"),
        (None, "1-3", "0-3"),
        ("any", "1", "0-3"),
        (0, "1", "0,1"),
        (0, "0", "0"),
        ("0,1", "2", "0-2"),
    ],
)
def test_nothing_spins_on_a_cpu_that_others_need(
    sender: object, sut: str | None, allowed: str
) -> None:
    assert not _spins(sender, sut, allowed=allowed)


@pytest.mark.parametrize(("sender", "sut"), [(0, "1"), (2, "3"), (1, "0,4")])
def test_a_hardware_thread_of_the_suts_core_is_not_the_senders_own(sender: int, sut: str) -> None:
    assert not _spins(sender, sut, allowed="0-5", threads=2)
    assert _spins(sender, "4,5" if sut != "0,4" else "4", allowed="0-5", threads=2)


def test_a_host_that_does_not_say_its_cores_has_no_spinning_sender() -> None:
    assert not _spins(0, "1-3", allowed="0-3", threads=0)


@pytest.mark.parametrize(("sender", "sut"), [(0, None), (2, "2"), ("1,2", "0-3"), (40, "any")])
def test_equal_numbers_of_two_machines_are_different_cpus(sender: object, sut: str | None) -> None:
    assert _spins(sender, sut, allowed="")
    assert not _spins(None, sut, allowed="")


def test_a_cpu_that_the_sender_cannot_have_is_one_of_its_own_machine() -> None:
    here = frozenset({0, 1})
    assert sender_problems({"cpu": "1,5"}, here) == ['load.cpu = "1,5": this host has no CPU 5']
    assert sender_problems({"cpu": 9999}, here) == ['load.cpu = "9999": this host has no CPU 9999']
    for load in ({"cpu": 1}, {"cpu": "any"}, {}):
        assert sender_problems(load, here) == []
    assert sender_problems({"cpu": 40}, frozenset()) == []
