"""A measurer without a lab: a SUT of a known capacity, for tests of controllers and of the manager.

measurer = FakeMeasurer(capacity_pps=350)
monkeypatch.setattr(pair, "LabMeasurer", lambda *_: measurer)
... run_experiment(...) ...
assert measurer.said == ["stand 1", "offer 100", "offer 200", "leave"]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import SOCKET_RING, Account, Class, Hop
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import judge
from nodrop.measure.api import Measured, Measurer, Standing, Trial
from nodrop.measure.cells import Cell, Table


@dataclass(slots=True)
class FakeMeasurer:
    """A `Measurer`. Each load is offered for one second; what is above the capacity is lost."""

    capacity_pps: int
    fails_at: dict[int, Exception] = field(default_factory=dict)
    """The index of a trial → what it raises instead of measuring."""
    wears_at: dict[int, str] = field(default_factory=dict)
    """The index of a trial → why its world must not be offered another load."""
    spent_at: dict[int, str] = field(default_factory=dict)
    """The index of a trial → why its load would bring no new flows to a SUT that stands."""
    said: list[str] = field(default_factory=list)

    @contextmanager
    def stand(self, cell: Cell, trial: Trial) -> Iterator[Standing]:
        del cell
        self.said.append(f"stand {trial.index}")
        try:
            yield _FakeStanding(self, trial.index)
        finally:
            self.said.append("leave")


@dataclass(slots=True)
class _FakeStanding:
    of: FakeMeasurer
    first: int
    worn: str = ""

    def spent(self, load: Table, trial: Trial) -> str:
        return self.of.spent_at.get(trial.index, "") if trial.index > self.first else ""

    def measure(self, load: Table, trial: Trial) -> Measured:
        offered = int(load["pps"])
        self.of.said.append(f"offer {offered}")
        seen = trial.seen
        seen.world.first_trial, self.worn = self.first, self.of.wears_at.get(trial.index, "")
        if (failure := self.of.fails_at.get(trial.index)) is not None:
            raise failure
        lost = max(0, offered - self.of.capacity_pps)
        ways = [Hop(name=name, packets=offered, counter=name) for name in ("intended", "sent")]
        ways += [Hop(name=name, packets=offered, counter=name) for name in ("rx_nic", "socket")]
        ways.append(Hop(name="decoded", packets=offered - lost, counter="decoded"))
        ring = Account(
            into="decoded",
            kind=Class.LOST,
            name="rx_dropped_ring_full",
            place=SOCKET_RING,
            packets=lost,
            counter="fake",
        )
        ledger = seen.packets.ledger = balance(ways, [ring] if lost else [])
        seen.verdict = judge(ledger, Sending(intended_packets=offered, sent_packets=offered))
        return seen


_MEASURER: Measurer = FakeMeasurer(capacity_pps=0)  # mypy holds it to the seam
