"""The page of a folder of runs: a line each with its answer, all loads on one axis."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from nodrop.capacity.card import lost_words
from nodrop.errors import BadInput
from nodrop.report import escape
from nodrop.report.cards import cards, given_cards
from nodrop.report.direct import verdict_cards
from nodrop.report.sections import framed
from nodrop.report.story import read_story
from nodrop.report.watched import watched_cards
from nodrop.results.capacity import Card, CardLoad
from nodrop.results.layout import MANIFEST, TRIALS
from nodrop.untrusted.folder import Folder

MOST_RUNS = 500
WIDTH = 150
"""px, a line's picture."""
PAGE = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    name: str
    link: str
    """To its report; empty if there is none yet."""
    begun: str
    sut: str
    trials: int
    card: Card | None
    """None if it has several cells, or none that says anything."""
    answer: str
    lost: str
    carried_px: float | None = None
    too_much_px: float | None = None


def runs_in(folder: Path) -> list[Path]:
    """Run directories in the folder; none if it is one itself."""
    if _is_run(Folder(folder)) or not folder.is_dir():
        return []
    found = Folder(folder)
    try:
        return [folder / name for name in sorted(found.folders()) if _is_run(found.folder(name))]
    except OSError:
        return []


def _is_run(folder: Folder) -> bool:
    return folder.is_there(MANIFEST) or folder.is_there(TRIALS)


def write_folder_page(folder: Path, runs: Sequence[Path], out: Path | None) -> Path:
    """Writes the page into `out` (none: the folder itself) and returns its path."""
    where = out or folder
    lines = [_line(run, where) for run in runs[-MOST_RUNS:]]
    ends = [pps for line in lines for pps in _ends(line.card)]
    low, high = (min(ends), max(ends)) if ends else (1.0, 10.0)
    drawn = [_drawn(line, low, high) for line in lines]
    html = framed(
        "folder.html.j2", skip=("runs", "To the runs"),
        title=escape.plain(folder.resolve().name, longest=120),
        lines=drawn, left_out=len(runs) - len(lines), width=WIDTH, low=low, high=high,
    )  # fmt: skip
    try:
        where.mkdir(parents=True, exist_ok=True)
        Folder(where).write(PAGE, html.encode(), durable=False)
    except OSError as error:
        raise BadInput(f"{where}: {error.strerror or error}", hint="give another --out") from None
    return where / PAGE


def _line(run: Path, where: Path) -> RunLine:
    story = read_story([run])
    (source,) = story.sources
    found = (*cards(story), *given_cards(story))
    verdicts = (*watched_cards(story), *verdict_cards(story))
    card = found[0] if len(found) == 1 else None
    answer = verdicts[0].headline if verdicts else f"{len(found)} cells" if found else "No trial."
    report = os.path.relpath(run.resolve() / "report" / PAGE, where.resolve())
    return RunLine(
        name=source.name,
        link=quote(report) if Folder(run).folder("report").is_there(PAGE) else "",
        begun=escape.plain(source.run.manifest.get("started_utc") or "")[:16].replace(
            "T", escape.THIN
        ),
        sut=escape.plain(", ".join(source.sut_names), longest=60),
        trials=len(story.trials),
        card=card,
        answer=card.breaks.verdict if card else answer,
        lost=lost_words(card) if card else "",
    )


def _ends(card: Card | None) -> Iterator[float]:
    for load in (card.carried, card.too_much) if card else ():
        if load is not None and load.pps:
            yield load.pps


def _drawn(line: RunLine, low: float, high: float) -> RunLine:
    """Loads on a tenfold axis from the least to the most of all runs."""
    if line.card is None:
        return line

    def px(load: CardLoad | None) -> float | None:
        if load is None or not load.pps:
            return None
        part = math.log(load.pps / low) / math.log(high / low) if high > low else 0.5
        return round(8 + part * (WIDTH - 16), 1)

    return replace(line, carried_px=px(line.card.carried), too_much_px=px(line.card.too_much))
