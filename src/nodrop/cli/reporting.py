"""The time after the last trial: seconds of statistics, in which nothing can be lost any more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.hosts.interrupts import Interrupted, interrupts


@contextmanager
def reporting(run: Path) -> Iterator[None]:
    """Whoever ends it hears that no trial is lost, and how to come by the report."""
    try:
        with interrupts():
            yield
    except Interrupted as ended:
        ended.left = "every trial has ended, but the report may be missing"
        ended.hint = f"nodrop report {shlex.quote(str(run))}"
        raise
