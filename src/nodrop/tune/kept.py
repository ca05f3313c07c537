"""Tunings of this host: journaled ahead of the first write, kept until they are put back.

While `apply` works, its journal is among those of runs, so that an undo after `kill -9` finds it.
Once all is set it stands in a folder of its own, which only `restore` and `nodrop undo --all` read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from nodrop.errors import LabProblem, NodropError, signals_held
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.hosts.journal import DiskJournal, journals, new_label, tuned_folder
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.labs.port_settings import Device, settle
from nodrop.tune.applying import (
    Applied,
    KnobStep,
    Restored,
    State,
    apply,
    located,
    restore,
    snapshot,
    state_of,
)
from nodrop.tune.namespaces import enter, own_space
from nodrop.untrusted.json_text import NotJson, decode_object, one_line

UNDER_WAY = "tune-apply"
"""Label of the journal while settings are written: one tuning at a time."""
RESTORE_WITHIN_S = 60.0
OVERWRITE = "--overwrite"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings that stay, and their journal."""

    journal: DiskJournal
    state: State


@dataclass(frozen=True, slots=True)
class Tunings:
    """Tunings of this host, the last first."""

    whole: list[Tuning]
    unreadable: list[str]
    """Journals that cannot be obeyed, in words: they stand in no other's way."""


def tunings(*, killed: bool = False) -> Tunings:
    """`killed`: also one that did not get to its end."""
    found = journals(tuned_folder())
    if killed:
        found += [journal for journal in journals() if journal.label == UNDER_WAY]
    # The earlier of two is there only if a second apply was killed just when it had ended.
    found.sort(key=lambda one: one.path.stat().st_mtime_ns, reverse=True)
    whole, unreadable = [], []
    for one in found:
        try:
            if (tuning := _read(one)) is not None:
                whole.append(tuning)
        except (NotJson, ValueError, TypeError, LookupError, OSError, NodropError) as error:
            unreadable.append(
                f"{one.path}: {one_line(error, longest=200)}; its settings are not put back: see "
                "what it names, set that by hand, then remove it"
            )
    return Tunings(whole, unreadable)


def _read(journal: DiskJournal) -> Tuning | None:
    with suppress(FileNotFoundError):
        changes = journal.changes()
        found = [change for change in changes if change.action == UndoAction.RESTORE_SETTINGS]
        if not found:  # it went with the last boot, or nothing was written yet
            journal.remove()
            return None
        return Tuning(journal, State.of(found[-1].arguments[0]))
    return None


def apply_and_keep(device: Device, steps: Sequence[KnobStep]) -> Applied:
    """Journals, writes, reads back. Whatever goes wrong, all is as before."""
    earlier = next((one for one in tunings().whole if one.state.space == own_space()), None)
    before = snapshot(device, steps)
    state = state_of(steps, before, earlier.state if earlier else None)
    try:
        journal = DiskJournal.create(UNDER_WAY)
    except LabProblem as problem:
        raise LabProblem(
            f"another `nodrop tune apply` is at work, or was killed ({problem.message})",
            hint="run `nodrop tune restore`",
        ) from None
    with journal:
        journal.push(
            what=_what(state), action=UndoAction.RESTORE_SETTINGS, arguments=[state.text()]
        )
        try:
            applied = apply(device, steps)
        except NodropError:
            with signals_held():
                if not settle(device, before) and snapshot(device, steps) == before:
                    journal.remove()
            raise
        with signals_held():
            left = {**(earlier.state.left or {} if earlier else {}), **snapshot(device, steps)}
            _keep(replace(state, left=left))
            if earlier:
                earlier.journal.remove()
            journal.remove()
    return applied


def _keep(state: State) -> None:
    journal = DiskJournal.create(f"tuned-{new_label()}", folder=tuned_folder())
    journal.push(what=_what(state), action=UndoAction.RESTORE_SETTINGS, arguments=[state.text()])
    journal.close()


def _what(state: State) -> str:
    places = [*state.ports, *(["the host"] if any(not one.port for one in state.before) else [])]
    return f"settings of {' and '.join(places)}"


def put_back(tuning: Tuning, *, overwrite: bool) -> Restored:
    """Restores in a process of its own, which goes to the tuning's network namespace. The journal
    is kept if something failed, or was left as somebody else has set it: `overwrite` still knows
    what was there before."""
    with tuning.journal.held() as over:
        if not over:
            raise LabProblem("`nodrop tune apply` is at work", hint="wait until it has ended")
        argv = [sys.executable, "-m", "nodrop.tune.kept", tuning.state.text()]
        done = run_command(
            [*argv, *([OVERWRITE] if overwrite else [])],
            where="tune",
            timeout_s=RESTORE_WITHIN_S,
            check=False,
        )
        try:
            restored = Restored(**decode_object(done.stdout))
        except (NotJson, TypeError):
            raise LabProblem(f"tune: {done.stderr.strip() or done.stdout.strip()}") from None
        if not restored.failed and (overwrite or not restored.others):
            tuning.journal.remove()
    return restored


def main(text: str, *flags: str) -> int:
    """Puts back a tuning's settings, for `undo` (testbed/hosts/reversal.py) and `put_back`."""
    try:
        state, restored = State.of(text), Restored()
        parts, gone = located(state)
        for part in parts:
            if not enter(part.space):
                raise LabProblem(f"network namespace {part.space} has just gone")
            if part.space != state.space:
                where = f"in another network namespace now ({part.space})"
                restored.done += [f"{port}: {where}" for port in part.ports]
            found = restore(Device(), part, overwrite=OVERWRITE in flags)
            restored.done += found.done
            restored.others += found.others
            restored.failed += found.failed
        restored.done += dict.fromkeys(gone.values())
    except (NotJson, ValueError, TypeError, OSError, NodropError) as error:
        restored = Restored(failed=[str(error)])
    sys.stdout.write(json.dumps(asdict(restored)) + "\n")
    if restored.failed or restored.others:
        more = "; `nodrop tune restore --overwrite` sets those too" if restored.others else ""
        sys.stderr.write("; ".join([*restored.failed, *restored.others]) + more + "\n")
    return 1 if restored.failed or restored.others else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
