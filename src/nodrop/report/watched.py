"""Recorded watches (`nodrop drops --record`): books of captures, places that lost, and their time.

Nobody sent a load, so there is no trial: the books begin at the port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup
from pydantic import ValidationError

from nodrop.report import escape, numbers
from nodrop.report.chart import Chart
from nodrop.report.direct import VerdictCard, VerdictRow
from nodrop.report.flows import time_chart
from nodrop.report.sections import Picture, Section, rendered
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Source, Story, once
from nodrop.report.tables import Field, Table, Value, number, numeric, scaled, table_of, words
from nodrop.report.timeline import Panel, Series, Timeline
from nodrop.results.other_records import WatchedCapture, WatchedInterval, WatchedPlace
from nodrop.untrusted.json_text import value_in

MOST_POINTS = 240
MOST_SERIES = 5
ANALYSIS = "analysis"
"""The place that loses no packets, but what they carried (drops/places.py)."""
Pair = tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One recorded watch."""

    source: str
    host: str
    intervals: Sequence[WatchedInterval]
    unread: int
    """Lines that are no interval."""

    @property
    def last(self) -> WatchedInterval:
        return self.intervals[-1]

    @property
    def began_ns(self) -> int:
        first = self.intervals[0]
        return first.real_ns - round(first.interval_s * 1e9)

    @property
    def seconds(self) -> float:
        return (self.last.real_ns - self.began_ns) / 1e9

    @property
    def captures(self) -> Sequence[WatchedCapture]:
        """Their last books; those that ended first."""
        return [*self.last.ended, *self.last.captures]

    @property
    def words(self) -> str:
        """When and where, and how often the books closed."""
        known = [one.closed for each in self.intervals for one in each.captures]
        closed, counted = known.count(True), len(known) - known.count(None)
        return (
            f"{self.host}, {clock(self.began_ns)} to {clock(self.last.real_ns)} UTC "
            f"({plural(len(self.intervals), 'interval')}); the books closed in {closed:,} of "
            f"{counted:,} that can say it"
        )

    def books(self) -> Table:
        title = "Books of each program on each port, since it was first seen"
        return table_of("watched-books", title, BOOKS, self.captures,
                        mark=lambda one: "loss" if one.dropped_packets else "")  # fmt: skip

    def places(self) -> Table:
        worst_first = sorted(self.last.places, key=lambda one: -one.total)
        title = "Places that lost something"
        return table_of("watched-places", title, PLACES, worst_first, mark=lambda _: "loss")

    def chart(self) -> Chart:
        return time_chart([Timeline(tuple(self._panels()), ())], "Over time")

    def _panels(self) -> Iterator[Panel]:
        came: dict[str, list[tuple[float, float]]] = {}
        waits: dict[str, list[tuple[float, float]]] = {}
        lost: dict[str, list[tuple[float, float]]] = {}
        before: dict[str, int] = {}
        for each in self.intervals:
            at = (each.real_ns - self.began_ns) / 1e9
            for one in each.captures:
                name = capture_name(one)
                if one.offered_packets is not None:
                    now = one.offered_packets[1]
                    if name in before and each.interval_s:
                        rate = max(0, now - before[name]) / each.interval_s
                        came.setdefault(name, []).append((at, rate))
                    before[name] = now
                if one.waiting_packets is not None:
                    waits.setdefault(name, []).append((at, float(one.waiting_packets[1])))
            for place in each.places:
                lost.setdefault(place_name(place), []).append((at, place.rate_pps))
        for title, unit, found in (
            ("Came to the port", "packets/s", came),
            ("Lost", "packets/s", lost),
            ("Waits in the rings", "packets", waits),
        ):
            named = sorted(found.items(), key=lambda item: -max(v for _, v in item[1]))
            series = tuple(
                Series(escape.plain(name), tuple(_thinned(points)), style)
                for style, (name, points) in enumerate(named[:MOST_SERIES])
                if len(points) > 1
            )
            if series:
                yield Panel(title, unit, series)


