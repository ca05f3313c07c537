"""Shows a run while it goes on, to who runs it and to who watches: live on a terminal, plain lines
when piped, JSON for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live as Display
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nodrop.capacity.answering import search_of
from nodrop.config.units import count_of, from_to
from nodrop.ledger.verdict import percent
from nodrop.measure.controllers.blocks import Controller, Outlook, TrialInput
from nodrop.measure.plan import Plan, Progress
from nodrop.report.direct import direct_sentences
from nodrop.report.escape import plain
from nodrop.report.loads import always_void
from nodrop.report.numbers import NOT_MEASURED, count
from nodrop.report.repeats import stopped
from nodrop.report.story import Story, by_key
from nodrop.results.rundir import open_run
from nodrop.results.step_times import harness_time
from nodrop.results.summary import outcomes, record_words, summarize_cells
from nodrop.results.trial import MARKS, Live, TrialRecord
from nodrop.stats.interval import LookPlan
from nodrop.terminal.arguments import laid_out, say, say_json
from nodrop.terminal.console import (
    cells_table,
    console,
    hosts_words,
    plan_words,
    print_keyed,
    timings_table,
)
from nodrop.watch.follow import GrowingRun
from nodrop.watch.so_far import CellsSoFar, SoFar, SoFarRow, cell_name

BUSY_RATIO = 0.95


def bar_line(ratio: float, words: Sequence[str], *, narrow: bool = False) -> Table:
    """`━━━━╸ 3/9 · 1 min 10 s ± 4 s left · offer 2.0 of 4.0 s · 0004-4x-r02`."""
    line = Table.grid(padding=(0, 1))
    line.add_row(
        ProgressBar(
            1.0,
            ratio,
            8 if narrow else 16,
            style="dim",
            complete_style="bold",
            finished_style="bold",
        ),
        Text(" · ".join(filter(None, words)), overflow="ellipsis", no_wrap=True),
    )
    return line


def answered_words(reading: Live) -> str:
    """`1,204 of 4,000 started · 1,190 completed · 14 in progress`."""
    begun = f"{count(reading.sent_packets or 0)} of {count(reading.intended_packets or 0)} started"
    ended, waiting = count(reading.completed), count(reading.in_progress)
    return f"{begun} · {ended} completed · {waiting} in progress"


def reading_line(reading: Live | None) -> Text:
    """Packets dropped so far, rates in packets/s, and the thread with the most CPU time: a narrow
    terminal cuts the end."""
    if reading is None or reading.intended_packets is None:
        return Text("")
    if reading.unit == "transactions":
        return Text(answered_words(reading), overflow="ellipsis", no_wrap=True)
    # A generator that does not say what it has sent: what arrives is the next best thing.
    silent = reading.sent_packets is None
    name, rate = ("received", reading.received_pps) if silent else ("offered", reading.sent_pps)
    rates = ((name, rate), ("captured", reading.captured_pps), ("decoded", reading.decoded_pps))
    dropped, thread = count(reading.dropped_packets), reading.busiest_thread
    lost = (f"▼ {dropped} dropped ({count(reading.dropped_pps)}/s)", "bold red")
    each = "".join(f" · {word} {count(pps)}" for word, pps in rates) + " packets/s"
    busy = "" if thread is None else f"{thread.name} {thread.cpu_ratio * 100:.0f} % of a CPU"
    style = "bold" if thread is not None and thread.cpu_ratio >= BUSY_RATIO else ""
    return Text.assemble(
        lost if reading.dropped_packets else f"dropped {dropped}",
        f"{each} · " if busy else each,
        (busy, style),
        overflow="ellipsis",
        no_wrap=True,
    )


STYLES = {"good": "blue", "loss": "red", "failed": "magenta", "void": "dim"}
NARROW, WIDE = 70, 108
"""Columns below which units are short, and from which the sender and the CPU time have room."""


MOST_NOTES = 3
"""Rows of notes before the first trial."""
LOAD = 8
"""Columns of a load that a search chose."""


def print_trial(out: Console, number: int, row: SoFarRow, *, longest: int = LOAD) -> None:
    """`  9  ▼   5.691X   11,507 packets/s  1.35 % lost  socket ring`: always one line. `longest`:
    columns of the longest name of a cell."""
    unit = f" {row.unit}/s" if out.width >= NARROW else "/s"
    room = max(LOAD, min(longest, out.width - 41 - len(unit)))
    name, cut = row.name, room // 3
    if len(name) > room:  # cells differ at their end as often as at their beginning
        name = f"{name[:cut]}…{name[cut + 1 - room :]}"
    aligned = f"{name:>{LOAD}}" if longest <= LOAD else f"{name:<{room}}"
    words = f"  {aligned}  {count(row.per_s):>9}{unit}  {row.said:<12}  "
    if out.width < WIDE + room - LOAD or row.mark == "void":
        fits = 6 + len(words) + len(row.why) <= out.width
        words += row.why if fits else row.why.partition(": ")[0]
    else:
        late = NOT_MEASURED if row.late_us is None else f"{row.late_us / 1000:.2f}"
        cpu = NOT_MEASURED if row.sut_cpu_s is None else f"{row.sut_cpu_s:.2f}"
        words += f"{row.why:<20}  late p99 {late} ms  SUT {cpu} CPU s"
    sign = (MARKS[row.mark], STYLES[row.mark])
    line = Text.assemble(f"{number:>3}  ", sign, words.rstrip())
    out.print(line, no_wrap=True, overflow="ellipsis")


def so_far_lines(found: SoFar | None) -> Iterator[Text]:
    """The card as it fills, a line each."""
    for key, words in found.lines() if found is not None else ():
        line = Text(overflow="ellipsis", no_wrap=True)
        line.append(f"  {key:<10}", style="bold")
        line.append(words)
        yield line


def phase_words(reading: Live) -> str:
    if reading.phase != "offer" or reading.offering_s is None:
        return reading.phase
    of = "" if reading.intended_s is None else f" of {reading.intended_s:.1f}"
    return f"{reading.phase} {reading.offering_s:.1f}{of} s"


def outlook_words(outlook: Outlook, *, begun_s: float) -> str:
    """`1 min 10 s ± 4 s`; if a rule or a budget bounds it, `1 min 10 s to 9 min`; of a controller
    that cannot say, `at least 1 min 10 s ± 4 s`. The trial under way is taken to last as long as
    was foreseen."""
    rest, most = outlook.at_least, outlook.at_most
    passed_s = min(begun_s, outlook.next_s)
    least_s = max(0.0, rest.seconds - passed_s)
    if most is not None and most != rest:
        most_s = max(0.0, most.seconds - passed_s)
        return from_to(least_s, most_s)
    words = replace(rest, seconds=least_s).words
    return words if most == rest else f"at least {words}"


@contextmanager
def shown(*, quiet: bool, as_json: bool) -> Iterator[Progress]:
    """Progress goes to stderr: stdout holds only the result. With --json it goes to stdout."""
    err = console(stderr=True)
    if as_json:
        yield JsonLines(sys.stdout)
    elif quiet:
        yield Progress()
    elif err.is_terminal:
        with OnTerminal(err) as display:
            yield display
    else:
        yield PlainLines(err)


class PlainLines(Progress):
    """Progress as a log wants it: a line when a trial ends."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.controller: Controller | None = None
        self.done: list[TrialRecord] = []
        self.outlook: Outlook | None = None
        """Time ahead after the trials of `done`."""
        self.began: float | None = None

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        self.controller, self.done = plan.controller, list(earlier)
        self.outlook = plan.controller.outlook(self.done)
        self._say(f"{directory}: {plan_words(plan)}")
        if earlier:
            ahead = self.outlook.at_least.trials
            are = "trial is" if len(earlier) == 1 else "trials are"
            self._say(f"resumed: {len(earlier)} {are} there, {ahead} to go")

    def note(self, words: str) -> None:
        self._say(words)

    def trial_started(self, trial: TrialInput) -> None:
        del trial
        self.began = time.monotonic()

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        self.began = None
        self.done.append(record)
        if self.controller is not None:
            self.outlook = self.controller.outlook(self.done)
        self._tell(trial, record)

    def _say(self, words: str) -> None:
        # A name from a file may hold escape sequences.
        self.out.print(plain(words, longest=2000), markup=False)

    def _tell(self, trial: TrialInput, record: TrialRecord) -> None:
        left = f", {self._left()} left" if self._ahead() else ""
        most = self.outlook.at_most if self.outlook else None
        total = len(self.done) + (most.trials if most else 0)
        or_more = f" to {total}" if total > self._total() else ""
        of = f"trial {trial.index} of {self._total()}{or_more}"
        self._say(f"{of}, {trial.run_name}: {record_words(record)}{left}")

    def _ahead(self) -> int:
        return self.outlook.at_least.trials if self.outlook else 0

    def _total(self) -> int:
        """Number of all trials, as far as it is known."""
        return len(self.done) + self._ahead()

    def _left(self) -> str:
        begun_s = time.monotonic() - self.began if self.began is not None else 0.0
        return outlook_words(self.outlook, begun_s=begun_s) if self.outlook else ""


