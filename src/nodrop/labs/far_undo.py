"""Puts back what killed runs left on a host that is elsewhere, also if the way there is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from nodrop.errors import LabProblem
from nodrop.hosts.journal import UndoReport
from nodrop.hosts.processes import is_dead
from nodrop.hosts.seam import Json
from nodrop.hosts.ssh import KEPT_FOLDER, SshHost
from nodrop.hosts.ssh_connection import NotReached
from nodrop.hosts.whose import run_words
from nodrop.untrusted.json_text import counted, decode_object, member
from nodrop.untrusted.reading import making_sense

RETRY_S = 60.0
"""A host that boots, or a cable that is put back, takes less."""
PAUSE_S = 1.0
SWEEP_TIMEOUT_S = 120.0
"""Processes are asked to end, and may have something to undo themselves."""


def undo_there(
    host: SshHost, labels: Collection[str], *, everything: bool, waiting: Callable[[str], None]
) -> UndoReport:
    """Ends the runs of these labels, of controllers of ours that are gone, and of keepers that are.
    `waiting` is told once that the host is not reached yet."""
    report = UndoReport(label="", host=host.name)
    deadline = time.monotonic() + RETRY_S
    told = False
    while True:
        try:
            with host:
                _sweep(host, labels, everything, report)
            return report
        except NotReached as problem:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                report.failed.append(str(problem))
                return report
            if not told:
                waiting(f"{problem}; trying for {left_s:.0f} s")
            told = True
            time.sleep(min(PAUSE_S, left_s))
        except LabProblem as problem:
            report.failed.append(str(problem))
            return report


def _sweep(host: SshHost, labels: Collection[str], everything: bool, report: UndoReport) -> None:
    going = _swept(host, labels, everything, report)
    dead = {member(run, "label", str) for run in going if is_dead(member(run, "controller", str))}
    if dead:
        going = _swept(host, dead, everything, report)
    report.goes_on = [f"{host.name}: {run_words(run)} goes on" for run in going]


def _swept(
    host: SshHost, labels: Collection[str], everything: bool, report: UndoReport
) -> list[Json]:
    """The runs that go on."""
    argv = [host.node, "sweep", "--folder", KEPT_FOLDER]
    argv += [word for label in sorted(labels) for word in ("--label", label)]
    argv += ["--all"] if everything else []
    done = host.run(argv, timeout_s=SWEEP_TIMEOUT_S, check=False)
    with making_sense(f"what a sweep of {host.name} says"):
        if not done.stdout.startswith("{"):
            raise LabProblem(f"{host.name}: cannot be swept: {done.stderr.strip()}")
        said = decode_object(done.stdout)
        for one in member(said, "ended", list):
            run = member(one, "run", dict)
            words = f"{host.name}: what run {member(run, 'label', str)} left there"
            if stuck := counted(one, "stuck"):
                report.failed.append(f"{words}: {stuck} processes do not end")
            else:
                report.done.append(words)
        return [*member(said, "goes_on", list)]
