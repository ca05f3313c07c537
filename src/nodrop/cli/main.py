"""`nodrop`: parse, call, print, exit code. What a command needs is imported when it is called, so
that `nodrop --help` and completion answer at once."""

from __future__ import annotations

import io
import os
import re
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from nodrop import __version__
from nodrop.calibrate import command as calibrate
from nodrop.capacity import command as capacity
from nodrop.cli import drops, files, inspect, lab, measure, sut, tune
from nodrop.compare import commands as compare
from nodrop.errors import REMEDIES, BadInput, Interrupted, LabProblem, NodropError, NotReady
from nodrop.exit_codes import ANSWERED, DEFECT, INTERRUPTED, LAB_FAILED, READER_LEFT, REFUSED
from nodrop.installation import sibling
from nodrop.terminal.arguments import complain, go_on, say
from nodrop.untrusted.folder import RefusedFile
from nodrop.untrusted.json_text import one_line

COMPLETION = ("--install-completion", "--show-completion")
SHELLS = ("bash", "zsh", "fish")

HELP = {
    "Ask": {
        "capacity": "How much of a capture does my sensor carry?",
        "demo": "See one answer: no capture, no file, no root.",
        "ab": "Is build B worse than build A?",
        "init": "Write an experiment file, from four questions.",
        "run": "Run an experiment file.",
        "profile": "Measure like run, and show where the CPU time goes.",
        "plan": "Show what would run, in which order, and how long it takes.",
        "doctor": "List everything that stands in the way of a run here.",
    },
    "A sensor at work": {
        "drops": "Where do packets die now, and which setting changes it?",
        "audit": "Which settings cost packets?",
        "tune": "Change settings, restore them, prove what they do.",
    },
    "What was measured": {
        "report": "Write the report of run directories again.",
        "watch": "Follow a run from another terminal, or in a browser.",
        "compare": "Is B different from A?",
        "history": "Where did a metric change over many runs?",
        "baseline": "Store what a run measured in one small file.",
        "export": "Write every trial as a row, for other programs.",
        "put": "Put a run directory into a store.",
    },
    "Parts of a run, by hand": {
        "trace": "Look at a capture, prepare it, or make one.",
        "replay": "Send a capture.",
        "monitor": "Sample this host's counters.",
        "probe": "Measure this CPU and its hypervisor.",
        "sut": "List and prove descriptions of capture programs.",
    },
    "Hosts and images": {
        "calibrate": "Does nodrop find known faults in this lab?",
        "lab": "Check and prepare the hosts of a lab.",
        "image": "Build and list the images that a SUT runs from.",
        "undo": "Undo what a killed run left behind.",
        "clean": "Remove caches, images, and runs that you name.",
        "plugins": "List setups, SUTs and load generators.",
    },
}
"""Group → command → what it is for, on one line of 80 columns."""
BESIDE = {"import": "nodrop-studies"}
"""Command → package of this project that brings it."""
EXAMPLES = """\
nodrop capacity my.pcap --rules my.rules
nodrop drops"""


