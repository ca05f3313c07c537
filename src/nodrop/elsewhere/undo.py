"""Undo of what a killed nodrop left on a receiver that is elsewhere, done there by nodrop itself.

`python3 -m nodrop.elsewhere.undo [--all]` is what runs there; it prints its reports as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from nodrop.elsewhere.control_plane import placed, said_first
from nodrop.elsewhere.untaken import forget, sweep
from nodrop.errors import LabProblem
from nodrop.hosts.journal import UndoReport, going_on, undo_abandoned
from nodrop.hosts.ssh import SshHost
from nodrop.untrusted.json_text import NotJson, decode
from nodrop.untrusted.words import one_line

UNDO_TIMEOUT_S = 300.0


def undone_on(host: SshHost, *, everything: bool) -> Sequence[UndoReport]:
    """With `everything`, also runs that go on there. LabProblem if it cannot be asked."""
    argv = [*placed(host), __name__, *(["--all"] if everything else [])]
    done = host.run(argv, timeout_s=UNDO_TIMEOUT_S, check=False)
    try:
        return [
            UndoReport(
                label=one_line(said["label"]),
                done=[f"{host.name}: {one_line(words)}" for words in said["done"]],
                failed=[f"{host.name}: {one_line(words)}" for words in said["failed"]],
                goes_on=[f"{host.name}: {one_line(words)}" for words in said["goes_on"]],
            )
            for said in decode(done.stdout)
        ]
    except (NotJson, KeyError, TypeError):
        raise LabProblem(f"{host.name}: cannot undo there: {said_first(done)}") from None


def main() -> None:
    everything = "--all" in sys.argv[1:]
    reports = [*undo_abandoned(running=everything), *going_on()]
    further = [*sweep(), *(forget() if everything else ())]
    reports += [UndoReport(label="", done=further)] if further else []
    sys.stdout.write(json.dumps([asdict(report) for report in reports]))


if __name__ == "__main__":
    main()
