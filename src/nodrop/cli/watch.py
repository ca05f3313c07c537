"""The command that watches a run of another terminal: here, or as a page on loopback."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.terminal.arguments import AsJson
from nodrop.terminal.saying import say, say_json

if TYPE_CHECKING:
    from nodrop.watch.follow import Follower, View

LOOK_S = 0.5
MOST_PORT = 65535


def add_to(app: typer.Typer) -> None:
    app.command("watch")(watch)


def watch(
    directory: Annotated[
        Path,
        typer.Argument(metavar="RUNDIR", help="A run directory that is being written."),
    ],
    serve: Annotated[
        bool,
        typer.Option("--serve", help="As one read-only page on loopback; its address is printed."),
    ] = False,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", help="Of the page, up to 65535; 0 = any free one."),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Follow a run from another terminal until it is over; Ctrl-C leaves the run alone.

    \b
    nodrop watch results/capacity-my-20261126T101500Z
    nodrop watch results/capacity-my-20261126T101500Z --serve --port 8080
    """
    from nodrop.terminal.tables import console
    from nodrop.watch.follow import Follower
    from nodrop.watch.serve import serve_page

    if not 0 <= port <= MOST_PORT:
        raise BadInput(f"--port {port}: must be from 0 to {MOST_PORT}")
    follower = Follower.of(directory)
    if serve:
        with serve_page(follower, port=port) as page:
            say_json({"address": page.address}) if as_json else say(page.address)
            page.until_over()
    elif as_json:
        _as_json(follower)
    elif console().is_terminal:
        _on_terminal(follower)
    else:
        _plainly(follower)


def _on_terminal(follower: Follower) -> None:
    from rich.console import Group
    from rich.live import Live as Display
    from rich.text import Text

    from nodrop.terminal.progress import (
        bar_line,
        phase_words,
        print_trial,
        reading_line,
        so_far_lines,
    )
    from nodrop.terminal.tables import console

    out = console()
    with Display(console=out, auto_refresh=False, transient=True) as display:
        while True:
            view = follower.look()
            for number, trial in enumerate(view.new, view.done - len(view.new) + 1):
                print_trial(out, number, trial.row)
            phase = phase_words(view.reading) if view.reading else ""
            if view.reading is None or view.reading.phase != view.phase:
                phase = view.phase or ""
            words = [view.progress, view.left, view.trial or "", phase]
            line = bar_line(view.done_ratio or 0.0, words)
            so_far = [*so_far_lines(view.so_far)]
            now = Group(*so_far, line, reading_line(view.reading) or Text(""))
            display.update(now, refresh=True)
            if view.over:
                break
            _pause(view)
    out.print(Group(*so_far))
    out.print(closing_words(view), markup=False)


def _plainly(follower: Follower) -> None:
    from nodrop.results.trial import MARKS

    while True:
        view = follower.look()
        for trial in view.new:
            say(f"{MARKS[trial.mark]} {trial.run}: {trial.words}")
        if view.over:
            for key, words in view.so_far.lines() if view.so_far is not None else ():
                say(f"{key}: {words}")
            say(closing_words(view))
            return
        _pause(view)


def _as_json(follower: Follower) -> None:
    before: dict[str, Any] = {}
    while True:
        view = follower.look()
        found = asdict(replace(view, ended=()))
        found["ended"] = found.pop("new")
        if found != before:
            say_json(found)
        if view.over:
            return
        before = found
        _pause(view)


def _pause(view: View) -> None:
    """Waits before the next look, unless the run is over and there is more to read. Catching up
    with a run that goes on must not disturb a measurement."""
    if view.goes_on or not view.is_behind:
        time.sleep(LOOK_S)


def closing_words(view: View) -> str:
    if view.finished:
        return f"finished: {view.progress}"
    over = f"no process is writing to this run directory; {view.progress} so far"
    if view.unread_lines:
        lines = f"{count_of(view.unread_lines, 'line')} of trials.jsonl cannot be read"
        return f"{over}, and {lines}: `nodrop report` says why"
    return f"{over}, --resume goes on"