class Grouped(TyperGroup):
    """Lists commands by what they are for; the first is what most people want."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._others()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = super().get_command(ctx, cmd_name) or self._others().get(cmd_name)
        if known is None and (package := BESIDE.get(cmd_name)):
            raise NotReady(
                f"nodrop {cmd_name} comes with the package {package}, which is not installed",
                hint=sibling(package),
            )
        return known

    def _others(self) -> dict[str, Any]:
        """The commands of other packages: entry points `nodrop.commands`. One that cannot be
        imported says so when it is called."""
        from nodrop.plugins import of_table

        others: dict[str, Any] = {}
        for plugin in of_table("command"):
            if plugin.kind not in self.commands:
                added = typer.Typer(add_completion=False, rich_markup_mode=None)
                try:
                    plugin.load()(added)
                except NodropError as error:
                    added.command(plugin.kind, help=error.message)(partial(_raise, error))
                added.callback()(_raise)  # or one command alone would be no group
                others.update(get_group(added).commands)
        return others

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = {name for commands in HELP.values() for name in commands}
        added = {
            name: self.get_command(ctx, name).get_short_help_str()
            for name in self.list_commands(ctx)
            if name not in known
        }
        for title, commands in {**HELP, "Of other packages": added}.items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl([*commands.items()])
        with formatter.section("Examples"):
            for example in EXAMPLES.splitlines():
                formatter.write_text(example)


def _raise(error: Exception | None = None) -> None:
    if error is not None:
        raise error


app = typer.Typer(
    name="nodrop",
    cls=Grouped,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(_version_words())
        raise typer.Exit


def _version_words() -> str:
    from nodrop.installation import revision
    from nodrop.testbed.hosts.node import file_sha256, find_node_binary

    commit = revision() or "unknown"
    try:
        path = find_node_binary()
    except LabProblem:
        return f"nodrop {__version__} (commit {commit}, no node)"
    return f"nodrop {__version__} (commit {commit}, node {file_sha256(path)[:12]} at {path})"


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print version, commit and node.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """How much traffic can this IDS carry on this host before it drops a packet, where do the
    packets die, and which setting fixes it?"""
    del debug, version  # --debug is looked at by main, which outlives the command


measure.add_to(app)
files.add_to(app)
capacity.add_to(app)
inspect.add_to(app)
drops.add_to(app)
lab.add_to(app)
sut.add_to(app)
tune.add_to(app)
calibrate.add_to(app)
compare.add_to(app)


@cache
def _program() -> Any:
    """The command line, parsed from the signatures of some forty functions: 40 ms."""
    return get_command(app)


def main() -> None:
    """The `nodrop` program."""
    # A normal user's PATH on Debian lacks them, and in a user namespace ip and ethtool are needed.
    _need_streams()
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    sys.exit(exit_code(sys.argv[1:]))


def _need_streams() -> None:
    """A shell's `>&-` closes one, and the next file that is opened would take its place. What the
    terminal's encoding lacks is written as its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


LACKING = re.compile(r"(lib[\w+.-]+\.so[.\d]*): cannot open shared object file")
"""The loader's words of a library that a minimal system has not got."""


def exit_code(argv: Sequence[str]) -> int:
    """Runs a command. What the user did wrong is one line on stderr, not a traceback."""
    given = [*takewhile(lambda word: word.startswith("-"), argv)]
    debug = "--debug" in given
    try:
        _must_know_the_shell(given)
        _must_be_seconds("SOURCE_DATE_EPOCH")
        code: int = _program()(args=list(argv), prog_name="nodrop", standalone_mode=False) or 0
        sys.stdout.flush()
        if code == INTERRUPTED:  # as typer has it
            complain("interrupted")
        return code
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    except Interrupted as error:
        more = f"; {error.advice}" if error.advice else ""
        complain(f"ended by {error}; {error.left or 'what was begun is undone'}{more}")
        go_on(argv, error.ended_run)
        return error.exit_code
    except (Exception, SystemExit) as error:
        if _reader_left(error):
            return READER_LEFT
        if isinstance(error, SystemExit) and _raised_by(error).startswith("typer."):
            return (
                ANSWERED if error.code in (None, 0) else REFUSED
            )  # of completion, which ends the program itself
        # Usage errors: typer brings its own click, older ones use the package, so the class has
        # no one name.
        if hasattr(error, "format_message"):
            _print_usage_error(error)
            return REFUSED
        if debug:
            traceback.print_exception(error)
        return _complain_of(error, argv)


def _must_be_seconds(variable: str) -> None:
    """numpy reads it as it is imported, and ends in a ValueError."""
    text = os.environ.get(variable)
    if text is not None and re.fullmatch(r"\d{1,12}", text, re.ASCII) is None:
        raise BadInput(
            f"{variable} = {one_line(text)!r}: must be seconds since 1970", hint=f"unset {variable}"
        )


