"""Words that the two halves of a run say to each other, on channel 0 of their frames.

The half of the user's machine commands root of the other one anyway, so its words may be objects of
ours (pickle). What comes from there is JSON, and checked.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import LabProblem
from nodrop.hosts.frames import LONGEST_BYTES, Frame, Frames
from nodrop.hosts.seam import Json
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.plan import Plan
from nodrop.untrusted import bounds
from nodrop.untrusted.json_text import NotJson, decode_object

OURS = 0
"""The channel of these words; others are the relay's."""
PART, LAST, FILE, ALIVE = "p", "l", "f", "a"
"""Kinds of frames: two for parts of one word, which may be longer than a frame; one for parts of a
file; one that says nothing, sent now and then."""
ALIVE_INTERVAL_S, LEASE_S = 5.0, 20.0
"""The half that measures ends if it hears nothing of the other for so long: the line may be cut,
and no one told it. ssh says it to the other half after 15 s."""
MOST_BYTES = 256 << 20
"""Limit on one word, or a file's part: what comes from elsewhere is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The measuring task, as it was checked on the user's machine."""

    experiment: Experiment
    lab: LabSource
    plan: Plan
    """Without its controller, which stays there."""
    heeds_void: bool
    beforehand: tuple[TrialInput, ...]
    copies: dict[str, str]
    """Input file as written → the path here."""
    images: tuple[Json, ...]
    """Copied images: the manifest of each, and `tar`, the path here."""
    image_names: dict[str, str]
    """Name of an image as written → its hash: this host may have another release that it takes by
    default."""
    earlier: Json | None
    """Manifest of a run that is gone on with, and the lines of its trials."""
    argv: list[str]
    yes: bool
    only_look: bool
    """`nodrop doctor`: nothing is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The answer to `next`, and the word that what was sent before has been taken."""

    trial: TrialInput | None
    have: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Files of a trial that was measured and did not come over whole: path → bytes and hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The user ends the run: what was begun is to be undone."""

    signal: int


Order = Task | Next | End


def command(frames: Frames, order: Order) -> None:
    _say(frames, pickle.dumps(order))


def say(frames: Frames, word: Json) -> None:
    _say(frames, json.dumps(word, ensure_ascii=False, default=str).encode())


def say_file(frames: Frames, word: Json, file: IO[bytes]) -> None:
    """A word, then the bytes of a file from where it stands, as many as the word says."""
    say(frames, word)
    left = int(word["size"]) - int(word["begun"])
    while left > 0 and (part := file.read(min(left, LONGEST_BYTES))):
        frames.send(OURS, FILE, part)
        left -= len(part)
    if left:
        raise LabProblem(f"{word['path']}: it became shorter while it was read")


def _say(frames: Frames, content: bytes) -> None:
    whole = max(0, len(content) - 1) // LONGEST_BYTES * LONGEST_BYTES
    frames.stream(OURS, PART, content[:whole])
    frames.send(OURS, LAST, content[whole:])


class Heard:
    """Puts words together again."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def word(self, frame: Frame) -> bytes | None:
        """None if it goes on."""
        self._parts += frame.payload
        if len(self._parts) > bounds.raised(MOST_BYTES):
            raise NotJson(f"a word of more than {bounds.said(MOST_BYTES)}")
        if frame.kind != LAST:
            return None
        content, self._parts = bytes(self._parts), bytearray()
        return content


def order_of(content: bytes) -> Any:
    """Only where this machine is commanded by who sent it."""
    return pickle.loads(content)


def word_of(content: bytes) -> Json:
    return decode_object(content, most_bytes=bounds.raised(MOST_BYTES))
