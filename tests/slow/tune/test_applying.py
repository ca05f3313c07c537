"""Apply and put back are identity, in any order, killed anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodrop.testbed.labs.port_settings import Piece
from nodrop.tune.applying import State, apply, parse, plan, restore, snapshot
from nodrop.tune.knobs import KNOBS
from tests.unit.tune.simulated_port import PORT, Killed, SimulatedPort
from tests.unit.tune.test_applying import _everything

VALUES = {
    "channels": ("1", "2", "4"),
    "rx-ring": ("64", "79", "4096"),
    "mtu": ("1500", "9000"),
    "gro": ("on", "off"),
    "sg": ("on", "off"),
    "tso": ("on", "off"),
    "rss-key": ("symmetric", "0a:0b"),
    "rss-table": ("equal 1", "3"),
    "hash-tcp4": ("sd", "sdfn"),
    "rx-usecs": ("3", "100"),
    "adaptive-rx": ("on", "off"),
    "rps": ("none", "1,3"),
    "irq-cpus": ("0", "2-3"),
    "netdev-budget": ("300", "600"),
}
ASKED = st.permutations(list(VALUES)).flatmap(
    lambda names: st.tuples(
        *(st.sampled_from(VALUES[name]).map(lambda v, n=name: f"{n}={v}") for name in names[:6])
    )
)


@settings(max_examples=60, deadline=None)
@given(orders=st.lists(ASKED, min_size=1, max_size=3))
def test_any_knobs_in_any_order_and_back_is_identity(orders: list[tuple[str, ...]]) -> None:
    device = SimulatedPort()
    first = _everything(device)
    before: dict[Piece, str] = {}
    for words in orders:  # each is a command of its own
        steps = plan(device, parse(words, KNOBS), [PORT])
        before = {**snapshot(device, steps), **before}
        apply(device, steps)
    left = {one: raw for one in before if (raw := device.read(one)) is not None}
    found = restore(device, State(space=0, ports={}, before=before, left=left))
    assert (found.others, found.failed) == ([], [])
    assert _everything(device) == first


@settings(max_examples=50, deadline=None)
@given(words=ASKED, point=st.floats(0, 1))
def test_killed_anywhere_everything_comes_back(words: tuple[str, ...], point: float) -> None:
    device = SimulatedPort()
    first = _everything(device)
    steps = plan(device, parse(words, KNOBS), [PORT])
    state = State.of(State(space=0, ports={}, before=snapshot(device, steps)).text())
    twin = SimulatedPort()
    apply(twin, steps)
    device.calls, device.dies_after = 0, int(point * twin.calls)
    with pytest.raises(Killed):
        apply(device, steps)
        raise Killed
    device.dies_after = None
    assert restore(device, state).failed == []
    assert _everything(device) == first