def _must_know_the_shell(options: Sequence[str]) -> None:
    asked = next((word for word in options if word in COMPLETION), None)
    if asked is None:
        return
    from shellingham import ShellDetectionFailure, detect_shell

    try:
        shell = detect_shell()[0]
    except (ShellDetectionFailure, OSError):
        shell = "none found"
    if shell not in SHELLS:
        raise BadInput(
            f"{asked}: for {', '.join(SHELLS[:-1])} and {SHELLS[-1]} only; "
            f"the shell that runs this: {shell}",
            hint=f"start one of them, and there `nodrop {asked}`",
        )


def _raised_by(error: BaseException) -> str:
    """Name of the module that raised an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__"))


def _reader_left(error: BaseException) -> bool:
    """The reader of stdout has closed it, as `head` does. What is still to be written is
    dropped."""
    if isinstance(error.__context__, BrokenPipeError):
        return True  # rich has seen it, and drops what is left
    if not isinstance(error, BrokenPipeError):
        return False
    looking = select.poll()
    looking.register(1, select.POLLERR)
    if not any(events & select.POLLERR for _, events in looking.poll(0)):
        return False
    _drop_what_is_left()
    return True


def _drop_what_is_left() -> None:
    """Drops what is left of stdout. Otherwise Python tries once more to write it as it ends, and
    its exit code would be 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain_of(error: BaseException, argv: Sequence[str]) -> int:
    match error:
        case NodropError():
            complain(error)
            go_on(argv, error.ended_run)
            return error.exit_code
        case RefusedFile() | IsADirectoryError() | NotADirectoryError():
            complain(f"{error.filename}: {error.strerror}")
            return REFUSED
        case PermissionError() if error.filename:
            complain(f"{error.filename}: {error.strerror}; {REMEDIES[error.errno or 0]}")
            return REFUSED
        case MemoryError() | ImportError() if _no_memory(error):
            complain(
                "this process may not have the memory that it needs; raise its limit (ulimit -v, "
                "the control group's memory), or free some"
            )
            return LAB_FAILED
        case ImportError() if lacks := LACKING.search(str(error)):
            package = _raised_by(error).partition(".")[0]
            complain(f"this host lacks {lacks[1]}, which the Python package {package} needs")
            return LAB_FAILED
        case OSError():
            if error.filename == "stdout":
                _drop_what_is_left()
            where = f"{error.filename}: " if error.filename else ""
            complain(f"{where}{error.strerror or error}")
            return LAB_FAILED
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = f"{type(error).__name__}: {one_line(error, longest=300)}".removesuffix(": ")
    complain(
        f"{words} (at {Path(place.filename).name}:{place.lineno}): that is a defect of "
        f"{_whose(error)}; `nodrop --debug …` shows "
        "the traceback"
    )
    return DEFECT


def _no_memory(error: BaseException) -> bool:
    """There was no memory; the loader has words of its own for a library without room."""
    return isinstance(error, MemoryError) or "failed to map segment" in str(error)


def _whose(error: BaseException) -> str:
    from nodrop.plugins import broken_plugin

    with suppress(Exception):  # the metadata of what is installed may be what is broken
        return str(broken_plugin(error) or "nodrop")
    return "nodrop"


def _print_usage_error(error: BaseException) -> None:
    context = getattr(error, "ctx", None)
    words = getattr(error, "format_message")().rstrip(".")  # noqa: B009  see exit_code
    words = words.replace("Value error, ", "")
    if type(error).__name__.startswith("NoArgsIsHelp"):
        print(words, file=sys.stderr)  # noqa: T201  nodrop's own help, of many lines
        return
    command = getattr(context, "command_path", "nodrop")
    complain(f"{words}; see {command} --help")


if __name__ == "__main__":
    main()
