"""Rich's console, made safe: foreign words reach the terminal without control codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from nodrop.terminal.saying import named
from nodrop.untrusted.words import plain

PIPED_COLUMNS = 200
"""No terminal is this wide: no row is folded."""
GAP = 3
"""Between two columns."""


def console(*, stderr: bool = False) -> Console:
    found = Plain(stderr=stderr, highlight=False)
    return (
        found if found.is_terminal else Plain(stderr=stderr, highlight=False, width=PIPED_COLUMNS)
    )


def print_table(out: Console, table: Table, names: int) -> None:
    """A table that is too wide is parted into several, one below the other. Each begins with the
    `names` columns that name its rows; rich would leave out columns, those first."""
    wide = [
        max(cell_len(line) for one in (c.header, *c.cells) for line in str(one).split("\n")) + GAP
        for c in table.columns
    ]
    parts: list[list[int]] = [[]]
    used = named = sum(wide[:names])
    for n in range(names, len(wide)):
        if parts[-1] and used + wide[n] > out.width:
            parts.append([])
            used = named
        parts[-1].append(n)
        used += wide[n]
    for number, part in enumerate(parts):
        out.print(_columns(table, [*range(names), *part], titled=number == 0))


def _columns(table: Table, chosen: Sequence[int], *, titled: bool) -> Table:
    title = table.title if titled else None
    part = Table(box=table.box, title=title, title_justify="left", pad_edge=table.pad_edge)
    columns = [table.columns[n] for n in chosen]
    for column in columns:
        part.add_column(column.header, justify=column.justify, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*row)
    return part


class Plain(Console):
    """Rich passes escape sequences in a name or a message on to the terminal; here none is left."""

    def print(self, *objects: Any, **how: Any) -> None:
        """A sentence is one line if no terminal has to hold it."""
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
