"""Recorded watches (`nodrop drops --record`): books of captures, places that lost, and their time.

Nobody sent a load, so there is no trial: the books begin at the port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from markupsafe import Markup
from pydantic import ValidationError

from nodrop.answer.finding import WORDS
from nodrop.config.units import count_of
from nodrop.drops.places import unit
from nodrop.report import escape, numbers
from nodrop.report.chart import Chart
from nodrop.report.charts import time_chart
from nodrop.report.direct import VerdictCard
from nodrop.report.sections import Picture, Section, rendered
from nodrop.report.sentences import AnswerText, Sentence, sentence_of
from nodrop.report.story import Story, by_key, once
from nodrop.report.tables import Field, Table, Value, number, numeric, scaled, table_of, words
from nodrop.report.timeline import Panel, Point, TimelineSeries, TrialTimeline, series_of
from nodrop.results.watched import WatchedCapture, WatchedInterval, WatchedPlace
from nodrop.untrusted.json_text import value_in

MOST_POINTS = 240
MOST_SERIES = 5
MOST_ROWS = 8
CAME, LOST, WAITS = "Came to the port", "Lost", "Waits in the rings"
LEVEL = "Fullest ring, at most"
UNITS = {CAME: "packets/s", LOST: "packets/s", WAITS: "packets", LEVEL: "%"}
"""Panels over time, in their order."""
Pair = tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedHost:
    host: str
    intervals: Sequence[WatchedInterval]
    unread: int
    """Lines that are no interval."""
    suffix: str
    """End of the names of its files, if a report has several watches."""

    @property
    def last(self) -> WatchedInterval:
        return self.intervals[-1]

    @property
    def began_ns(self) -> int:
        return self.intervals[0].began_real_ns

    @property
    def seconds(self) -> float:
        return (self.last.real_ns - self.began_ns) / 1e9

    @property
    def captures(self) -> Sequence[WatchedCapture]:
        """Their last books; those that ended first."""
        return [*self.last.ended, *self.last.captures]

    @property
    def worst_first(self) -> Sequence[WatchedPlace]:
        return sorted(self.last.places, key=lambda place: -place.total)

    @property
    def when(self) -> str:
        return f"{self.host}, {clock(self.began_ns)} to {clock(self.last.real_ns)} UTC"

    @property
    def words(self) -> str:
        """Time and host of a watch, and how often its books closed."""
        known = [capture.closed for each in self.intervals for capture in each.captures]
        closed, counted = known.count(True), len(known) - known.count(None)
        books = f"the books closed in {closed:,} of {counted:,} that can say it"
        return f"{self.when} ({count_of(len(self.intervals), 'interval')}); {books}"

    def books(self) -> Table:
        title = "Books of each program on each port, since it was first seen"
        return table_of(f"watched-books{self.suffix}", title, BOOKS, self.captures,
                        mark=lambda one: "loss" if one.dropped_packets else "")  # fmt: skip

    def places(self) -> Table:
        name, title = f"watched-places{self.suffix}", "Places that lost something"
        return table_of(name, title, PLACES, self.worst_first, mark=lambda _: "loss")

    def chart(self) -> Chart:
        found = by_key((title, (name, point)) for title, name, point in self._points())
        lines = {title: by_key(points) for title, points in found.items()}
        panels = (Panel(title, UNITS[title], _series(lines.get(title, {}))) for title in UNITS)
        drawn = tuple(panel for panel in panels if panel.series)
        return time_chart([TrialTimeline(drawn, ())], "Over time")

    def _points(self) -> Iterator[tuple[str, str, Point]]:
        """All that is drawn: panel, series, and the point."""
        before: dict[str, int] = {}
        for each in self.intervals:
            at = (each.real_ns - self.began_ns) / 1e9
            for capture in each.captures:
                name = capture_name(capture)
                if capture.offered_packets is not None:
                    now = capture.offered_packets[1]
                    if name in before and each.interval_s:
                        yield CAME, name, (at, max(0, now - before[name]) / each.interval_s)
                    before[name] = now
                if capture.waiting_packets is not None:
                    yield WAITS, name, (at, float(capture.waiting_packets[1]))
                if capture.level is not None:
                    yield LEVEL, name, (at, 100 * capture.level.ratio)
            for place in each.places:
                yield LOST, f"{place.place}, {place.where}", (at, place.rate_pps)


@once
def watched(story: Story) -> tuple[WatchedHost, ...]:
    found = []
    for source in story.sources:
        intervals, unread = [], 0
        for line in source.run.watched():
            try:
                intervals.append(WatchedInterval.model_validate_json(line))
            except ValidationError:
                unread += 1
        host = escape.plain(value_in(source.run.manifest, "host", "hostname") or "a host")
        suffix = f"-{source.name}" if story.several else ""
        if intervals:
            found.append(WatchedHost(host=host, intervals=intervals, unread=unread, suffix=suffix))
    return tuple(found)


def _cards(story: Story) -> Iterator[VerdictCard]:
    """A card for each watch, the largest loss first; the sentences have every place."""
    for one in watched(story):
        places, rows = one.worst_first, []
        for place in places[:MOST_ROWS]:
            lost, at_most = _lost_words(one, place)
            words = escape.plain(f"{lost}: {place.cause}", longest=400)
            name = escape.plain(f"{place.place}, {place.where}")
            rows.append(("different", "▼", name, words, f"At most {at_most}."))
        headline = f"Nothing was lost in {numbers.seconds(one.seconds)} s."
        if one.last.blind:
            headline = "Nobody looked for a part of the time: what was lost then is not known."
        if any(blind.until_real_ns is None for blind in one.last.blind) or not one.captures:
            headline = "Nobody looked at the end: whether packets were lost is not known."
        if places:
            lost = f"{'At least ' if places[0].at_least else ''}{numbers.count(places[0].total)}"
            headline = f"{lost} {unit(places[0].place)} lost: {escape.plain(places[0].place)}"
        yield VerdictCard(
            kicker=f"Seen on {one.when}", headline=headline, rows=tuple(rows),
            tally=f"{len(places)} places lost something." if len(places) > 1 else "",
            to_do=next((escape.plain(p.remedy, longest=400) for p in places if p.remedy), ""),
        )  # fmt: skip


def _sentences(hosts: Sequence[WatchedHost]) -> Iterator[Sentence]:
    """Losses, the largest first, with their place and cause; or that nothing was lost."""
    for host in hosts:
        for place in host.worst_first:
            subject, (lost, at_most) = f"{place.place}, {place.where}", _lost_words(host, place)
            text = f"{subject}: {lost}, at most {at_most}: {place.cause}."
            yield Sentence(
                "watched-loss",
                escape.plain(text, longest=1000),
                place.model_dump(),
                subject=escape.plain(subject),
                to_do=f"`{escape.plain(place.remedy, longest=400)}`" if place.remedy else "",
            )
        for blind in host.last.blind:
            where, why = escape.plain(blind.port), WORDS["blind"][blind.why]
            times = f"since {clock(blind.since_real_ns)}"
            if blind.until_real_ns is not None:
                times = f"from {clock(blind.since_real_ns)} to {clock(blind.until_real_ns)}"
            text = f"{where}: blind {times} UTC: {why}."
            yield Sentence("watched-blind", text, blind.model_dump(), subject=where)
        if not host.last.places and not host.last.blind:
            evidence = {"seconds": host.seconds, "captures": len(host.captures)}
            yield sentence_of("watched-nothing", evidence, host=host.host)


def _lost_words(host: WatchedHost, place: WatchedPlace) -> tuple[str, str]:
    """Loss in all, and the highest rate."""
    share, noun = "", unit(place.place)
    theirs = (capture for capture in host.captures if place.where == capture_name(capture))
    came = sum(each.arrived_packets[1] for each in theirs if each.arrived_packets)
    if came and noun == "packets":
        share = f" of {numbers.count(came)} ({numbers.percent(place.total / came)} %)"
    number = f"{'at least ' if place.at_least else ''}{numbers.count(place.total)}"
    lost = f"{number} {noun}{share} lost in {count_of(place.bursts, 'period')}"
    worst = f"{numbers.count(place.worst_pps)} {noun}/s"
    return lost, f"{worst} at {clock(place.worst_real_ns)} UTC"


def _tables(story: Story) -> Iterator[Table]:
    for one in watched(story):
        yield one.books()
        if one.last.places:
            yield one.places()


def _answer(story: Story) -> AnswerText | None:
    """Losses of each watch, the share of its books that closed, and what it could not read."""
    if not (found := watched(story)):
        return None
    words = (Sentence("watched", one.words, {"intervals": len(one.intervals)}) for one in found)
    hidden: list[Sentence] = []
    for one in found:
        if one.unread:
            unread = f"{count_of(one.unread, 'line')} of drops.jsonl cannot be read"
            hidden.append(Sentence("watched-hidden", unread, {"lines": one.unread}))
        for what in one.last.not_visible:
            said = f"not visible: {what.what} (needs {what.needs}; {what.why})"
            plain = escape.plain(said, longest=400)
            hidden.append(Sentence("watched-hidden", plain, what.model_dump()))
    sentences = tuple(_sentences(found))
    return AnswerText(sentences=sentences, rests_on=tuple(words), cannot_say=tuple(hidden))


def between(pair: Pair) -> Value:
    """One number where both readings agree; the csv has the upper one."""
    if pair is None:
        return scaled(None, numbers.count)
    low, high = map(numbers.count, pair)
    return Value(pair[1], high if low == high else f"{low} to {high}")


def _pair(name: str, title: str, help: str = "") -> Field[WatchedCapture]:
    return Field(numeric(name, title, help), lambda one: between(getattr(one, name)))


def _level_pct(capture: WatchedCapture) -> float | None:
    return None if capture.level is None else 100 * capture.level.highest_ratio


def _fits_times(capture: WatchedCapture) -> float | None:
    """Forecast; None: withheld."""
    return capture.level.forecast.times if capture.level and capture.level.forecast else None


def _fits_bound(capture: WatchedCapture) -> str:
    if capture.level is None:
        return ""
    if capture.level.forecast is None:
        return str(WORDS["withheld"][capture.level.withheld or "not_yet"])
    return f"a forecast: {capture.level.forecast.bound.replace('_', ' ')}"


def _dropped_before(capture: WatchedCapture) -> int | None:
    """Since the program opened its sockets, and until the watch began."""
    if capture.since_start_dropped_packets is None or capture.dropped_packets is None:
        return None
    return max(0, capture.since_start_dropped_packets - capture.dropped_packets)


CLOSED = {None: "cannot say", True: "yes", False: "no"}
BOOKS: tuple[Field[WatchedCapture], ...] = (
    words("program", "Program", lambda one: _program(one, "")),
    words("port", "Port", lambda one: one.port),
    _pair("offered_packets", "Came to the port"),
    _pair("merged_packets", "Merged"),
    _pair("arrived_packets", "Arrived"),
    number("dropped_packets", "Dropped", lambda one: one.dropped_packets),
    _pair("waited_before_packets", "Waited before"),
    _pair("waiting_packets", "Wait"),
    _pair("read_packets", "Read"),
    _pair("residual_packets", "Residual", "Between the two readings around each counter."),
    number("highest_level_pct", "Highest level, %", lambda one: _level_pct(one)),
    number("fits_times", "Fits, times", lambda one: _fits_times(one)),
    words("fits_bound", "That is", lambda one: _fits_bound(one)),
    number("before_watch_dropped", "Dropped before", lambda one: _dropped_before(one)),
    words("closed", "Closed", lambda one: "at least" if one.at_least else CLOSED[one.closed]),
)
PLACES: tuple[Field[WatchedPlace], ...] = (
    words("place", "Place", lambda one: one.place),
    words("where", "Where", lambda one: one.where),
    number("lost", "Lost", lambda one: one.total),
    number("worst_pps", "Worst, 1/s", lambda one: one.worst_pps),
    words("first_utc", "From", lambda one: clock(one.first_real_ns)),
    words("last_utc", "To", lambda one: clock(one.last_real_ns)),
    number("bursts", "Periods", lambda one: one.bursts),
    words("counter", "Counter", lambda one: one.counter),
    words("why", "Why", lambda one: one.cause),
    words("do", "What changes it", lambda one: one.remedy),
)


def _program(capture: WatchedCapture, unseen: str) -> str:
    pid = unseen if capture.pid is None else str(capture.pid)
    return f"{capture.program or 'a program'} {pid}".rstrip()


def capture_name(capture: WatchedCapture) -> str:
    """The name that places give it (drops/places.py)."""
    return f"{_program(capture, '(not visible)')} on {capture.port}"


def clock(real_ns: int | None) -> str:
    if real_ns is None:
        return numbers.NOT_MEASURED
    return datetime.fromtimestamp(real_ns / 1e9, UTC).strftime("%H:%M:%S")


def _series(named: Mapping[str, Sequence[Point]]) -> tuple[TimelineSeries, ...]:
    """Lines by how high they rise, the highest first."""
    highest = sorted(named.items(), key=lambda item: -max(value for _, value in item[1]))
    shown = ((escape.plain(name), tuple(_thinned(points))) for name, points in highest)
    return series_of(dict(islice(shown, MOST_SERIES)))


def _thinned(points: Sequence[Point]) -> Iterable[Point]:
    """The largest value of intervals that are drawn as one: no burst is lost."""
    together = max(1, -(-len(points) // MOST_POINTS))
    for start in range(0, len(points), together):
        part = points[start : start + together]
        yield part[-1][0], max(value for _, value in part)


def _page(story: Story) -> Markup:
    if not (found := watched(story)):
        return Markup("")
    return rendered("nodrop.drops", "watched.html.j2", story, watched=found)


SECTION = Section(
    id="watched", title="Seen by nodrop drops", tables=_tables, page=_page, place=60,
    with_search=False, cards=_cards, answer=_answer, pictures=lambda story: [
        Picture(f"watched{one.suffix}", one.chart(), one.places()) for one in watched(story)
    ],
)  # fmt: skip
