"""Each knob is applied and put back, and said; others' changes stay."""

from __future__ import annotations

import re
import struct

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.labs.port_settings import HOST, Piece, settle
from nodrop.tune.applying import State, apply, parse, plan, restore, snapshot
from nodrop.tune.knobs import KNOBS
from nodrop.untrusted.json_text import NotJson
from tests.unit.tune.simulated_port import BUDGET, PORT, SimulatedPort


def _everything(device: SimulatedPort) -> tuple[dict[str, str], dict[str, str]]:
    return dict(device.state), dict(device.host)


def test_what_was_accepted_and_ignored_is_said() -> None:
    device = SimulatedPort()
    steps = plan(
        device, parse(["adaptive-rx=on", "rx-ring=79", "gro=off", "mtu=1500"], KNOBS), [PORT]
    )
    said = {done.step.knob.id: (done.verdict, done.found) for done in apply(device, steps).done}
    assert said == {
        "adaptive-rx": ("accepted and ignored", "off"),
        "rx-ring": ("set otherwise", "80"),
        "gro": ("set", "off"),
        "mtu": ("as it was", "1500"),
    }


def test_what_changes_along_is_said_and_the_order_is_that_of_writing() -> None:
    device = SimulatedPort()
    steps = plan(
        device, parse(["rps=0", "netdev-budget=600", "channels=2", "sg=off"], KNOBS), [PORT]
    )
    assert [step.knob.id for step in steps] == ["channels", "sg", "rps", "netdev-budget"]
    assert [step.flaps for step in steps] == [True, False, False, False]
    along = apply(device, steps).along
    assert along == [
        "eth1 tso: on → off",
        "eth1 rss-table: equal 4 → equal 2",
        "eth1 irq-cpus: 0, 1, 2, 3 → 0-3",
    ]


def test_a_user_without_rights_is_told_which_and_nothing_is_changed() -> None:
    device = SimulatedPort()
    steps = plan(device, parse(["mtu=9000"], KNOBS), [PORT])
    device.refuses, device.refusal = "mtu", PermissionError(1, "Operation not permitted")
    with pytest.raises(BadInput, match=r"mtu.*CAP_NET_ADMIN"):
        apply(device, steps)


@pytest.mark.parametrize("refused", ["mtu", "queues/rx-2/rps_cpus"])
def test_a_refusal_leaves_nothing_behind(refused: str) -> None:
    device = SimulatedPort()
    first = _everything(device)
    device.refuses = refused
    steps = plan(device, parse(["gro=off", "mtu=9000", "rps=1", "rx-ring=512"], KNOBS), [PORT])
    before = snapshot(device, steps)
    with pytest.raises(BadInput, match="Invalid argument"):
        apply(device, steps)
    device.refuses = None
    assert settle(device, before) == {}
    assert _everything(device) == first


@pytest.mark.parametrize(
    ("name", "theirs", "words"),
    [
        ("mtu", "4000", ("eth1 mtu ", "4000", "1500")),
        ("queues/rx-0/rps_cpus", "04", ("eth1 rps ", " 2 ", "(none")),
        (BUDGET, "700", ("host netdev-budget ", "700", "300")),
    ],
)
def test_what_somebody_else_changed_stays_and_is_said(
    name: str, theirs: str, words: tuple[str, ...]
) -> None:
    asked = ["mtu=9000", "rps=1", "netdev-budget=600", "gro=off"]

    def tuned() -> tuple[SimulatedPort, State]:
        device = SimulatedPort()
        steps = plan(device, parse(asked, KNOBS), [PORT])
        before = snapshot(device, steps)
        apply(device, steps)
        left = snapshot(device, steps)
        device.write(Piece(HOST if "/sys/" in name else PORT, name), theirs)
        return device, State(space=0, ports={}, before=before, left=left)

    device, state = tuned()
    found = restore(device, state)
    (said,) = found.others
    assert said.startswith(words[0]) and all(word in said for word in words), said
    assert device.read(Piece(HOST if "/sys/" in name else PORT, name)) == theirs
    assert device.state["feature/rx-gro"] == "11"
    device, state = tuned()
    assert restore(device, state, overwrite=True).others == []
    assert _everything(device) == _everything(SimulatedPort())


@pytest.mark.parametrize(
    ("port", "name"),
    [(HOST, "etc/passwd"), (HOST, "proc/sys/net/core/../../kernel/core_pattern"), (PORT, "../lo"),
     ("../x", "mtu"), (PORT, "queues/rx-0/../../mtu")],
)  # fmt: skip
def test_a_journal_that_names_other_files_is_not_obeyed(port: str, name: str) -> None:
    with pytest.raises(NotJson, match=re.escape(name)):
        State.of(State(space=0, ports={}, before={Piece(port, name): "1"}).text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("grro=off", "grro: "),
        ("gro", "gro: give gro=VALUE; on, off"),
        ("gro=maybe", "gro=maybe: "),
        ("rx-ring=9999", "rx-ring=9999: "),
        ("rps=4-", "rps=4-: "),
        ("rss-key=6d", "rss-key=6d: "),
        ("irq-cpus=none", "irq-cpus=none: "),
        ("pause-rx=off", "pause-rx=off: eth1 "),
        ("governor=performance", "governor=performance: "),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(words: str, said: str) -> None:
    device = SimulatedPort()
    first = _everything(device)
    with pytest.raises(BadInput) as error:
        plan(device, parse([words], KNOBS), [PORT])
    assert error.value.message.startswith(said)
    assert _everything(device) == first


def test_numbers_stand_where_ethtool_has_them() -> None:
    device = SimulatedPort()
    apply(
        device,
        plan(device, parse(["rx-ring=512", "rx-usecs=100", "rss-key=symmetric"], KNOBS), [PORT]),
    )
    assert struct.unpack("=9I", bytes.fromhex(device.state["rings"]))[5] == 512
    assert struct.unpack("=23I", bytes.fromhex(device.state["coalesce"]))[1] == 100
    assert bytes.fromhex(device.state["rss"])[-6:] == b"\x6d\x5a" * 3
