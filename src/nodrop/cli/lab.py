"""Commands that work on hosts: a lab's check, undo, and the jobs of the node by hand."""

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

lab = typer.Typer(no_args_is_help=True, help="Labs: the hosts and links of a lab file.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(lab, name="lab")
    app.command("undo")(undo)
    for command, (job, words) in NODE_JOBS.items():
        app.command(
            command,
            help=words,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True},
        )(_passed_on(job))


@lab.command()
def check(
    where: Annotated[str, typer.Argument(metavar="LAB", help="Lab file, or netns.")],
    as_json: AsJson = False,
) -> int:
    """Look at every host of a lab at once: everything that stands in the way, and how far their
    clocks are from ours. Exit code 3 if there is a problem. Hosts over ssh get the node copied to
    /var/lib/nodrop, and send each other some marked frames over the cable; nothing else is changed
    there."""
    from nodrop import plugins
    from nodrop.config.lab_file import load_lab
    from nodrop.labs.seam import Checkable, Checked

    made = plugins.build_lab(load_lab(where))
    if isinstance(made, Checkable):
        found = made.check()
    else:
        found = [Checked(what=f"lab {made.name}", problems=made.problems())]
    problems = [words for one in found for words in one.problems]
    if as_json:
        hosts = [{"what": one.what, "seen": [*one.seen], **one.facts} for one in found]
        say_json({"lab": made.name, "hosts": hosts, "problems": problems})
    else:
        for one in found:
            for words in one.seen:
                say(f"{one.what}: {words}")
        for words in problems:
            say(f"- {words}")
        say(f"{len(problems)} to mend" if problems else "nothing stands in the way")
    return LabProblem.exit_code if problems else 0


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
