"""The hosts and links of a lab file, and how they come up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from nodrop.hosts.seam import Json, Link, UndoJournal


class Lab(Protocol):
    """The hosts and links of a lab file, brought up fresh for every trial.

    Built from the whole file by the entry point of its `kind`; BadInput if the file makes no sense.
    """

    name: str
    ports: tuple[str, str]
    """The sender's and the receiver's, by name."""
    sender_elsewhere: bool
    """On another machine: it takes no CPU of the SUT's."""

    def carrying(self, frame_bytes: int) -> Lab:
        """This lab, with ports that take frames of that length if it can be had."""
        ...

    def problems(self) -> Sequence[str]:
        """Why this lab cannot be used here, each in words a user can act on; nothing is touched."""
        ...

    def up(self, journal: UndoJournal) -> AbstractContextManager[Link]:
        """Makes hosts, ports, link anew (counters zero, offloads off, IPv6 off, promiscuous)."""
        ...

    def facts(self) -> Json:
        """For the manifest."""
        ...


@runtime_checkable
class Connected(Protocol):
    """A Lab that keeps what takes time to make from one trial to the next."""

    def connected(self, journal: UndoJournal) -> AbstractContextManager[None]:
        """For a run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a look at one host of a lab, or at its cable, has shown."""

    what: str
    """E.g. `sender gen1`."""
    seen: Sequence[str] = ()
    """In words."""
    problems: Sequence[str] = ()
    """All that stands in the way, each with what to do; they name the host themselves."""
    facts: Json = field(default_factory=dict)
    """For machines."""


@runtime_checkable
class Checkable(Protocol):
    """A Lab of hosts that are elsewhere: looking at them takes more than `problems` may."""

    def check(self) -> Sequence[Checked]:
        """Everything that stands in the way, on all hosts, at once."""
        ...