class OnTerminal(PlainLines):
    """The trial under way in two lines that are drawn over.

    Drawn on events only, twice a second at most: a thread that redraws would take time from what
    is being measured.
    """

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self.display = Display(console=out, auto_refresh=False, transient=True)
        self.gathered = CellsSoFar(None)
        self.now = ""
        self.reading: Live | None = None
        self.longest = LOAD
        self.begin: list[str] | None = None
        """Notes between plan and first trial."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        super().plan_started(plan, directory=directory, earlier=earlier)
        self.longest = max(LOAD, *(len(cell_name(cell.factors)) for cell in plan.cells))
        if plan.searched_by is not None:
            self.gathered = CellsSoFar(search_of(GrowingRun.open(directory).manifest()))
        for record in earlier:
            self.gathered.add(record)
        self.begin = []
        self.display.start()

    def note(self, words: str) -> None:
        """Wrapped below itself: the rows of trials stand out. Between plan and first trial a row
        each, a few in all: the manifest keeps them whole."""
        clean = plain(words, longest=2000)
        if self.begin is not None:
            self.begin.append(clean)
            if len(self.begin) < MOST_NOTES:
                self.out.print(Text(f"  · {clean}"), no_wrap=True, overflow="ellipsis")
            return
        for n, part in enumerate(laid_out(clean, self.out.width - 4)):
            self.out.print(f"{'    ' if n else '  · '}{part}", markup=False, soft_wrap=True)

    def trial_started(self, trial: TrialInput) -> None:
        super().trial_started(trial)
        if self.begin is not None and len(self.begin) >= MOST_NOTES:
            more = self.begin[MOST_NOTES - 1 :]
            said = (
                more[0] if len(more) == 1 else f"{len(more)} more notes: see the report's appendix"
            )
            self.out.print(Text(f"  · {said}"), no_wrap=True, overflow="ellipsis")
        self.begin = None
        self.now, self.reading = trial.run_name, None
        self._draw("")

    def phase(self, name: str) -> None:
        self._draw(name)

    def live(self, reading: Live) -> None:
        if reading.phase != "offer":
            return  # at rest: what was last seen under load stays until the trial has ended
        self.reading = reading
        self._draw(phase_words(reading))

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        self.gathered.add(record)
        super().trial_ended(trial, record)
        self.now, self.reading = "", None
        self._draw("")

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        super().finished(directory, records)
        self.display.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also on Ctrl-C, or the error would be written over the display.
        self.display.stop()

    def _tell(self, trial: TrialInput, record: TrialRecord) -> None:
        del trial
        row = SoFarRow.of(record)
        self.longest = max(self.longest, len(row.name))
        print_trial(self.out, len(self.done), row, longest=self.longest)

    def _draw(self, phase: str) -> None:
        done, total = len(self.done), self._total()
        words = [f"{done}/{total}", f"{self._left()} left", phase, self.now]
        line = bar_line(done / max(total, 1), words, narrow=self.out.width < WIDE)
        so_far = so_far_lines(self.gathered.look())
        self.display.update(Group(*so_far, line, reading_line(self.reading)), refresh=True)


class JsonLines(Progress):
    """One object per event; the last is `finished` with the directory and the cells."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.looks: LookPlan | None = None

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        self.looks = plan.looks
        self._event(
            "plan_started",
            directory=str(directory),
            trials=plan.controller.outlook([]).at_least.trials,
            earlier=[record.run for record in earlier],
            seed=plan.seed,
        )

    def note(self, words: str) -> None:
        self._event("note", words=words)

    def trial_started(self, trial: TrialInput) -> None:
        self._event(
            "trial_started",
            index=trial.index,
            run=trial.run_name,
            cell=trial.cell,
            repetition=trial.repetition,
        )

    def phase(self, name: str) -> None:
        self._event("phase", phase=name)

    def live(self, reading: Live) -> None:
        self._event("live", **asdict(reading))

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        self._event("trial_ended", index=trial.index, trial=record.model_dump())

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        self._event(
            "finished",
            directory=str(directory),
            **outcomes(records),
            cells=[asdict(row) for row in summarize_cells(records, self.looks)],
        )

    def _event(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, default=str)
        self.out.write(line + "\n")
        self.out.flush()


