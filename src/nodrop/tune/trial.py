"""Knobs of an experiment's [tune] table: set for a trial, on ports that the lab has made.

They are set before the SUT starts and once more when it is ready, for a SUT changes some itself
(Suricata: offloads). The ports go with their network namespace; knobs of the host are journaled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodrop import plugins
from nodrop.errors import BadInput, LabProblem, NodropError
from nodrop.hosts.seam import Action, UndoJournal
from nodrop.tune import device as kernel
from nodrop.tune.applying import (
    Done,
    apply,
    parse,
    plan,
    settle,
    snapshot,
    state_of,
)
from nodrop.tune.knob import HOST, Knob
from nodrop.tune.knobs import KNOBS

Asked = Sequence[tuple[Knob, str]]
MISSED = ("accepted and ignored", "set otherwise")


def asked(table: Mapping[str, Any]) -> Asked:
    """BadInput that begins with the key."""
    if not table:
        return []  # nor is a third party's knob imported
    known = (*KNOBS, *plugins.knobs())
    found: list[tuple[Knob, str]] = []
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadInput(f"tune.{name}: must be a text or a number")
        try:
            found += parse([f"{name}={value}"], known)
        except BadInput as error:
            raise BadInput(f"tune.{error.message}", hint=error.hint) from None
    return found


@contextmanager
def tuned(
    table: Mapping[str, Any], netns: Path | None, ports: Sequence[str], journal: UndoJournal
) -> Iterator[Callable[[], None]]:
    """Sets them; what is given sets them again. LabProblem if a value does not hold."""
    wanted = asked(table)
    of_host = [one for one in wanted if one[0].of_host]
    of_port = [one for one in wanted if not one[0].of_host]

    def again() -> None:
        if of_port:
            _within(netns, lambda: _set(of_port, ports))

    again()
    if not of_host:
        yield again
        return
    live = kernel.Live()
    steps = plan(live, of_host, [HOST])
    before = snapshot(live, steps)
    journal.push(
        what=f"{', '.join(step.knob.id for step in steps)} of the host",
        action=Action.RESTORE_SETTINGS,
        arguments=[state_of(steps, before).text()],
    )
    try:
        _must_hold(apply(live, steps).done)
        yield again
    finally:
        settle(live, before)


def _set(wanted: Asked, ports: Sequence[str]) -> None:
    live = kernel.Live()
    _must_hold(apply(live, plan(live, wanted, ports)).done)


def _must_hold(done: Sequence[Done]) -> None:
    for one in done:
        if one.verdict in MISSED:
            step = one.step
            words = f"{step.where}: tune.{step.knob.id}={step.value}"
            raise LabProblem(f"{words} is {one.verdict}: it is {one.found}")


def _within(netns: Path | None, work: Callable[[], None]) -> None:
    """In a thread of its own, which goes to that network namespace and sees its ports in /sys."""
    errors: list[Exception] = []

    def entered() -> None:
        try:
            if netns is not None and not kernel.enter(netns.stat().st_ino):
                raise LabProblem(f"{netns}: the lab's network namespace is gone")
            work()
        except (OSError, NodropError) as error:
            errors.append(error)

    thread = threading.Thread(target=entered)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
