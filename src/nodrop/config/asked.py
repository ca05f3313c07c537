"""A question asked on the command line, as the table of the experiment file that asks it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from nodrop.config.matrix import NAMED, VARIED_MEASURES, VARIED_TABLES, Matrix, flatten
from nodrop.config.options import parse_setting, setting_text
from nodrop.config.replay import MADE_TRACE
from nodrop.config.units import NOTHING, time_s
from nodrop.errors import BadInput

LONGEST_NAME = 48
ROUNDS = 12
"""Rounds of a search with each knob, from which two of them can be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSensor:
    """The user's own: configuration, program and threads. None = as the SUT has it."""

    config: str | None = None
    binary: str | None = None
    image: str | None = None
    threads: str | None = None

    def table(self, folder: Path) -> dict[str, Any]:
        """Keys of [sut]."""
        files = {"config": self.config, "binary": self.binary}
        paths = {key: _whole_path(file, folder) for key, file in files.items() if file is not None}
        return _given({**paths, "image": self.image, "threads": thread_count(self.threads)})

    def settings(self, folder: Path) -> list[str]:
        """Keys of [sut] in the form that `--set` takes."""
        table = self.table(folder)
        return [f"sut.{key}={json.dumps(one, ensure_ascii=False)}" for key, one in table.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The inputs that every question names."""

    trace: str
    pieces: Sequence[str] = ()
    """Further pieces of the capture whose first is `trace`: a rotation's."""
    rules: Sequence[str] = ()
    setup: str = "bare"
    sut: str = "suricata"
    sensor: UserSensor = field(default_factory=UserSensor)
    window: str | None = None

    def _table(self, folder: Path, *, command: str, question: str) -> dict[str, Any]:
        """Relative paths start in `folder`, and are absolute in the table: the file that is made of
        it is kept elsewhere."""
        rules = [_whole_path(rule, folder) for rule in self.rules]
        traces = [
            one if one.startswith(MADE_TRACE) else _whole_path(one, folder)
            for one in (self.trace, *self.pieces)
        ]
        return {
            "name": f"{command}-{_slug(self.trace)}"[:LONGEST_NAME].rstrip("-"),
            "question": question,
            "setup": {"kind": self.setup},
            "sut": {
                **_given({"kind": self.sut, "rules": rules or None}),
                **self.sensor.table(folder),
            },
            "load": _given(
                {
                    "kind": "replay",
                    "trace": traces if self.pieces else traces[0],
                    "joined": True if self.pieces else None,
                    "window": self.window,
                }
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityQuestion(_Question):
    """`nodrop capacity`: how much of a trace a SUT carries. None = as the search has it."""

    goals: Sequence[str] = ()
    goals_of_detections: Sequence[str] = ()
    budget: str | None = None
    by: str | None = None
    method: str | None = None
    soak: str | None = None
    need: str | None = None
    loop: str | None = None

    def table(self, folder: Path) -> dict[str, Any]:
        search = {
            "by": self.by,
            "goals": [goal_ratio(goal, option) for option, goal in self._goals] or None,
            "goals_of": "detections" if self.goals_of_detections else None,
            "budget_s": None if self.budget is None else time_s("--budget", self.budget),
            "soak_s": None if self.soak is None else time_s("--soak", self.soak),
            "method": self.method,
            "need": self.need,
        }
        before = "misses a detection" if self.goals_of_detections else "drops a packet"
        question = (
            f"How much of {Path(self.trace).name} does {self.sut} carry on this host before it "
            f"{before}?"
        )
        measure: dict[str, Any] = {"mode": "capacity", "sut": "standing"}
        if self.goals_of_detections:
            measure |= {"sut": "fresh", "outcome": ["alerts"]}
        if self.loop not in (None, "distinct", "same"):
            raise BadInput(f"--loop {self.loop or NOTHING}: must be distinct or same")
        asked = self._table(folder, command="capacity", question=question)
        return {
            **asked,
            "load": {**asked["load"], **_given({"loop_flows": self.loop})},
            "measure": measure,
            "search": _given(search),
        }

    @property
    def _goals(self) -> Sequence[tuple[str, str]]:
        """Options, each with a goal."""
        if self.goals and self.goals_of_detections:
            raise BadInput(
                "--goal-detections: a search counts packets or detections: leave out --goal"
            )
        each = {"--goal": self.goals, "--goal-detections": self.goals_of_detections}
        return [(option, goal) for option, goals in each.items() for goal in goals]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbQuestion(_Question):
    """`nodrop ab`: do two builds of a SUT differ?"""

    a: Sequence[str]
    b: Sequence[str]
    """Words of side B: each a binary, an image, or key=value."""
    most: int = 80
    load: Mapping[str, Any] = field(default_factory=dict)
    """Keys of [load] that say how much is sent."""

    def table(self, folder: Path) -> dict[str, Any]:
        """The experiment's table without the two cells, which may be the same."""
        question = f"Does {self.sut} B differ from A on {Path(self.trace).name}?"
        asked = self._table(folder, command="ab", question=question)
        return {
            **asked,
            "load": {**asked["load"], **self.load},
            "measure": {"repetitions": self.most},
        }

    def cells(self, folder: Path) -> Matrix:
        named = {name: _build(f"--{name}", said, folder) for name, said in self._sides()}
        return Matrix(named=named)

    @property
    def search(self) -> CapacityQuestion:
        """How much does A carry of it?"""
        inputs = {each.name: getattr(self, each.name) for each in fields(_Question)}
        return CapacityQuestion(**inputs)

    def _sides(self) -> Sequence[tuple[str, Sequence[str]]]:
        return ("a", self.a), ("b", self.b)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofQuestion(_Question):
    """`nodrop tune prove`: what does a knob do? Its cells are put in by the command."""

    most: int
    capacity: bool = False

    def table(self, folder: Path) -> dict[str, Any]:
        question = f"What do knobs of {self.sut} do on {Path(self.trace).name}?"
        asked = self._table(folder, command="prove", question=question)
        if self.capacity:
            measure: dict[str, Any] = {"mode": "capacity", "sut": "standing"}
            return {**asked, "measure": measure, "search": {"rounds": ROUNDS}}
        return {**asked, "measure": {"repetitions": self.most}}


_OPTIONS = {
    "sut.rules": "--rules",
    "load.window": "--window",
    "setup.kind": "--setup",
    "sut.kind": "--sut",
}
_TIMES = {"--budget": "search.budget_s"}
"""Options of `nodrop capacity` that are a time."""
_USUAL = {"setup.kind": "bare", "sut.kind": "suricata", "load.kind": "replay"}
SEARCHING = "measure.mode=capacity"


def changed_command(command: Sequence[str], *settings: str) -> list[str]:
    """A run's command with these settings, the settings alone without one. A setting replaces that
    of its key."""
    keys = {one.partition("=")[0] for one in settings}
    options = {option for option, key in _TIMES.items() if key in keys}
    words: list[str] = []
    for word in command:
        before = words[-1] if words else ""
        if before in options or (before == "--set" and word.partition("=")[0] in keys):
            words.pop()
        elif word != "--resume" and not word.startswith(tuple(f"{one}=" for one in options)):
            words.append(word)
    for setting in settings:
        key, _, value = setting.partition("=")
        option = next((option for option, of in _TIMES.items() if of == key), "")
        known = option and command[1:2] == ("capacity",)
        words += (option, f"{value}s") if known else ("--set", setting)
    return words


def resumed_command(command: Sequence[str], run: str | Path) -> list[str]:
    """A run's command, gone on with in its directory."""
    words: list[str] = []
    for word in command:
        if words[-1:] == ["--out"]:
            words.pop()
        elif word != "--resume" and not word.startswith("--out="):
            words.append(word)
    return [*words, "--resume", "--out", str(run)]


def search_command(
    table: Mapping[str, Any], factors: Mapping[str, Any], command: Sequence[str], budget: str
) -> list[str]:
    """The command that searches in one cell of a question, with its SUT, setup, trace and lab, and
    without its replicas, which the search finds. `table`: the experiment of the run; `command`:
    what made it. Empty if the experiment names no trace, or no load is higher."""
    load, measure = (table.get(name, {}) for name in ("load", "measure"))
    if not isinstance(load, dict) or not isinstance(measure, dict) or "trace" not in load:
        return []
    if load.get("top_speed") or factors.get("load.top_speed"):
        return []
    if command[1:2] == ("run",):
        named = table.get("matrix", {}).get("cells", {}).get(factors.get("cell"), {})
        settings = [
            f"{key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in factors.items()
            if key not in named and isinstance(value, (int, float, str))
        ]
        settings += ["search.by=pps"] if "pps" in load or "load.pps" in factors else []
        settings += ["measure.outcome=[]"] if measure.get("outcome") else []
        return changed_command(command, SEARCHING, *settings, budget)
    own = {key: value for key, value in factors.items() if key != NAMED}
    if file := _values(command, "--experiment"):  # relative paths start in its folder
        words = ["nodrop", "run", *file[-1:]]
        settings = [*_values(command, "--set"), SEARCHING]
        settings += [*(setting_text(*one) for one in own.items()), budget]
    else:
        keys = flatten({name: table.get(name, {}) for name in VARIED_TABLES}) | own
        trace = keys.pop("load.trace")
        pieces = trace if keys.pop("load.joined", False) else [trace]
        words = ["nodrop", "capacity", *map(str, pieces)]
        by = ["search.by=pps"] if "load.pps" in keys else []
        if not by:
            keys.pop("load.multiplier", None)
        keys = {key: value for key, value in keys.items() if value != _USUAL.get(key)}
        for key, option in _OPTIONS.items():
            value = keys.pop(key, [])
            for one in value if isinstance(value, list) else [value]:
                words += [option, str(one)]
        settings = [*(setting_text(*one) for one in keys.items()), *by]
    words += [word for one in _values(command, "--lab") for word in ("--lab", one)]
    return words + [word for setting in settings for word in ("--set", setting)]


def _values(command: Sequence[str], option: str) -> list[str]:
    """Values of an option, as `--option VALUE` or `--option=VALUE`."""
    after = [word for before, word in pairwise(command) if before == option]
    return after + [w.partition("=")[2] for w in command if w.startswith(f"{option}=")]


def _build(option: str, said: Sequence[str], folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in said:
        if not one.strip() or one.startswith("="):
            raise BadInput(f"{option} {one or NOTHING}: names no build")
        key = one.partition("=")[0]
        if "=" in one and (key.partition(".")[0] in VARIED_TABLES or key in VARIED_MEASURES):
            setting = parse_setting(one)
            found[setting.key] = setting.value
        elif "/" in one or (folder / one).is_file():
            path = Path(_whole_path(one, folder))
            if not path.is_file():
                raise BadInput(f"{option} {one}: no such file")
            found["sut.binary"] = str(path)
        elif "=" in one:
            raise BadInput(
                f"{option} {one}: no such key in which two builds may differ: a key of "
                f"{', '.join(VARIED_TABLES)}, or {' or '.join(VARIED_MEASURES)}"
            )
        else:
            found["sut.image"] = one
    if NAMED in found or not found:
        raise BadInput(f"{option}: names no build")
    return found


LARGE_GOAL = 0.1
"""A number without a percent sign from here on is more likely a percentage than a part."""


def goal_ratio(text: str, option: str = "--goal") -> float:
    """`0.5%` and `0.005` are both 0.005; 0 is no loss at all."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,12})?) ?(%?)", text.strip(), re.ASCII)
    ratio = float(match[1]) / (100 if match[2] else 1) if match else None
    if ratio is None or ratio >= 1:
        raise BadInput(
            f"{option} {text or NOTHING}: must be the part that may be lost, such as 0, 0.5% or "
            "0.005, and less than all"
        )
    if ratio >= LARGE_GOAL and match and not match[2]:
        raise BadInput(
            f"{option} {text}: is it a part, {100 * ratio:.6g} %, or {match[1]} %?",
            hint=f"{option} {100 * ratio:.6g}% or {option} {match[1]}%",
        )
    return ratio


def thread_count(text: str | None) -> int | str | None:
    """Number of threads, or `auto`."""
    if text is None or text.strip() == "auto":
        return text and text.strip()
    if re.fullmatch(r"[1-9]\d{0,3}", text.strip(), re.ASCII) is None:
        raise BadInput(f"--threads {text or NOTHING}: must be a number, such as 2, or auto")
    return int(text)


def _whole_path(text: str, folder: Path) -> str:
    """Symbolic links are kept: a user recognises the path in a message."""
    try:
        text.encode()
        return str((folder / Path(text).expanduser()).absolute())
    except UnicodeEncodeError:
        raise BadInput(
            f"{text}: its name is not UTF-8, so no experiment file can hold it"
        ) from None
    except RuntimeError:
        raise BadInput(f"{text}: no such user: ~ has no home to stand for") from None


def _slug(trace: str) -> str:
    """`My Trace.pcap.xz` → `my-trace`: names the run directory."""
    name = trace.removeprefix(MADE_TRACE).rpartition("/")[2].partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "trace"


def _given(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}