def print_cells(records: Sequence[TrialRecord], looks: LookPlan | None) -> None:
    """The table a run ends with, on stdout."""
    rows = summarize_cells(records, looks)
    console().print(cells_table(rows))
    if words := hosts_words(rows):
        console().print(words, markup=False)
    print_keyed(console(), (("missed", words) for words in missed_words(records)))


def missed_words(records: Sequence[TrialRecord]) -> Iterator[str]:
    """`2X: 3 of 5 expected detections in 1 trial (5 expected units are fewer than 20)`, by cell."""
    told = ((cell_name(record.cell) or "all trials", record.detections) for record in records)
    known = ((name, one) for name, one in told if one and one.missed is not None and one.expected)
    for name, trials in by_key(known).items():
        missed, expected = (sum(getattr(t, n) for t in trials) for n in ("missed", "expected"))
        few = f" ({trials[0].no_ratio})" if trials[0].no_ratio else ""
        share = "" if few else f", {percent(missed / expected)},"
        trial = count_of(len(trials), "trial")
        yield f"{name}: {missed:,} of {expected:,} expected detections{share} in {trial}{few}"


def print_stopped(story: Story) -> None:
    """Prints what ended the repetitions of each cell."""
    for said in stopped(story):
        console().print(said.text, markup=False)


def print_timings(directory: Path) -> None:
    console().print(timings_table(harness_time(open_run(directory))))


def print_timings_json(directory: Path) -> None:
    """Prints one more event, after `finished`."""
    parts = [asdict(part) for part in harness_time(open_run(directory))]
    say_json({"event": "timings", "parts": parts})


def print_questions(story: Story) -> None:
    """Prints what each run was to answer."""
    out = console()
    if out.is_terminal:
        out.print()
    for words in dict.fromkeys(source.question for source in story.sources if source.question):
        out.print(words, style="bold", markup=False, highlight=False, soft_wrap=not out.is_terminal)


def print_direct(story: Story) -> None:
    """Prints the answer of a run with several cells."""
    said = [*direct_sentences(story), *always_void(story)]
    for sentence in said:
        say(sentence.text)
        if sentence.to_do:
            say(f"  What to do: {sentence.to_do}.")
    if said:
        say()
