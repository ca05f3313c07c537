"""One registry of the places where packets can die: a place is described in its owner's words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nodrop.ledger
from nodrop.ledger.balance import balance
from nodrop.ledger.cause import Rule, causes_of, knob_of
from nodrop.ledger.hops import (
    ON_EVERY_HOST,
    SOCKET_RING,
    Account,
    Class,
    Hop,
    Knobs,
    Owner,
    Place,
    WaitsFor,
    ring_of,
    socket_ring,
)
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import Verdict, judge
from nodrop.plugins import GROUPS, plugins
from nodrop.results.packet_books import PacketBooks
from nodrop.results.trial import TrialRecord
from tests.made.judged import judged
from tests.made.threads import Made, World
from tools import places as registry

ROOT = Path(__file__).parents[2]


def test_the_page_of_places_is_that_of_the_registry() -> None:
    made = registry.page(registry.places(registry.built_in()))
    assert (ROOT / "docs/reference/places.md").read_text() == made


def test_every_place_says_who_counts_who_drops_and_what_touches_it() -> None:
    found = registry.places(registry.built_in())
    names = [(one.place.name, one.by) for one in found]
    assert len(set(names)) == len(names)
    for one in found:
        place = one.place
        assert place.owner and place.counter and place.source and place.knob, place.name
        assert bool(one.by) is (place.owner is not Owner.HOST), place.name
        assert place.within_sut is (place.owner is Owner.SUT), place.name


def test_the_ledger_names_no_setting_of_a_sut() -> None:
    """Neither Suricata's nor anybody's: those words are registered by the SUT itself."""
    folder = Path(nodrop.ledger.__file__).parent
    for path in [*folder.glob("*.py"), *(ROOT / "src/nodrop/measure/packets").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"\bsut\.[a-z_]|(?i:suricata)", node.value), path


def books(place: Place | None, lost: int, *, knob: str = "") -> Verdict:
    hops = [
        Hop(name=name, packets=10_000 - (lost if name == "decoded" else 0), counter=name)
        for name in ("intended", "sent", "tx_nic", "rx_nic", "socket", "decoded")
    ]
    account = Account(
        into="decoded", kind=Class.LOST, name="x", packets=lost, counter="n", place=place, knob=knob
    )
    sending = Sending(intended_packets=10_000, sent_packets=10_000)
    return judge(balance(hops, [account]), sending)


class Silent:
    """A plugin's SUT that registers nothing."""


@pytest.mark.parametrize(
    ("threads", "ring", "less"),
    [("engine.workers", "engine.queue", "fewer signatures"), ("snort.z", "daq.ring", "fewer SOs")],
)
def test_a_sut_is_advised_in_its_own_words(threads: str, ring: str, less: str) -> None:
    class Own:
        places = (socket_ring(Knobs(ring=ring, threads=threads, less_work=less)),)

    words = books(ring_of(Own()), 77).words
    assert f": {ring} for bursts; {threads} or {less} if a thread has no time left" in words
    world = World(threads={"W": [Made(ran=0.99)]})
    (cause,) = causes_of(ring_of(Own()), world.running(("W", 0, 3, 77)))
    assert cause.rule is Rule.SATURATED
    assert cause.knob.startswith(f"{threads}, {less}, or less load")
    assert ring in knob_of(Rule.BURST, ring_of(Own()).knobs)


def test_a_sut_that_registers_nothing_is_advised_in_neutral_words() -> None:
    assert ring_of(Silent()) is SOCKET_RING
    knob = books(ring_of(Silent()), 77).knob
    assert knob.startswith("a larger capture ring for bursts; more capture threads")
    for rule in Rule:
        assert "sut." not in knob_of(rule)


@pytest.mark.parametrize("lost", [1, 40, 9_000])
@pytest.mark.parametrize("within", [False, True])
def test_a_place_of_a_plugins_own_needs_no_plugin_to_be_read(lost: int, *, within: bool) -> None:
    """The record carries the words, and whether its packets had arrived at the SUT."""
    place = Place(
        name="flux buffer", owner=Owner.SETUP, within_sut=within, knob="flux.size", counter="f"
    )
    verdict = books(place, lost)
    made = judged(
        verdict, cell={}, repetition=1, index=0, run="a", body=PacketBooks.of(None, verdict)
    )
    record = TrialRecord.from_line(made.to_line())
    assert record.packets.loss_place == "flux buffer"
    assert record.packets.lost_before_sut_packets == (0 if within else lost)
    assert "lost in the flux buffer" in record.verdict
    assert record.packets.knob == "flux.size"


def test_losses_of_no_place_are_named_by_the_hop_they_led_into() -> None:
    verdict = books(None, 3, knob="look there")
    assert (str(verdict.place), verdict.knob) == ("decoded", "look there")


def test_an_accounts_own_knob_goes_before_its_places() -> None:
    assert books(ON_EVERY_HOST[0], 3, knob="exactly this").knob == "exactly this"
    assert books(ON_EVERY_HOST[0], 3).knob == ON_EVERY_HOST[0].knob


@pytest.mark.parametrize("place", [one.place for one in registry.places()], ids=str)
def test_what_is_named_as_a_cause_depends_on_what_packets_wait_for(place: Place) -> None:
    world = World(threads={"W": [Made(ran=0.4, waited=0.6)]})
    running = world.running(("W", 0, 3, 77), throttled=[(0, 0), (3, 1.8)])
    found = causes_of(place, running)
    assert bool(found) is (place.waits_for in (WaitsFor.THREAD, WaitsFor.EMULATOR))


def test_every_built_in_setup_and_sut_names_its_places() -> None:
    for plugin in plugins():
        if plugin.table in ("setup", "sut"):
            assert hasattr(plugin.entry.load(), "places"), plugin.kind
    assert set(GROUPS) >= {"setup", "sut"}