@once
def watched(story: Story) -> tuple[Watched, ...]:
    found = []
    for source in story.sources:
        intervals, unread = _read(source)
        if intervals:
            name = value_in(source.run.manifest, "host", "hostname")
            found.append(
                Watched(
                    source=source.name,
                    host=escape.plain(name or "a host"),
                    intervals=intervals,
                    unread=unread,
                )
            )
    return tuple(found)


def _read(source: Source) -> tuple[Sequence[WatchedInterval], int]:
    found, unread = [], 0
    for line in source.run.watched():
        try:
            found.append(WatchedInterval.model_validate_json(line))
        except ValidationError:
            unread += 1
    return found, unread


def watched_tables(story: Story) -> Iterator[Table]:
    for one in watched(story):
        yield one.books()
        if one.last.places:
            yield one.places()


MOST_ROWS = 8


def watched_cards(story: Story) -> Iterator[VerdictCard]:
    """A card for each watch, the largest loss first; the sentences have every place."""
    for one in watched(story):
        places = sorted(one.last.places, key=lambda place: -place.total)
        headline = f"Nothing was lost in {numbers.seconds(one.seconds)} s."
        if places:
            first = places[0]
            lost = f"{numbers.count(first.total)} {_unit(first)} lost"
            headline = f"{lost}: {escape.plain(first.place)}"
        yield VerdictCard(
            kicker=f"Seen on {one.host}, {clock(one.began_ns)} to {clock(one.last.real_ns)} UTC",
            headline=headline,
            tally=f"{len(places)} places lost something." if len(places) > 1 else "",
            rows=tuple(_place_row(one, place) for place in places[:MOST_ROWS]),
            to_do=next((escape.plain(p.do, longest=400) for p in places if p.do), ""),
        )


def _place_row(one: Watched, place: WatchedPlace) -> VerdictRow:
    return VerdictRow(
        kind="different",
        sign="▼",
        name=escape.plain(f"{place.place}, {place.where}"),
        words=escape.plain(f"{_lost_words(one, place)}: {place.why}", longest=400),
        seen=f"At most {_worst_words(place)}.",
    )


def watched_sentences(story: Story) -> Iterator[Sentence]:
    """The answer: what was lost where and why, the largest loss first; or that nothing was."""
    for one in watched(story):
        places = sorted(one.last.places, key=lambda place: -place.total)
        for place in places:
            yield _place_sentence(one, place)
        if not places:
            yield Sentence(
                "watched-nothing",
                f"Nothing was lost at any place that is visible on {one.host} in "
                f"{numbers.seconds(one.seconds)} s.",
                {"seconds": one.seconds, "captures": len(one.captures)},
            )


def _place_sentence(one: Watched, place: WatchedPlace) -> Sentence:
    subject = f"{place.place}, {place.where}"
    return Sentence(
        "watched-loss",
        escape.plain(
            f"{subject}: {_lost_words(one, place)}, at most {_worst_words(place)}: {place.why}.",
            longest=1000,
        ),
        place.model_dump(),
        subject=escape.plain(subject),
        to_do=f"`{escape.plain(place.do, longest=400)}`" if place.do else "",
    )


def _unit(place: WatchedPlace) -> str:
    return "times" if place.place == ANALYSIS else "packets"


def _lost_words(one: Watched, place: WatchedPlace) -> str:
    share, unit = "", _unit(place)
    came = sum(
        capture.arrived_packets[1]
        for capture in one.captures
        if capture.arrived_packets and place.where == capture_name(capture)
    )
    if came and unit == "packets":
        share = f" of {numbers.count(came)} ({numbers.percent(place.total / came)} %)"
    bursts = plural(place.bursts, "burst")
    return f"{numbers.count(place.total)} {unit}{share} lost in {bursts}"


def _worst_words(place: WatchedPlace) -> str:
    rate = f"{numbers.count(place.worst_pps)} {_unit(place)}/s"
    return f"{rate} at {clock(place.worst_real_ns)} UTC"


