"""The trial under way on a terminal, for who runs it and for who watches from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nodrop.config.units import format_seconds
from nodrop.measure.controllers.seam import Outlook
from nodrop.results.live import Live
from nodrop.results.trial import MARKS
from nodrop.watch.so_far import Row, SoFar

UNKNOWN = "–"
BUSY_RATIO = 0.95


def bar_line(ratio: float, words: Sequence[str]) -> Table:
    """`━━━━╸ 3/9 · 1 min 10 s ± 4 s left · 0004-4x-r02 · offer 2.0 of 4.0 s`."""
    line = Table.grid(padding=(0, 1))
    line.add_row(
        ProgressBar(total=1.0, completed=ratio, width=16),
        Text(" · ".join(filter(None, words)), overflow="ellipsis", no_wrap=True),
    )
    return line


def reading_line(reading: Live | None) -> Text:
    """Rates in packets/s, what was dropped so far, and the thread with the most CPU time."""
    if reading is None or reading.intended_packets is None:
        return Text("")
    line = Text(overflow="ellipsis", no_wrap=True)
    # A generator that does not say what it has sent: what arrives is the next best thing.
    silent = reading.sent_packets is None
    name, rate = ("received", reading.received_pps) if silent else ("offered", reading.sent_pps)
    rates = ((name, rate), ("captured", reading.captured_pps), ("decoded", reading.decoded_pps))
    line.append(" · ".join(f"{word} {_rate(pps)}" for word, pps in rates) + " packets/s · ")
    dropped = reading.dropped_packets
    if dropped:
        words = f"▼ {dropped:,} dropped ({_rate(reading.dropped_pps)}/s)"
        line.append(words, style="bold red")
    else:
        line.append("dropped " + (UNKNOWN if dropped is None else "0"))
    if thread := reading.busiest_thread:
        style = "bold yellow" if thread.cpu_ratio >= BUSY_RATIO else ""
        line.append(" · ")
        line.append(f"{thread.name} {thread.cpu_ratio * 100:.0f} % of a CPU", style=style)
    return line


STYLES = {"good": "blue", "loss": "red", "failed": "magenta", "void": "dim"}
NARROW, WIDE = 70, 108
"""Columns below which units are short, and from which the sender and the CPU time have room."""


def print_trial(out: Console, number: int, row: Row) -> None:
    """`  9  ▼   5.691X   11,507 packets/s  1.35 % lost  socket ring`: always one line."""
    per_s = f"{_rate(row.pps):>9} packets/s" if out.width >= NARROW else f"{_rate(row.pps):>9}/s"
    words = f"  {row.name:>8}  {per_s}  {row.said:<12}  "
    if out.width < WIDE:
        words += row.why
    else:
        late = UNKNOWN if row.late_us is None else f"{row.late_us / 1000:.2f}"
        cpu = UNKNOWN if row.sut_cpu_s is None else f"{row.sut_cpu_s:.2f}"
        words += f"{row.why:<24}  late p99 {late} ms  SUT {cpu} CPU s"
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
        return f"{format_seconds(least_s)} to {format_seconds(most_s)}"
    words = replace(rest, seconds=least_s).words
    return words if most == rest else f"at least {words}"


def _rate(pps: float | None) -> str:
    return UNKNOWN if pps is None else f"{pps:,.0f}"
