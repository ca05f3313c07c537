"""`nodrop run --timings`: what nodrop itself took of each trial, step by step."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from nodrop.cli.saying import say_json
from nodrop.cli.tables import console, timings_table
from nodrop.measure.timings import harness_time
from nodrop.results.rundir import open_run


def print_timings(directory: Path) -> None:
    console().print(timings_table(harness_time(open_run(directory))))


def print_timings_json(directory: Path) -> None:
    """One more event, after `finished`."""
    parts = [asdict(part) for part in harness_time(open_run(directory))]
    say_json({"event": "timings", "parts": parts})
