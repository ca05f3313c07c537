"""Commands that work on this host: undo, and the jobs of the node by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from nodrop.cli.arguments import AsJson
from nodrop.cli.saying import complain, say, say_json
from nodrop.errors import LabProblem

MOST_LINES = 20
"""Of what could not be undone: a damaged journal may have one for each of its lines."""
NODE_JOBS = {
    "replay": ("replay", "Replay a trace by hand (nodrop-node replay)."),
    "monitor": ("sample", "Watch this host's counters by hand (nodrop-node sample)."),
    "trace": ("trace", "Look at a trace, or make one (nodrop-node trace)."),
}
"""Command → the node's job, and help."""


def add_to(app: typer.Typer) -> None:
    app.command("undo")(undo)
    for command, (job, words) in NODE_JOBS.items():
        app.command(
            command,
            help=words,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True},
        )(_passed_on(job))


def undo(
    everything: Annotated[
        bool, typer.Option("--all", help="End runs that still go on, and undo them too.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Put back what runs that were killed left behind on this host."""
    from nodrop.hosts.journal import undo_abandoned

    reports = undo_abandoned(running=everything)
    failed = [words for report in reports for words in report.failed]
    if as_json:
        say_json([asdict(report) for report in reports])
    else:
        for words in [words for report in reports for words in report.done]:
            say(f"undone: {words}")
        if not reports:
            say("nothing to undo")
    for words in failed[:MOST_LINES]:
        complain(f"could not undo {words}")
    if more := len(failed) - MOST_LINES if len(failed) > MOST_LINES else 0:
        complain(f"and {more} more that could not be undone (--json lists them)")
    return LabProblem.exit_code if failed else 0


def _passed_on(job: str) -> Callable[..., None]:
    def command(
        arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS...")] = None,
    ) -> None:
        from nodrop.hosts.binary import find_node_binary

        node = find_node_binary()
        os.execv(node, [str(node), job, *(arguments or [])])

    return command
