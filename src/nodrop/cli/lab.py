"""Commands that work on hosts: a lab's check, undo, probes, and the jobs of the node by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.config.units import count_of
from nodrop.errors import BadInput, LabProblem
from nodrop.exit_codes import LAB_FAILED
from nodrop.terminal.arguments import AsJson, complain, say, say_json

if TYPE_CHECKING:
    from nodrop.protocol import Kvm
    from nodrop.testbed.hosts.journal import UndoReport
    from nodrop.testbed.labs.api import Lab

MOST_LINES = 20
"""Largest number of lines on what could not be undone: a damaged journal may have one for each of
its lines."""
NODE_JOBS = {
    "replay": ("replay", "Replay a trace by hand (nodrop-node replay)."),
    "monitor": ("sample", "Watch this host's counters by hand (nodrop-node sample)."),
    "trace": ("trace", "Look at a trace, or make one (nodrop-node trace)."),
}
"""Command → the node's job, and help."""

lab = typer.Typer(no_args_is_help=True, help="Labs: the hosts and links of a lab file.")
probe = typer.Typer(no_args_is_help=True, help="Measure this CPU and its hypervisor.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(lab, name="lab")
    app.add_typer(probe, name="probe")
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
    """Check all hosts of a lab: list everything that stands in the way, and how far their clocks
    are from this host's. Exit code 3 if there is a problem. On hosts over ssh it copies the node
    to /var/lib/nodrop. They send each other some marked frames and a burst of 0.1 s over the
    cable. Nothing else is changed there.

    \b
    nodrop lab check my-lab.toml
    nodrop lab check netns --json
    """
    from nodrop import plugins
    from nodrop.config.lab_file import load_lab

    made = plugins.build_lab(load_lab(where))
    found = made.check()
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
        to_fix = f"{count_of(len(problems), 'problem')} to fix."
        say(to_fix if problems else "Ready.")
    return LAB_FAILED if problems else 0


@lab.command()
def prepare(
    where: Annotated[str, typer.Argument(metavar="LAB", help="Lab file of kind ssh.")],
    do_it: Annotated[
        bool, typer.Option("--yes", help="Install the packages that are missing (apt-get).")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List what each host of a lab needs before nodrop can work there: packages, and a way to
    become root. Exit code 3 if something is missing. --yes installs the packages on hosts with
    Debian; it changes nothing else, and no package source.

    \b
    nodrop lab prepare my-lab.toml
    nodrop lab prepare my-lab.toml --yes
    """
    from nodrop import plugins
    from nodrop.config.lab_file import load_lab

    made = plugins.build_lab(load_lab(where))
    found = made.prepare(do_it=do_it)
    if as_json:
        say_json({"lab": made.name, "hosts": [asdict(one) for one in found]})
    else:
        for one in found:
            for words in one.did:
                say(f"{one.host}: did {words}")
            for words in one.needs:
                say(f"{one.host}: needs {words}")
            if not one.needs:
                say(f"{one.host}: needs nothing more ({', '.join(one.has)})")
    return LAB_FAILED if any(one.needs for one in found) else 0


def undo(
    where: Annotated[
        str | None,
        typer.Argument(metavar="LAB", help="Lab file: also undo on every host of the lab."),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also end and undo runs that still go on, of any user; asks first.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --all: do not ask.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be undone on this host, and do nothing."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Undo what killed runs left behind on this host, and on the hosts of a lab.

    \b
    nodrop undo --dry-run
    nodrop undo my-lab.toml --all
    """
    from nodrop.testbed.hosts.folders import sweep
    from nodrop.testbed.hosts.journal import UndoReport, journals, tuned_folder, undo_abandoned
    from nodrop.testbed.hosts.ssh_connection import end_orphans

    if dry_run:
        if where:
            raise BadInput("--dry-run: it looks at this host alone; leave LAB out")
        return _say_pending(everything, as_json)
    if everything and not yes:
        _must_be_meant(where)
    # First elsewhere: a journal of this host names the run until that is done.
    reports = [*(_undone_elsewhere(where, everything) if where else ())]
    reports += undo_abandoned(running=everything)
    reports += [UndoReport(label="", done=swept)] if (swept := sweep()) else []
    end_orphans()
    # A receiver that is not reached is asked twice: to end runs, and to undo.
    failed = [*dict.fromkeys(words for report in reports for words in report.failed)]
    if as_json:
        say_json([asdict(report) for report in reports])
    else:
        _say_undone(reports)
        if not everything and journals(tuned_folder()):
            say("what `nodrop tune apply` has set stays (`nodrop tune restore` puts it back)")
    for words in failed[:MOST_LINES]:
        complain(f"could not undo {words}")
    if more := len(failed) - MOST_LINES if len(failed) > MOST_LINES else 0:
        complain(f"and {more} more that could not be undone (--json lists them)")
    return LAB_FAILED if failed else 0


def _say_pending(everything: bool, as_json: bool) -> int:
    from nodrop.testbed.hosts.journal import pending

    found = pending(running=everything)
    if as_json:
        say_json([asdict(one) for one in found])
        return 0
    for one in found:
        if one.goes_on and not everything:
            say(f"{one.goes_on} goes on (--all would end it)")
        elif one.goes_on:
            say(f"would end: {one.goes_on.removesuffix(',')}")
        for words in one.what:
            say(f"would undo: {words}")
    if not found:
        say("nothing to undo")
    return 0


def _must_be_meant(where: str | None) -> None:
    """Asks, if runs go on. What ran before is put back on hosts of the lab meanwhile."""
    from nodrop.testbed.hosts.journal import going_on

    reports = [*(_undone_elsewhere(where, False) if where else ()), *going_on()]
    going = [words for report in reports for words in report.goes_on]
    if not going:
        return
    for words in going:
        say(f"would end: {words}")
    ends = f"--all ends {count_of(len(going), 'run')}"
    if not sys.stdin.isatty():
        raise BadInput(f"{ends} (above), which may be another user's", hint="add --yes to mean it")
    if not typer.confirm(f"{ends}: do it?"):
        raise typer.Abort


def _say_undone(reports: Sequence[UndoReport]) -> None:
    done = [words for report in reports for words in report.done]
    for words in done:
        say(f"undone: {words}")
    going = [words for report in reports for words in report.goes_on]
    for words in going:
        say(f"{words} (--all ends it)")
    if not done and not going and not any(report.failed for report in reports):
        say("nothing to undo")


def _undone_elsewhere(where: str, everything: bool) -> Sequence[UndoReport]:
    from nodrop import plugins
    from nodrop.config.lab_file import load_lab
    from nodrop.testbed.hosts.journal import abandoned_labels

    made = plugins.build_lab(load_lab(where))
    reports = [*made.undo(abandoned_labels(), everything=everything, waiting=complain)]
    # The receiver's is the last: a run that goes on there will undo by itself.
    if made.receiver_elsewhere and not reports[-1].goes_on:
        reports += _undone_by_nodrop_there(made, everything)
    return reports


def _undone_by_nodrop_there(lab: Lab, everything: bool) -> Sequence[UndoReport]:
    from nodrop.remote.outbox import undone_on
    from nodrop.testbed.hosts.journal import UndoReport, new_label

    try:
        with lab.receiver(f"undo-{new_label()}") as host:
            return undone_on(host, everything=everything)
    except LabProblem as problem:
        return [UndoReport(label=lab.name, failed=[str(problem)])]


def _passed_on(job: str) -> Callable[..., None]:
    def command(
        arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS...")] = None,
    ) -> None:
        from nodrop.config.replay import MADE_TRACE
        from nodrop.testbed.hosts.node import find_node_binary
        from nodrop.testbed.hosts.rights import READER, limited

        for made in (word for word in arguments or () if word.startswith(MADE_TRACE)):
            hint = f"nodrop trace make {made.removeprefix(MADE_TRACE)} FILE"
            raise BadInput(f"{made}: is no file; experiments and capacity make it", hint=hint)
        node = find_node_binary()
        argv = [str(node), job, *(arguments or [])]
        if argv[1:3] == ["trace", "info"]:  # others write where the user may
            argv = limited(node, READER, argv)
        os.execv(node, argv)

    return command


Setups = Annotated[
    list[str] | None,
    typer.Option(
        "--setup", metavar="KIND", help="Measure in this setup (bare, docker, vm …). Repeatable."
    ),
]


@probe.command()
def tsc(setup: Setups = None, as_json: AsJson = False) -> None:
    """Measure the cost of rdtsc, cpuid, clock_gettime and a system call in ns: best (median).

    \b
    nodrop probe tsc
    nodrop probe tsc --setup bare --setup docker
    """
    from nodrop.measure.baselines import probe_here, probe_in
    from nodrop.terminal.console import console, costs_table

    found = probe_in("tsc", setup) if setup else {"here": {**probe_here("tsc")["tsc"]}}
    if as_json:
        say_json(found)
    else:
        console().print(costs_table(found))


@probe.command()
def vmx(setup: Setups = None, as_json: AsJson = False) -> None:
    """List what this CPU's VMX can make a guest exit for, from its registers (root, Intel).

    \b
    nodrop probe vmx
    nodrop probe vmx --setup vm --json
    """
    from nodrop.measure.baselines import probe_here, probe_in

    found = probe_in("vmx", setup) if setup else {"here": {**probe_here("vmx")["vmx"]}}
    if as_json:
        say_json(found if setup else found["here"])
        return
    for kind, said in found.items():
        if setup:
            say(f"{kind}:")
        _print_vmx(said)


def _print_vmx(said: dict[str, Any]) -> None:
    if said["unreadable"]:
        say(f"no VMX listing: {said['unreadable']}")
    for group, controls in said["controls"].items():
        say(f"{group}: " + ", ".join(f"{name} {value}" for name, value in controls.items()))


@probe.command()
def kvm(as_json: AsJson = False) -> None:
    """Test whether /dev/kvm runs guests at the speed of the CPU, as setup vm does.

    \b
    nodrop probe kvm
    nodrop probe kvm --json
    """
    from nodrop.measure.baselines import probe_here

    found = probe_here("kvm")["kvm"]
    say_json(found) if as_json else say(_kvm_words(found))


def _kvm_words(found: Kvm) -> str:
    if found["usable"]:
        return f"usable: {found['ns_per_iteration']:.1f} ns for an instruction pair in ring 0"
    return f"not usable, guests are emulated (tcg): {found['reason']}"
