"""`nodrop`: parse, call, print, exit code. What a command needs is imported when it is called, so
that `nodrop --help` and completion answer at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from nodrop import __version__
from nodrop.cli import calibrate, image, imports, inspect, lab, measure, probe, watch
from nodrop.errors import BadInput, LabProblem, NodropError
from nodrop.lab.interrupts import Interrupted
from nodrop.untrusted.folder import Refused

app = typer.Typer(
    name="nodrop",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nodrop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """How much traffic can this IDS carry on this host before it drops a packet, where do the
    packets die, and which setting fixes it?"""
    del debug, version  # --debug is looked at by main, which outlives the command


measure.add_to(app)
calibrate.add_to(app)
inspect.add_to(app)
image.add_to(app)
lab.add_to(app)
imports.add_to(app)
watch.add_to(app)
probe.add_to(app)


def main() -> None:
    """The `nodrop` program."""
    # A normal user's PATH on Debian lacks them, and in a user namespace ip and ethtool are needed.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    sys.exit(exit_code(sys.argv[1:]))


def exit_code(argv: Sequence[str]) -> int:
    """Runs a command. What the user did wrong is one line on stderr, not a traceback."""
    debug = "--debug" in takewhile(lambda word: word.startswith("-"), argv)
    try:
        return app(args=list(argv), prog_name="nodrop", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Interrupted as error:
        more = f"; {error.hint}" if error.hint else ""
        print(f"nodrop: ended by {error}; what was begun is undone{more}", file=sys.stderr)
        return error.exit_code
    except NodropError as error:
        if debug:
            raise
        print(f"nodrop: {error}", file=sys.stderr)
        return error.exit_code
    except Refused as error:
        if debug:
            raise
        print(f"nodrop: {error.filename}: {error.strerror}", file=sys.stderr)
        return BadInput.exit_code
    except OSError as error:
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        words = f"nodrop: {where}{error.strerror or error}; what was begun is undone"
        print(words, file=sys.stderr)
        return LabProblem.exit_code
    except Exception as error:
        # Usage errors: typer brings its own click, older ones use the package, so the class has
        # no one name.
        if not hasattr(error, "format_message"):
            raise
        _print_usage_error(error)
        return 2


def _print_usage_error(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    words = getattr(error, "format_message")().rstrip(".")  # noqa: B009  see exit_code
    if type(error).__name__.startswith("NoArgsIsHelp"):
        print(words, file=sys.stderr)
        return
    command = getattr(context, "command_path", "nodrop")
    print(f"nodrop: {words}; see {command} --help", file=sys.stderr)


if __name__ == "__main__":
    main()
