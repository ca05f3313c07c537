"""Use of decoded words of others: whatever does not fit raises one error that names its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nodrop.errors import LabProblem
from nodrop.untrusted.words import one_line


@contextmanager
def making_sense(source: str) -> Iterator[None]:
    """Around the few lines that take fields out of what `source` said. A missing field, a list in
    place of an object, a text in place of a number end in LabProblem. Also a decorator."""
    try:
        yield
    except KeyError as error:
        raise LabProblem(f"{source} makes no sense: it has no {_short(error.args[0])}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise LabProblem(f"{source} makes no sense: {_short(error)}") from error


def _short(words: Any) -> str:
    return one_line(words, longest=200)
