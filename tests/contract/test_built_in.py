"""The contract of plugins (nodrop.testing.contracts), held by every one of nodrop's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodrop import plugins
from nodrop.config.lab_file import find_lab, load_lab
from nodrop.errors import BadInput
from nodrop.ledger.hops import Owner, Place
from nodrop.measure.controllers.blocks import Asked, AskedCell, Blocks, TrialInput
from nodrop.results.trial import TrialRecord
from nodrop.testbed.suts.command.description import shipped
from nodrop.testing.contracts import (
    check_controller,
    check_lab,
    check_load,
    check_options,
    check_setup,
    check_sut,
)
from nodrop.testing.fakes import FakeLab, FakeLoad, FakeSetup, FakeSut, FakeWorld

if TYPE_CHECKING:  # plugins are cast to their seams: mypy holds the classes to them here
    from nodrop.testbed.labs import netns, ssh
    from nodrop.testbed.labs.api import Lab
    from nodrop.testbed.load.api import LoadGenerator
    from nodrop.testbed.load.attach import Attach
    from nodrop.testbed.load.iperf3 import Iperf3
    from nodrop.testbed.load.replay import Replay
    from nodrop.testbed.load.tcpreplay import Tcpreplay
    from nodrop.testbed.setups.api import Setup
    from nodrop.testbed.setups.bare import Bare
    from nodrop.testbed.setups.bare_vfio import BareVfio
    from nodrop.testbed.setups.docker import Docker, DockerMacvtap
    from nodrop.testbed.setups.libvirt_guest import Libvirt
    from nodrop.testbed.setups.oci import Oci
    from nodrop.testbed.setups.vm import Vm
    from nodrop.testbed.setups.vm_vfio import VmVfio
    from nodrop.testbed.suts.api import Sut
    from nodrop.testbed.suts.command import Command
    from nodrop.testbed.suts.external import External
    from nodrop.testbed.suts.mme import ReferenceMme
    from nodrop.testbed.suts.sink import Sink
    from nodrop.testbed.suts.suricata import Suricata

    HERE = Path()
    SETUPS: tuple[Setup, ...]
    SETUPS = (Bare(), BareVfio(), Docker(), DockerMacvtap(), Libvirt(), Oci(), Vm(), VmVfio())
    SUTS: tuple[Sut, ...]
    SUTS = (
        Command({}, base=HERE),
        External({}, base=HERE),
        ReferenceMme({}, base=HERE),
        Sink({}, base=HERE),
        Suricata({}, base=HERE),
    )
    LOADS: tuple[LoadGenerator, ...]
    LOADS = (
        Attach({}, base=HERE),
        Iperf3({}, base=HERE),
        Replay({}, base=HERE),
        Tcpreplay({}, base=HERE),
    )
    LABS: tuple[Lab, ...] = (netns.from_file({}, base=HERE), ssh.from_file({}, base=HERE))

NEEDED: dict[str, dict[str, Any]] = {
    "command": {"program": "tcpdump"},
    "external": {"address": "sctp:10.0.0.5:36412", "process": "mmed"},
    "libvirt": {"domain": "guest"},
    "vm-vfio": {"device": "0000:00:1f.6"},
    "attach": {"rate": 400, "count": 1},
    "replay": {"trace": "make:demo"},
    "tcpreplay": {"trace": "make:demo"},
}
"""Keys without a default."""


def _kinds(table: str) -> list[str]:
    found = [p.kind for p in plugins.plugins() if p.table == table]
    assert found
    return found


def _table(kind: str) -> dict[str, Any]:
    return {"kind": kind, **NEEDED.get(kind, {})}


@pytest.mark.parametrize("kind", _kinds("setup"))
def test_setups(kind: str) -> None:
    check_options(plugins.build_setup, _table(kind), name="setup")
    check_setup(plugins.build_setup(_table(kind), base=Path()))


@pytest.mark.parametrize("kind", _kinds("sut"))
def test_suts(kind: str) -> None:
    check_options(plugins.build_sut, _table(kind), name="sut")
    check_sut(plugins.build_sut(_table(kind), base=Path()))


@pytest.mark.parametrize("program", shipped())
def test_described_programs(program: str) -> None:
    table = {"kind": "command", "program": program}
    check_options(plugins.build_sut, table, name="sut")
    check_sut(plugins.build_sut(table, base=Path()))


@pytest.mark.parametrize("kind", _kinds("load"))
@pytest.mark.parametrize("more", [{}, {"pps": 5000, "duration_s": 2}])
def test_loads(kind: str, more: dict[str, Any]) -> None:
    if kind == "iperf3":  # it has no pace of its own
        more = {key: value for key, value in more.items() if key != "pps"}
    if kind == "tcpreplay":
        more = {key: value for key, value in more.items() if key != "duration_s"}
    if kind == "attach":
        more = {}  # its rate is in the table
    check_options(plugins.build_load, _table(kind), name="load")
    check_load(plugins.build_load({**_table(kind), **more}, base=Path()))


@pytest.mark.parametrize("kind", _kinds("lab"))
def test_labs(kind: str) -> None:
    example = Path(__file__).parents[2] / "labs/two-hosts.example.toml"
    check_lab(plugins.build_lab(load_lab(str(example if kind == "ssh" else find_lab(kind)))))


@pytest.mark.parametrize("sut", ["fresh", "standing"])
@pytest.mark.parametrize(("cells", "repetitions"), [(1, 1), (3, 4), (7, 2)])
def test_controllers(sut: Any, cells: int, repetitions: int) -> None:
    assert _kinds("controller") == ["blocks", "capacity"]
    made = [AskedCell(factors={"load.multiplier": n}, load={"n": n}) for n in range(cells)]
    asked = Asked(cells=made, repetitions=repetitions, seed=3, sut=sut, guess_s=10.0)
    assert len(check_controller(Blocks, asked, _measured)) == cells * repetitions


def _measured(trial: TrialInput) -> TrialRecord:
    return TrialRecord.model_validate(
        {
            "cell": trial.cell,
            "repetition": trial.repetition,
            "index": trial.index,
            "run": trial.run_name,
            "outcome": "measured",
            "valid": True,
            "verdict": "",
        }
    )


def test_the_fakes_keep_them_too() -> None:
    world = FakeWorld()
    check_setup(FakeSetup(world))
    check_sut(FakeSut(world))
    check_load(FakeLoad(world))
    check_lab(FakeLab(world))


def test_what_is_broken_is_named() -> None:
    class Twice(FakeSetup):
        places = (
            Place(name="queue", owner=Owner.SETUP, counter="drops", source="x.c"),
            Place(name="queue", owner=Owner.SETUP, counter="drops", source="x.c"),
        )

    class Uncounted(FakeSut):
        places = (Place(name="ring", owner=Owner.SUT, source="x.c"),)

    class Shy(FakeLoad):
        def problems(self) -> Any:
            return "no trace"

    class Forgetful(Blocks):
        """Counts its own calls, so a resumed run goes another way."""

        asked_for = 0

        def next(self, done: Any, may: Any = None) -> TrialInput | None:
            Forgetful.asked_for += 1
            return super().next(done[: Forgetful.asked_for // 3])

    world = FakeWorld()
    with pytest.raises(AssertionError, match="stands there twice"):
        check_setup(Twice(world))
    with pytest.raises(AssertionError, match="what counts its losses"):
        check_sut(Uncounted(world))
    with pytest.raises(AssertionError, match="a sequence of lines"):
        check_load(Shy(world))
    with pytest.raises(AssertionError, match="taken for a key"):
        check_options(lambda table, base: None, {}, name="sut")
    cell = AskedCell(factors={}, load={})
    asked = Asked(cells=[cell], repetitions=5, seed=1, sut="fresh", guess_s=1.0)
    with pytest.raises(AssertionError, match=r"depends on more than the records|index"):
        check_controller(Forgetful, asked, _measured)


def test_a_line_without_the_table_is_broken() -> None:
    def build(_table: Any, *, base: Path) -> None:
        raise BadInput("no such key")

    with pytest.raises(AssertionError, match=r"names no sut\.no-such-key"):
        check_options(build, {}, name="sut")
