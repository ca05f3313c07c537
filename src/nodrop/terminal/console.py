"""The terminal made safe, and its tables: cells of a run, trials of a plan, plugins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nodrop.config.units import count_of, format_seconds, from_to
from nodrop.ledger.over_time import duration
from nodrop.ledger.verdict import percent
from nodrop.results.step_times import PartTime
from nodrop.terminal.arguments import command_lines, laid_out, named
from nodrop.untrusted.json_text import one_line, plain
from nodrop.watch.so_far import cell_name

if TYPE_CHECKING:
    from nodrop.measure.cells import OfferLength
    from nodrop.measure.plan import Plan
    from nodrop.plugins import Plugin
    from nodrop.results.summary import CellSummary
    from nodrop.stats.interval import Summary
    from nodrop.testbed.images.image_cache import Image
    from nodrop.testbed.load.api import Planned


# Rich's console, made safe: foreign words reach the terminal without control codes.

PIPED_COLUMNS = 200
"""No terminal is this wide: no row is folded."""
GAP = 3
"""Columns between two columns of a table; one less without a line there."""


def console(*, stderr: bool = False) -> Console:
    found = Plain(stderr=stderr, highlight=False)
    return (
        found if found.is_terminal else Plain(stderr=stderr, highlight=False, width=PIPED_COLUMNS)
    )


def print_table(out: Console, table: Table, names: int) -> None:
    """A table that is too wide is parted into several, one below the other. Each begins with the
    `names` columns that name its rows; rich would leave out columns, those first."""
    for part in _parted(table, names, out.width, "\n"):
        Console.print(out, part)


def _parted(table: Table, names: int, width: int, between: str | None) -> Iterator[Table]:
    """Each column has room for its longest text between two such marks; None: for its words, and
    for as much of its lines as the width allows."""
    gap = GAP if table.box else GAP - 1
    wide, whole = _widest(table, between), _widest(table, "\n")
    parts: list[list[int]] = [[]]
    used = named = sum(wide[:names]) + gap * names
    for n in range(names, len(wide)):
        if parts[-1] and used + wide[n] > width:
            parts.append([])
            used = named
        parts[-1].append(n)
        used += wide[n] + gap
    for number, part in enumerate(parts):
        chosen = [*range(names), *part]
        spare = width + gap - sum(wide[n] + gap for n in chosen)
        room = None
        if between is None and spare >= 0:
            room = {}
            # A column that lacks least gets it first: three words in a line before a sentence.
            lacking = sorted(chosen, key=lambda n: whole[n] - wide[n])
            for left, n in zip(range(len(chosen), 0, -1), lacking, strict=True):
                more = min(whole[n] - wide[n], spare // left)
                room[n], spare = wide[n] + more, spare - more
        yield _columns(table, chosen, room, titled=number == 0)


def _widest(table: Table, between: str | None) -> list[int]:
    """Columns of the longest text between two such marks, for each column of the table."""
    return [
        max(
            cell_len(part)
            for one in (c.header, *c.cells)
            for part in str(one).split(between) or [""]
        )
        for c in table.columns
    ]


def _columns(
    table: Table, chosen: Sequence[int], room: Mapping[int, int] | None, *, titled: bool
) -> Table:
    """The chosen columns, as wide as `room` says: rich's own least widths can exceed the
    terminal."""
    part = Table(
        box=table.box,
        title=table.title if titled else None,
        title_justify="left",
        pad_edge=table.pad_edge,
        header_style=table.header_style,
    )
    columns = [table.columns[n] for n in chosen]
    for n, column in zip(chosen, columns, strict=True):
        width = None if room is None else room[n]
        part.add_column(column.header, justify=column.justify, overflow="fold", width=width)
    for row in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*row)
    return part


class Plain(Console):
    """Rich passes escape sequences in a name or a message on to the terminal; here none is left."""

    def print(self, *objects: Any, **how: Any) -> None:
        """A sentence is one line if no terminal has to hold it; in one, no table breaks a word."""
        if self.is_terminal:
            objects = tuple(
                part
                for one in objects
                for part in (_parted(one, 1, self.width, None) if isinstance(one, Table) else [one])
            )
            if how.get("markup") is False and not how.get("soft_wrap"):
                objects = tuple(
                    "\n".join(laid_out(one, self.width)) if isinstance(one, str) else one
                    for one in objects
                )
        if not self.is_terminal and all(isinstance(one, str) for one in objects):
            how.setdefault("soft_wrap", True)
        with named("stderr" if self.stderr else "stdout"):
            super().print(*objects, **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for part in super().render(renderable, options):
            if part.control or part.text == "\n":
                yield part
            else:
                lines = part.text.split("\n")
                text = "\n".join(plain(line, longest=len(line)) for line in lines)
                yield Segment(text, part.style, part.control)


def speaks_unicode(out: Console) -> bool:
    return out.is_terminal and out.encoding.lower().replace("-", "") == "utf8"


MOST_ROWS = 40


def cell_words(cell: Mapping[str, Any]) -> str:
    """`setup.kind=docker load.multiplier=4`."""
    return " ".join(f"{key}={_plain(value)}" for key, value in cell.items()) or "(the only cell)"


def cells_table(rows: Sequence[CellSummary]) -> Table:
    fleet = any(row.pairs for row in rows)
    detecting = any(row.detections for row in rows)
    answered = all(row.unit == "transactions" for row in rows)
    shown = (
        (
            " ".join(filter(None, (cell_name(row.cell) or cell_words({}), row.accelerator))),
            f"{row.measured} of {row.measured + row.failed + row.void}",
            f"{row.lossy} of {row.measured}" if row.measured else "",
            percent(row.loss.median) if row.loss else "not known",
            _interval(row.loss),
            _runs(row.loss),
            *([_detections(row.detections)] if detecting else []),
            "; ".join(filter(None, _where_and_why(row))),
            *([", ".join(row.pairs)] if fleet else []),
        )
        for row in rows
    )
    return new_table(
        "cell",
        "measured",
        "with failures" if answered else "lossy",
        "failed, median" if answered else "loss, median",
        "95 % interval",
        "all runs",
        *(["detections missed"] if detecting else []),
        "where and why",
        *(["pair"] if fleet else []),
        rows=shown,
    )


def hosts_words(rows: Sequence[CellSummary]) -> str:
    """Empty if the same pairs measured all cells, or it was no fleet."""
    if len({row.pairs for row in rows if row.pairs}) < 2:
        return ""
    return "other hosts measured other cells: a difference between them includes that of hosts"


def _where_and_why(row: CellSummary) -> Iterator[str]:
    if row.measured:
        yield _listed(row.places) or _nothing_words(row)
        yield from (f"{percent(share)} {name}" for name, share in row.beside.items())
    if row.failed:
        yield f"{row.failed} failed: {_listed(row.failures)}"
    if row.void:
        yield f"{row.void} void: {_listed(row.voids)}"


def _nothing_words(row: CellSummary) -> str:
    if row.loss is None:
        return "loss not known"
    if row.unit == "transactions":
        return "" if row.lossy else "nothing failed"
    return "nothing lost"


def _listed(counted: Mapping[str, int]) -> str:
    """`socket ring (4), softnet backlog (2)`; without a number if there is one alone."""
    if len(counted) == 1:
        return next(iter(counted))
    return ", ".join(f"{words} ({n})" for words, n in counted.items())


def plan_table(plan: Plan) -> Table:
    lengths = {cell_words(length.cell): _length_words(length) for length in plan.lengths}
    trials = plan.controller.beforehand()
    shown = ((trial, cell_words(trial.cell)) for trial in trials[:MOST_ROWS])
    rows = ((t.index, t.run_name, t.repetition, lengths.get(cell, ""), cell) for t, cell in shown)
    more = ("…", f"{len(trials) - MOST_ROWS} more (--json lists them)", "", "", "")
    heads = ("order", "run", "repetition", "load", "cell")
    return new_table(*heads, rows=(*rows, more) if len(trials) > MOST_ROWS else rows)


def cells_to_come(plan: Plan) -> Table:
    """A row a cell: a terminal has no room for a row a trial."""
    runs = Counter(cell_words(trial.cell) for trial in plan.controller.beforehand())
    shown = ((length, cell_words(length.cell)) for length in plan.lengths[:MOST_ROWS])
    rows = ((cell_name(one.cell) or words, runs[words], _length_words(one)) for one, words in shown)
    more = (f"{len(plan.lengths) - MOST_ROWS} more (--json lists them)", "", "")
    every = (*rows, more) if len(plan.lengths) > MOST_ROWS else rows
    return new_table("cell", "runs", "load", rows=every)


def _length_words(length: OfferLength) -> str:
    """`1.9 s (of 2.9 s)`: the least to see whether it is carried, if it is longer."""
    if length.offered_s is None:
        return "not known"
    said = duration(length.offered_s)
    return f"{said} (of {duration(length.least_s or 0)})" if length.too_short else said


def plugins_table(plugins: Sequence[Plugin]) -> Table:
    rows = ((plugin.table, plugin.kind, plugin.origin, plugin.entry.value) for plugin in plugins)
    return new_table("table", "kind", "from", "entry point", rows=rows)


def images_table(images: Sequence[Image], defaults: Sequence[Image | None]) -> Table:
    """A `*` marks what is taken if none is named."""
    rows = (
        ("*" if image in defaults else "", image.name, image.version, image.release,
         image.built_utc, image.sha256)
        for image in images
    )  # fmt: skip
    return new_table("", "image", "version", "release", "built", "sha256", rows=rows)


def costs_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """`probe tsc`: a column per place."""
    names = {name: None for said in found.values() for name in said["ns"]}
    accelerators = {kind: said.get("place", {}).get("accelerator") for kind, said in found.items()}
    heads = [f"{kind} ({name})" if (name := accelerators[kind]) else kind for kind in found]
    costs = {name: [said["ns"][name] for said in found.values()] for name in names}
    rows = (
        (name, *(f"{cost['best']:,.1f} ({cost['median']:,.1f})" for cost in each))
        for name, each in costs.items()
    )
    return new_table("ns each: best (median)", *heads, rows=rows)


def timings_table(parts: Sequence[PartTime]) -> Table:
    rows = ((part.name, f"{part.median_s:.3f}", f"{part.total_s:.3f}") for part in parts)
    return new_table("beside the traffic", "median, s", "total, s", rows=rows)


def plan_words(plan: Plan) -> str:
    """`3 cells x 3 repetitions = 9 trials, order of seed 1, about 4 min`; with a rule, `3 cells x 6
    to 40 repetitions = 18 to 120 trials, …`. Of a controller that does not know its trials yet: `3
    cells, at least 3 trials, …`."""
    outlook, cells = plan.controller.outlook([]), count_of(len(plan.cells), "cell")
    certain, most = outlook.at_least, outlook.at_most
    took = (plan.load_s or 0.0) + plan.around_s
    time = f"about {format_seconds(took)}"
    order = f"order of seed {plan.seed}" if len(plan.cells) > 1 or plan.forecast is None else ""
    if plan.rule is not None and most is not None:
        longest = took * most.trials / max(certain.trials, 1)
        count = f"{cells} x {plan.rule} repetitions = {certain.trials:,} to {most.trials:,} trials"
        until = f"each cell until {' and '.join(plan.rule.until)}"
        time, order = f"{time} to {format_seconds(longest)}", f"{until}, {order}"
    elif most is not None and outlook.budget_s is not None:
        foreseen = f"about {count_of(most.trials, 'trial')} are foreseen"
        hold = f"as many trials as {format_seconds(outlook.budget_s)} hold ({foreseen})"
        return f"{cells}, {hold}, {order}"
    elif most == certain:
        count = f"{cells} x {count_of(plan.repetitions, 'repetition')} = "
        count += count_of(certain.trials, "trial")
    else:
        count = f"{cells}, at least {count_of(certain.trials, 'trial')}"
        if plan.forecast is not None:
            trials = plan.forecast.trials * len(plan.cells)
            count = f"{cells}, about {count_of(trials, 'trial')}"
        if most is None and plan.likely is not None:
            trials, seconds = plan.likely
            count = f"{cells}, likely about {count_of(trials, 'trial')}"
            time = f"{format_seconds(took)} at least, likely about {format_seconds(seconds)}"
        elif most is None:
            time = f"{format_seconds(took)} at least"
        elif most.seconds < took:
            allowed = format_seconds(most.seconds)
            time = f"{format_seconds(took)}, of which the budget allows {allowed}"
        else:
            time = from_to(took, most.seconds)
    words = ", ".join(filter(None, (count, order, time)))
    return f"{words}{' and the load itself' if plan.load_s is None else ''}"


def sent_words(plan: Plan) -> Iterator[str]:
    """Lines on what a trial of each load sends: `load.multiplier=3.4: 343,981 packets of 41 flows,
    …`."""
    by_load: dict[str, str] = {}
    for length in plan.lengths:
        if length.planned is not None:
            load = {k: v for k, v in length.cell.items() if k.startswith("load.")}
            words = cell_words(load) if load else "each trial"
            by_load.setdefault(words, _planned_words(length.planned))
    shown = [f"{load}: {words}" for load, words in by_load.items()]
    yield from shown[:MOST_ROWS]
    if len(shown) > MOST_ROWS:
        yield f"… {len(shown) - MOST_ROWS} more loads (--json lists them)"


def _planned_words(planned: Planned) -> str:
    said = f"{count_of(planned.packets, 'packet')} of {count_of(planned.flows, 'flow')}"
    if planned.pps is None or planned.bps is None:
        return said if planned.duration_s is None else f"{said} at one moment: no rate"
    return f"{said}, {planned.pps:,.0f} packets/s, {planned.bps / 1e6:,.2f} Mbit/s on average"


def peak_words(plan: Plan) -> str:
    """Empty if no trial sends a trace at its own timing."""
    peak = plan.peak_demand
    if peak is None:
        return ""
    in_1, in_10 = peak.packets_in_1_ms, peak.packets_in_10_ms
    are = "is" if in_1 == 1 else "are"
    return (
        f"at most {count_of(in_1, 'packet')} {are} due within 1 ms ({in_1 * 1000:,}/s), {in_10:,} "
        f"within 10 ms ({in_10 * 100:,}/s); a sender that needs longer for them is not late by that"
    )


def memory_words(plan: Plan) -> str:
    """Empty if no trace could be read."""
    if plan.memory_bytes is None:
        return ""
    mebibytes = max(1, round(plan.memory_bytes / 2**20))
    return f"the sender holds its trace in memory: at most about {mebibytes:,} MiB"


def new_table(*columns: str, rows: Iterable[Iterable[object]] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _runs(loss: Summary | None) -> str:
    if loss is None:
        return ""
    low, high = percent(loss.low), percent(loss.high)
    return low if low == high else f"{low} to {high}"


def _interval(loss: Summary | None) -> str:
    if loss is None:
        return ""
    if loss.interval is None:
        return loss.why_no_interval
    return f"{percent(loss.interval.low)} to {percent(loss.interval.high)}"


def _detections(summary: Summary | None) -> str:
    """`31.67 % [28.33 to 36.67 %]`: the median, with its interval or the range of the runs."""
    if summary is None:
        return "not known"
    ends = summary.interval or summary
    between = f" ({percent(ends.low)} to {percent(ends.high)})" if ends.low < ends.high else ""
    return f"{percent(summary.median)}{between}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(_plain, value)) if isinstance(value, list) else str(value)


KEY = 10
"""Columns of a key; a key that the line before had is left out."""


def print_keyed(out: Console, lines: Iterable[tuple[str, str]]) -> None:
    """A key and its words a line: wrapped below themselves in a terminal, one line in a pipe. Words
    that are indented are a command to paste."""
    before = ""
    for key, words in lines:
        clean = one_line(words)
        room = out.width - KEY - 2 if out.is_terminal else 0
        if words.startswith(" "):
            wrapped = [f"  {line}" for line in command_lines(clean, room - 2 if room else 9999)]
        else:
            wrapped = laid_out(clean, room) if room > 0 else [clean]
        for n, part in enumerate(wrapped):
            name = "" if n or key == before else key
            text = Text.assemble("  ", (f"{name:{KEY}}", "bold"), part)
            out.print(text, soft_wrap=True, highlight=False)
        before = key or before
