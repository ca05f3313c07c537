"""`nodrop calibrate`: the known answers on the user's own lab, and their certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.errors import BadInput
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN
from nodrop.terminal.arguments import AsJson, LabName, say, say_json

if TYPE_CHECKING:
    from rich.console import Console

    from nodrop.calibrate.case import Case, CaseResult, Site
    from nodrop.calibrate.cases import Watcher


def add_to(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


def calibrate(
    lab: LabName = None,
    setups: Annotated[
        list[str] | None,
        typer.Option("--setup", metavar="KIND", help="Where the SUT runs (bare). Repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="CASE",
            help="Run only this case, and keep no certificate. Repeatable.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the runs of all cases, not only of missed ones.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Put known faults into this lab and check what nodrop says. Takes about two minutes.

    \b
    nodrop calibrate
    nodrop calibrate --lab my-lab.toml --setup bare --setup docker

    Exit code 0: every fault was caught, or cannot be put in here and the table says why; 1: some
    were missed; 2: bad input, or something is missing here; 3: the lab failed.
    """
    from nodrop.calibrate.case import Site
    from nodrop.calibrate.cases import calibrate as calibrated
    from nodrop.calibrate.certificate import certificate_table, certificate_words
    from nodrop.config.lab_file import load_lab
    from nodrop.measure.baselines import store
    from nodrop.measure.busy import beside_words
    from nodrop.plugins import build_setup
    from nodrop.terminal.console import console
    from nodrop.testbed.hosts.folders import scratch, sweep
    from nodrop.testbed.hosts.rights import ensure_privileges

    where = load_lab(lab)
    kinds = setups or ["bare"]
    for kind in kinds:
        build_setup({"kind": kind}, base=Path())
    ensure_privileges()
    for words in beside_words():
        console(stderr=True).print(words, markup=False)
    found = []
    sweep()
    for setup in kinds:
        with scratch() as work:
            site = Site.here(where, setup, work)
            cases = _chosen(site, only)
            with _shown(as_json=as_json) as watcher:
                certificate = calibrated(site, cases, watcher, keep=keep)
        path = None if only else store(certificate)
        found.append((certificate, path))
        if not as_json:
            out = console()
            out.print(certificate_table(certificate))
            for line in certificate_words(certificate):
                out.print(line, markup=False)
            say(f"certificate: {path}" if path else "no certificate is kept of some cases alone")
    if as_json:
        said = [
            {"path": None if path is None else str(path), **certificate.model_dump(mode="json")}
            for certificate, path in found
        ]
        say_json({"certificates": said})
    return FAULTS_SEEN if any(certificate.named("missed") for certificate, _ in found) else ANSWERED


def _chosen(site: Site, only: Sequence[str] | None) -> Sequence[Case]:
    from nodrop.calibrate.cases import known_answers
    from nodrop.config.options import unknown_key

    cases = known_answers(site)
    names = [case.name for case in cases]
    for name in only or ():
        if name not in names:
            raise BadInput(f"--only {name}: no such case{unknown_key(name, names)}")
    return [case for case in cases if not only or case.name in only]


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Watcher]:
    """Progress goes to stderr: a line that is drawn over on a terminal, else one line per case."""
    from rich.live import Live as Display

    from nodrop.terminal.console import console

    err = console(stderr=True)
    if as_json or not err.is_terminal:
        yield Lines(err, silent=as_json)
        return
    with Display(console=err, auto_refresh=False, transient=True) as display:
        yield CasesOnTerminal(display)


class Ahead:
    """How long the rest takes: by the guesses, and by how wrong they were so far."""

    def __init__(self) -> None:
        self.total = 0
        self._began = time.monotonic()
        self._guessed_s = 0.0

    def begins(self, case: Case, ahead: Sequence[Case]) -> Sequence[str]:
        """`3/15`, `lose-on-path`, `about 1 min left`."""
        from nodrop.config.units import format_seconds

        self.total = max(self.total, len(ahead) + 1)
        took_s = time.monotonic() - self._began
        pace = took_s / self._guessed_s if self._guessed_s else 1.0
        left_s = pace * sum(c.about_s for c in (case, *ahead))
        self._guessed_s += case.about_s
        number = self.total - len(ahead)
        return f"{number}/{self.total}", case.name, f"about {format_seconds(left_s)} left"


class Lines:
    """Progress as a log wants it: a line when a case ends."""

    def __init__(self, out: Console, *, silent: bool) -> None:
        self._out, self._silent = out, silent
        self._ahead = Ahead()
        self._now = ""

    def begins(self, case: Case, ahead: Sequence[Case]) -> None:
        self._now = self._ahead.begins(case, ahead)[0]

    def ended(self, tried: CaseResult) -> None:
        if not self._silent:
            words = f"[{self._now}] {tried.case.name}: {tried.answer}, {tried.took_s:.1f} s"
            self._out.print(words, markup=False)


class CasesOnTerminal:
    """Drawn on events only: a thread that redraws would take time from what is measured."""

    def __init__(self, display: object) -> None:
        self._display = display
        self._ahead = Ahead()

    def begins(self, case: Case, ahead: Sequence[Case]) -> None:
        from rich.live import Live as Display

        from nodrop.terminal.progress import bar_line

        _, *words = self._ahead.begins(case, ahead)
        done = self._ahead.total - len(ahead) - 1
        assert isinstance(self._display, Display)
        total = self._ahead.total
        said = bar_line(done / max(total, 1), [f"{done}/{total}", *words])
        self._display.update(said, refresh=True)

    def ended(self, tried: CaseResult) -> None:
        pass
