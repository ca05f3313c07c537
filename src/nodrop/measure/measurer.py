"""Performs a trial: stands a world up for a cell, offers it a load, reads it at rest.

provision → prepare load → launch → ready → sample → read counters → offer → drain → read counters →
stop → balance → judge → undo in reverse. A failure at any step still undoes everything. A load that
the SUT answers is prepared when the SUT is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nodrop.config.experiment import Measure
from nodrop.errors import BadInput
from nodrop.measure.api import Standing, Trial
from nodrop.measure.cells import Cell
from nodrop.measure.packets import instances
from nodrop.measure.packets.capturing import PacketsWorld
from nodrop.measure.preflight import WHERE_TUNED, Parts, resettable
from nodrop.measure.standing import StandingWorld
from nodrop.measure.transactions.exchange import TransactionsWorld
from nodrop.testbed.hosts.api import Link, UndoJournal
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.images.sut_bits import must_be_there
from nodrop.tune.applying import tuned

WORLDS: Mapping[str, type[StandingWorld]] = {
    "packets": PacketsWorld,
    "transactions": TransactionsWorld,
}
"""Unit of a load → what stands up to be offered it."""


class LabMeasurer:
    """A `Measurer` of the lab, setups, SUTs and generators that the cells name."""

    def __init__(self, parts: Parts, settings: Measure, journal: UndoJournal) -> None:
        self._parts, self._settings, self._journal = parts, settings, journal

    @contextmanager
    def stand(self, cell: Cell, trial: Trial) -> Iterator[Standing]:
        parts, journal, step = self._parts, self._journal, trial.step
        bits = parts.bits(cell)
        with ExitStack() as stack:
            if self._settings.reset == "module":
                step("reset")
                began = time.monotonic()
                resettable(parts.lab, "module").load_driver(journal)
                trial.seen.world.reset_s = round(time.monotonic() - began, 3)
            step("provision")
            stack.callback(_remove_sockets, trial.folder.sut)
            must_be_there(bits)
            link = stack.enter_context(parts.lab_of(cell).up(journal))
            again = _tune(cell, link, journal, stack)
            kind = WORLDS[parts.load(cell.load).unit]
            place = kind.provision(
                parts.setup(cell),
                cell.instances,
                link,
                ports=cell.ports,
                splitter=cell.splitter,
                bits=bits,
                limits=cell.limits,
                work=trial.folder.sut,
                journal=journal,
            )
            world = kind(self._parts, self._settings, journal, cell, stack.enter_context(place))
            world.trial = trial
            # Also if a step fails: what the place says then may be why (out of memory).
            stack.callback(world.look_around)
            if not kind.answers:
                step("prepare load")
                world.prepare(cell.load, stack)
            step("launch")
            world.each = instances.launch(parts.sut(cell), world.places.envs, stack)
            step("ready")
            world.wait_ready()
            again()
            if kind.answers:
                step("prepare load")
                world.prepare(cell.load, stack)
            yield world
        world.trial.step("")


def _tune(cell: Cell, link: Link, journal: UndoJournal, stack: ExitStack) -> Callable[[], None]:
    """Sets the cell's knobs; what is given back sets them once more."""
    if not cell.tune:
        return lambda: None
    host = link.rx.host
    if not isinstance(host, LocalHost):
        raise BadInput(WHERE_TUNED)
    ports = [port.name for port in link.rx_ports]
    return stack.enter_context(tuned(cell.tune, host.netns, ports, journal))


def _remove_sockets(folder: Path) -> None:
    """A SUT that is gone leaves its control socket, which no copy of a run directory can have."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_socket() and not path.is_symlink():
                path.unlink()