def watched_hidden(story: Story) -> Iterator[Sentence]:
    for one in watched(story):
        if one.unread:
            yield Sentence(
                "watched-hidden",
                f"{plural(one.unread, 'line')} of drops.jsonl cannot be read",
                {"lines": one.unread},
            )
        for hidden in one.last.not_visible:
            yield Sentence(
                "watched-hidden",
                escape.plain(
                    f"not visible: {hidden.what} (needs {hidden.needs}; {hidden.why})", longest=400
                ),
                hidden.model_dump(),
            )


def watched_words(story: Story) -> Iterator[Sentence]:
    for one in watched(story):
        yield Sentence("watched", one.words, {"intervals": len(one.intervals)})


def between(pair: Pair) -> Value:
    """One number where both readings agree; the csv has the upper one."""
    if pair is None:
        return scaled(None, numbers.count)
    low, high = map(numbers.count, pair)
    return Value(pair[1], high if low == high else f"{low} to {high}")


def _closed(one: WatchedCapture) -> str:
    known = {None: "cannot say", True: "yes", False: "no"}[one.closed]
    return "at least" if one.at_least else known


def _pair(name: str, title: str, help: str = "") -> Field[WatchedCapture]:
    return Field(numeric(name, title, help), lambda one: between(getattr(one, name)))


BOOKS: tuple[Field[WatchedCapture], ...] = (
    words("program", "Program", lambda one: _program(one, "")),
    words("port", "Port", lambda one: one.port),
    _pair("offered_packets", "Came to the port"),
    _pair("merged_packets", "Merged"),
    _pair("arrived_packets", "Arrived"),
    number("dropped_packets", "Dropped", lambda one: one.dropped_packets),
    _pair("waiting_packets", "Wait"),
    _pair("read_packets", "Read"),
    _pair("residual_packets", "Residual", "Between the two readings around each counter."),
    words("closed", "Closed", _closed),
)
PLACES: tuple[Field[WatchedPlace], ...] = (
    words("place", "Place", lambda one: one.place),
    words("where", "Where", lambda one: one.where),
    number("lost", "Lost", lambda one: one.total),
    number("worst_pps", "Worst, 1/s", lambda one: one.worst_pps),
    words("first_utc", "From", lambda one: clock(one.first_real_ns)),
    words("last_utc", "To", lambda one: clock(one.last_real_ns)),
    number("bursts", "Bursts", lambda one: one.bursts),
    words("counter", "Counter", lambda one: one.counter),
    words("why", "Why, at the last", lambda one: one.why),
    words("do", "What changes it", lambda one: one.do),
)


def _program(one: WatchedCapture, unseen: str) -> str:
    pid = unseen if one.pid is None else str(one.pid)
    return f"{one.program or 'a program'} {pid}".rstrip()


def capture_name(one: WatchedCapture) -> str:
    """The name that places give it (drops/places.py)."""
    return f"{_program(one, '(not visible)')} on {one.port}"


def place_name(one: WatchedPlace) -> str:
    return f"{one.place}, {one.where}"


def clock(real_ns: int | None) -> str:
    if real_ns is None:
        return numbers.NOT_MEASURED
    return datetime.fromtimestamp(real_ns / 1e9, UTC).strftime("%H:%M:%S")


def _thinned(points: Sequence[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """The largest value of intervals that are drawn as one: no burst is lost."""
    together = max(1, -(-len(points) // MOST_POINTS))
    for start in range(0, len(points), together):
        part = points[start : start + together]
        yield part[-1][0], max(value for _, value in part)


def _pictures(story: Story) -> Iterator[Picture]:
    for one in watched(story):
        end = f"-{one.source}" if story.several else ""
        yield Picture(f"watched{end}", one.chart(), one.places())


def _page(story: Story) -> Markup:
    found = watched(story)
    if not found:
        return Markup("")
    return rendered("nodrop.report", "watched.html.j2", story, watched=found)


SECTION = Section(
    id="watched", title="Seen by nodrop drops", tables=watched_tables, pictures=_pictures,
    page=_page, place=60, with_search=False,
)  # fmt: skip
