"""Rich's console, made safe: foreign words reach the terminal without control codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from nodrop.cli.saying import named
from nodrop.untrusted.words import plain

PIPED_COLUMNS = 200
"""No terminal is this wide: no row is folded."""


def console(*, stderr: bool = False) -> Console:
    found = Plain(stderr=stderr, highlight=False)
    return (
        found if found.is_terminal else Plain(stderr=stderr, highlight=False, width=PIPED_COLUMNS)
    )


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
