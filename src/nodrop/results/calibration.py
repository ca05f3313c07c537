"""Certificates of a host: the answers of `nodrop calibrate`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from nodrop.ledger.quantities import Count, NotNegative, Packets
from nodrop.results.model import Model
from nodrop.untrusted.folder import Folder


class Key(Model):
    """The host, kernel, lab, setup and node binary that a certificate is valid for. It says nothing
    if any of them differs."""

    host: str
    """sha256 of machine-id, CPU model and number of CPUs: the same after a reboot."""
    kernel: str
    """Release of the kernel."""
    lab_sha256: str
    """sha256 of what the lab file says, comments left out."""
    setup: str
    node_sha256: str

    def other(self, wanted: Key) -> list[str]:
        """Differences from what is wanted, in words."""
        words = {
            "host": "another host",
            "kernel": f"another kernel ({self.kernel})",
            "lab_sha256": "another lab file",
            "setup": f"setup {self.setup}",
            "node_sha256": "another node binary",
        }
        return [
            said for name, said in words.items() if getattr(self, name) != getattr(wanted, name)
        ]


class KnownAnswer(Model):
    name: str
    put_in: str
    answer: Literal["caught", "missed", "not possible here"]
    seen: str
    """The answer that nodrop gave."""
    why: str = ""
    """The answer that should have come and did not, or the reason why it could not be tried."""
    took_s: NotNegative
    trials: list[dict[str, Any]] = Field(default_factory=list)
    """Lines as in trials.jsonl."""
    run_directory: str | None = None
    """Run directory, kept if the answer was missed, and with --keep."""


class SmallestLoss(Model):
    """The smallest loss that was named to the packet, at the right place."""

    packets: Packets
    of_packets: Packets


class Pace(Model):
    """Rates that one sender offered to the lab's own link, for half a second each."""

    largest_pps: NotNegative | None
    """The largest rate that left within the bounds of measure.*, as all smaller ones did; null if
    not even the smallest did."""
    tried_pps: list[float]


class Spread(Model):
    """A/A: two cells that differ in nothing."""

    verdicts: dict[str, str]
    """Figure → what the comparison says of the two."""
    loss_ratio: tuple[float, float] | None
    """Smallest and largest of all runs."""
    sut_cpu_s: tuple[float, float] | None
    runs: Count


class Clock(Model):
    host: str
    offset_ns: int
    bound_ns: Count
    """Half of the best round trip: the offset is not further off than this."""


class Certificate(Model):
    format: Literal[1] = 1
    nodrop: str
    """Version of nodrop."""
    made_utc: str
    took_s: NotNegative
    key: Key
    lab: str
    """Name of the lab in its file."""
    rootless: bool
    host: dict[str, Any]
    """Facts, as in a run's manifest."""
    known_answers: list[KnownAnswer]
    smallest_loss: SmallestLoss | None
    pace: Pace | None
    spread: Spread | None
    clocks: list[Clock]

    def named(self, answer: str) -> list[str]:
        return [known.name for known in self.known_answers if known.answer == answer]

    def to_text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_text().encode()).hexdigest()


def file_name(key: Key) -> str:
    """File name of a certificate: one per key; a newer one takes the place of the older."""
    digest = hashlib.sha256(key.model_dump_json().encode()).hexdigest()[:16]
    return f"{key.setup}-{digest}.json"


def find_certificate(folder: Path, wanted: Key) -> Certificate | str:
    """The certificate with exactly this key, or words on why it is missing."""
    there = sorted(_certificates(folder), key=lambda certificate: certificate.made_utc)
    fitting = [found for found in there if found.key == wanted]
    if fitting:
        return fitting[-1]
    alike = [found for found in there if found.key.setup == wanted.setup]
    if not alike:
        return f"run `nodrop calibrate --setup {wanted.setup}`"
    # The newest of those that differ least: what is to be said is what has changed.
    nearest = min(reversed(alike), key=lambda found: len(found.key.other(wanted)))
    return f"the certificate of {nearest.made_utc} is for " + " and ".join(
        nearest.key.other(wanted)
    )


def _certificates(folder: Path) -> Iterator[Certificate]:
    """The certificates that can be read; other files in the folder are passed over."""
    place = Folder(folder)
    for name in place.names():
        if name.endswith(".json") and place.is_file(name):
            with suppress(OSError, ValidationError, RecursionError):
                yield Certificate.model_validate_json(place.read(name))
