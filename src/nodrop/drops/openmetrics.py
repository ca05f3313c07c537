"""The last interval of a watch as OpenMetrics in a file, for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.results.watched import WatchedCapture, WatchedInterval
from nodrop.untrusted.folder import Folder


class Metrics:
    """A file that is anew with each interval, and always whole."""

    def __init__(self, path: Path) -> None:
        """BadInput if it cannot be written."""
        self._given = path
        path = path.absolute()
        self._folder, self._name = Folder(path.parent), path.name
        self._write(exposition(None))

    def add(self, interval: WatchedInterval) -> None:
        self._write(exposition(interval))

    def _write(self, text: str) -> None:
        """Not forced onto the disk: the sensor has work of its own there."""
        try:
            self._folder.write(self._name, text.encode(), durable=False)
        except OSError as error:
            raise BadInput(f"--metrics {self._given}: {error.strerror or error}") from None

    def close(self) -> None:
        """The last interval stays in the file; `nodrop_drops_end_seconds` says of when it is."""


PAIRS = ("offered", "arrived", "waiting", "waited_before", "read", "residual")
FLAGS = ("closed", "at_least", "stopped")


def exposition(interval: WatchedInterval | None) -> str:
    """Text of OpenMetrics 1.0. A value that is not visible is left out."""
    families: dict[tuple[str, str, str], dict[str, float]] = {}

    def sample(
        name: str, kind: str, value: float | None, words: str = "", **labels: object
    ) -> None:
        if value is not None:
            told = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
            suffix = "_total" if kind == "counter" else ""
            series = f"nodrop_drops_{name}{suffix}{{{told}}}".replace("{}", "")
            known = families.setdefault((name, kind, words), {})
            # Threads of one name are one series: a file that has one twice is refused as a whole.
            known[series] = max(value, known.get(series, value))

    for place in interval.places if interval else ():
        named = {"place": place.place, "where": place.where, "counter": place.counter}
        sample("lost", "counter", place.total, "Packets, or times, since the watch began.", **named)
        sample("lost_per_second", "gauge", place.rate_pps, "Within the last interval.", **named)
    for capture in interval.captures if interval else ():
        named = {
            "program": capture.program or "",
            "pid": str(capture.pid or ""),
            "port": capture.port,
        }
        _of_capture(sample, capture, named)
    if interval:
        words = "Programs that capture, by port."
        blind = (one for one in interval.blind if one.until_real_ns is None)
        programs = dict.fromkeys((one.port for one in blind if one.why == "no_program"), 0)
        programs |= Counter(one.port for one in interval.captures)
        for port, number in programs.items():
            sample("captures", "gauge", number, words, port=port)
        if not programs:
            sample("captures", "gauge", 0, words)
        at = "When the last interval ended, since 1970."
        sample("end_seconds", "gauge", interval.real_ns / 1e9, at)
        sample("interval_seconds", "gauge", interval.interval_s, "Length of the last interval.")
        sample("look_seconds", "gauge", interval.look_ns / 1e9, "How long the last look took.")
        sample("not_visible", "gauge", len(interval.not_visible), "Sources that cannot be read.")
    lines: list[str] = []
    for (name, kind, words), samples in families.items():
        lines += [f"# TYPE nodrop_drops_{name} {kind}"]
        lines += [f"# HELP nodrop_drops_{name} {words}"] if words else []
        lines += [f"{series} {value}" for series, value in samples.items()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _of_capture(sample: Any, capture: WatchedCapture, named: Mapping[str, object]) -> None:
    for name in PAIRS:
        pair = getattr(capture, f"{name}_packets")
        for bound, value in zip(("low", "high"), pair or (), strict=False):
            words = "Since the capture was first seen, between two readings."
            sample(f"{name}_packets", "gauge", value, words, **named, bound=bound)
    sample("dropped_packets", "gauge", capture.dropped_packets, "Since it was first seen.", **named)
    for name in ("oldest", "overflow"):
        value = getattr(capture, f"{name}_ms")
        sample(f"{name}_seconds", "gauge", None if value is None else value / 1e3, "", **named)
    for name in FLAGS:
        flag = getattr(capture, name)
        sample(name, "gauge", None if flag is None else int(flag), "1 = yes, 0 = no.", **named)
    if level := capture.level:
        words = "Part of the ring in use, at most: now, or since the watch began."
        sample("level_ratio", "gauge", level.ratio, words, **named, since="interval")
        sample("level_ratio", "gauge", level.highest_ratio, words, **named, since="watch")
        if forecast := level.forecast:
            words = "Forecast: multiple of the busiest traffic seen that fits into the ring."
            sample("fits_times", "gauge", forecast.times, words, **named, bound=forecast.bound)
    words = "Since the program opened its sockets, before this watch too."
    lost = capture.since_start_dropped_packets
    sample("since_start_dropped_packets", "gauge", lost, words, **named)
    for thread in capture.threads:
        for name in ("ran", "waited"):
            words = "Part of the last interval."
            value = getattr(thread, name)
            sample(f"thread_{name}_ratio", "gauge", value, words, **named, thread=thread.name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
