"""A watch as a run directory without a sender, of days if need be: where its file has too many
intervals, they are joined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from nodrop.results.layout import DROPS
from nodrop.results.watched import WatchedCapture, WatchedInterval, WatchedPlace
from nodrop.results.writer import RunWriter
from nodrop.untrusted.folder import Folder

MOST_BYTES = 16 << 20
"""Size of drops.jsonl at which its intervals are joined in pairs."""
MOST_NOTES = 40
"""Notes of an interval that was joined of several: the first ones."""


class RecordedWatch:
    """A run directory that `nodrop report` makes a page of. To be closed."""

    def __init__(
        self,
        path: Path,
        *,
        host: Mapping[str, Any],
        command: Sequence[str],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._writer = RunWriter.create_at(
            path,
            "drops",
            experiment="",
            manifest={
                "question": f"Where does {host.get('hostname', 'this sensor')} lose packets?",
                "host": dict(host),
                "command": [*command],
            },
        )
        self._folder, self._most_bytes = Folder(path), most_bytes
        self._file = self._folder.changing(DROPS, append=True)
        self._bytes = 0
        self._together = 1
        """Intervals that are joined before they are written."""
        self._count = 0
        self._waiting: list[WatchedInterval] = []

    def add(self, interval: WatchedInterval) -> None:
        """Not forced onto the disk each time: the sensor has work of its own there."""
        self._waiting = [joined([*self._waiting, interval])]
        self._count += 1
        if self._count >= self._together:
            self._flush()
        if self._bytes > self._most_bytes:
            self._halve()

    def _flush(self) -> None:
        for one in self._waiting:
            line = one.model_dump_json().encode() + b"\n"
            self._file.write(line)
            self._bytes += len(line)
        self._waiting, self._count = [], 0

    def _halve(self) -> None:
        """Two intervals of the file become one. The old file stays until the new one is whole."""
        self._file.close()
        lines = (line for line in self._folder.lines(DROPS) if line.endswith(b"\n"))
        self._bytes = 0
        with self._folder.writing(DROPS, durable=False) as file:
            for pair in _pairs(map(WatchedInterval.model_validate_json, lines)):
                line = joined(pair).model_dump_json().encode() + b"\n"
                file.write(line)
                self._bytes += len(line)
        self._file = self._folder.changing(DROPS, append=True)
        self._together *= 2

    def close(self) -> None:
        self._flush()
        with suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()
        self._writer.update_manifest(
            {"finished_utc": datetime.now(UTC).isoformat(timespec="seconds")}
        )
        self._writer.close()


def _pairs(intervals: Iterable[WatchedInterval]) -> Iterator[Sequence[WatchedInterval]]:
    each = iter(intervals)
    while pair := list(islice(each, 2)):
        yield pair


def joined(intervals: Sequence[WatchedInterval]) -> WatchedInterval:
    """Intervals in a row as one. Accounts count since the watch began: the last ones hold. Of
    levels and rates the highest holds, so that no burst is lost."""
    if len(intervals) == 1:
        return intervals[0]
    last = intervals[-1]
    captures: dict[object, list[WatchedCapture]] = {}
    rates: dict[object, list[float]] = {}
    for each in intervals:
        for capture in each.captures:
            captures.setdefault(_name(capture), []).append(capture)
        for place in each.places:
            rates.setdefault(_at(place), []).append(place.rate_pps)
    not_for_us = [each.not_for_us_packets for each in intervals]
    return last.model_copy(
        update={
            "interval_s": sum(each.interval_s for each in intervals),
            "captures": [_joined(captures[_name(one)], one) for one in last.captures],
            "places": [
                place.model_copy(update={"rate_pps": max(rates[_at(place)])})
                for place in last.places
            ],
            "not_for_us_packets": None
            if None in not_for_us
            else sum(number or 0 for number in not_for_us),
            "notes": [note for each in intervals for note in each.notes][:MOST_NOTES],
            "look_ns": max(each.look_ns for each in intervals),
        }
    )


def _joined(each: Sequence[WatchedCapture], last: WatchedCapture) -> WatchedCapture:
    level, dropped = last.level, last.dropped_now_packets
    if level is not None:
        peak = max((capture.level for capture in each if capture.level), key=lambda one: one.ratio)
        level = level.model_copy(update={"ratio": peak.ratio, "real_ns": peak.real_ns})
    if dropped is not None:
        dropped = sum(capture.dropped_now_packets or 0 for capture in each)
    return last.model_copy(update={"level": level, "dropped_now_packets": dropped})


def _name(capture: WatchedCapture) -> tuple[object, ...]:
    return (capture.program, capture.pid, capture.port, capture.namespace)


def _at(place: WatchedPlace) -> tuple[str, str, str]:
    return (place.place, place.where, place.counter)
