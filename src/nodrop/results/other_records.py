"""Records that are no trial: of `tune prove`, `drops` and `calibrate`.

schema/*.json is made from these models. `None` means not measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from nodrop.errors import BadInput
from nodrop.ledger.quantities import Count, NotNegative, Packets, Signed
from nodrop.results.records import Model
from nodrop.results.rundir import RunDir, read_manifest
from nodrop.untrusted.folder import Folder, read_file

# The answer of `nodrop tune prove --json`, and proved.json in the run directory.

NAME = "proved.json"


class Effect(Model):
    """A knob's effect on one metric, against the trials without it."""

    knob: str
    """`rps=1`; of several together `ring-size=20000 + mpm=hs`."""
    setting: str = ""
    """Key and value of an experiment: `sut.ring_size=20000`; empty of several together."""
    metric: str
    unit: str
    state: Literal["helps", "makes it worse", "does not", "cannot tell yet"]
    without: float | None
    """Median of the trials without it."""
    by: float | None
    """Median with it, less that without."""
    interval: tuple[float, float] | None
    """Interval of `by`; null with too few trials."""
    relative: tuple[float, float] | None
    """The interval as a share of the median without; null if that is 0."""
    trials: tuple[Count, Count]
    """Trials without and with it; void ones do not count."""
    void: Count
    """Trials with it whose books did not close."""
    words: str


class Together(Model):
    """Knobs that help, at once: do their effects add up?"""

    effect: Effect
    sum: tuple[float, float] | None
    """Interval of the sum of their effects, each alone."""
    beyond: tuple[float, float] | None
    """Interval of what they do together beyond that sum; without 0 in it, they interact."""


class Proved(Model):
    format: Literal[1] = 1
    effects: list[Effect]
    together: Together | None
    notes: list[str]
    exit_code: Count


def states(run: RunDir) -> Mapping[str, str]:
    """Setting → what proofs beside this run say of it, the newest first: of the same trace, on the
    same host, with the same SUT."""
    found: dict[str, str] = {}
    of_run = _measured(run.manifest)
    for file in sorted(run.path.absolute().parent.glob(f"prove-*/{NAME}"), reverse=True):
        with suppress(BadInput, OSError, ValueError):
            if _measured(read_manifest(file.parent)) == of_run:
                for effect in Proved.model_validate_json(read_file(file)).effects:
                    state = "does not" if effect.state == "makes it worse" else effect.state
                    found.setdefault(effect.setting, state)
    return found


def _measured(manifest: Mapping[str, Any]) -> tuple[Any, ...]:
    """Traces, SUTs and host of a run."""
    tables = ([*(manifest.get(many) or ()), manifest.get(one)]
              for many, one in (("loads", "load"), ("suts", "sut")))  # fmt: skip
    loads, suts = ([one for one in table if isinstance(one, dict)] for table in tables)
    host = manifest.get("host")
    return (
        sorted({str(load.get("trace_sha256")) for load in loads}),
        sorted({str(sut.get("name")) for sut in suts}),
        host.get("hostname") if isinstance(host, dict) else None,
    )


# An interval of `nodrop drops`: a line of its `--json`, and of drops.jsonl in a run directory that
# `nodrop drops --record` wrote.


class ThreadShare(Model):
    name: str
    ran: NotNegative
    """Part of the interval."""
    waited: NotNegative
    """Part of the interval in which it was ready, and its CPU had other work."""
    state: str
    """Letter in /proc: R, S, D, T …"""
    cpu: Count


class WatchedForecast(Model):
    """Multiples of the busiest traffic seen that fit before a ring overflows: a forecast, by the
    cost of the packets that waited (ledger/headroom.py)."""

    times: NotNegative
    bound: Literal["about", "at_least", "at_most"]
    """`at_least`: too few packets waited to tell their cost. `at_most`: the ring was fuller between
    two spells of looks than in any spell."""
    slots: Count
    """Packets that the ring holds."""
    larger_slots: Count
    larger_times: NotNegative | None
    """Multiple that fits into a ring of `larger_slots`; null: not known."""
    spells: Count
    """Spells of 250 looks a second that say it."""
    busiest_real_ns: Count
    """Begin of the busiest spell."""


Withheld = Literal["no_queue", "not_reproduced", "too_far", "lost"] | None


class WatchedLevel(Model):
    """Part of a capture's ring that was in use, of frames or blocks; of several rings the
    fullest."""

    ratio: NotNegative
    """Highest within the interval."""
    real_ns: Count
    highest_ratio: NotNegative
    """Highest since the watch began."""
    highest_real_ns: Count
    forecast: WatchedForecast | None
    withheld: Withheld
    """Reason for no forecast; lost: packets were, and the spells do not show why; null: there is
    one, or no spell has ended yet."""


class WatchedCapture(Model):
    """The books of one program on one port, since it was first seen; [low, high] = between two
    readings, null = not visible."""

    program: str | None
    pid: Count | None
    port: str
    namespace: Count
    """A number that stands for its network namespace (the inode of /proc/PID/net/packet)."""
    offered_packets: tuple[Signed, Signed] | None
    """Packets received by the port."""
    merged_packets: tuple[Signed, Signed]
    """Packets taken out by reassembly, ahead of the sockets."""
    arrived_packets: tuple[Signed, Signed] | None
    """Packets that came to its sockets, those included that were dropped."""
    dropped_packets: Packets | None
    dropped_now_packets: Packets | None
    """Packets dropped within this interval."""
    waiting_packets: tuple[Signed, Signed] | None
    """Packets in the capture's rings."""
    waited_before_packets: tuple[Signed, Signed] | None = None
    """Packets in its rings when the books began; they are not among those that arrived."""
    read_packets: tuple[Signed, Signed] | None
    residual_packets: tuple[Signed, Signed] | None
    closed: bool | None
    """Whether the residual holds 0; null: not visible, or its bounds lie too far apart to say."""
    at_least: bool
    """Arrived and dropped may be more: the program reads the counters, and does not say them."""
    oldest_ms: Count | None
    """Age of the oldest packet that waits."""
    overflow_ms: Count | None
    """Time until the first ring is full, if its reader stays away; null: no ring fills up."""
    stopped: bool | None
    """The program was stopped by SIGSTOP, a debugger or a frozen control group."""
    decoded_packets: Packets | None
    """Suricata's decoder.pkts, renewed every few seconds."""
    level: WatchedLevel | None = None
    """Null: it has no ring, or its ring is not visible."""
    since_start_arrived_packets: tuple[Signed, Signed] | None = None
    """Packets that came to its sockets since it opened them, dropped ones included; a lower bound
    if the program reads their counters itself."""
    since_start_dropped_packets: Packets | None = None
    ended_real_ns: Count | None = None
    """The first look that missed the program; null: it was there, and in older records."""
    unsaid_offered_packets: tuple[Signed, Signed] | None = None
    """Packets received by the port after these books and until the program was last seen: it ended,
    and did not say what became of them."""
    unsaid_dropped_packets: Packets = 0
    """Packets of those that were seen to be dropped, at the least."""
    threads: list[ThreadShare]


class WatchedPlace(Model):
    """A place that has lost something since the watch began."""

    place: str
    where: str
    counter: str
    rate_pps: NotNegative
    """Rate within this interval."""
    total: Packets
    at_least: bool = False
    """More may have died there: a program reads its counters itself, or ended with them."""
    worst_pps: NotNegative
    worst_real_ns: Count
    first_real_ns: Count | None
    last_real_ns: Count | None
    bursts: Count
    """Intervals with loss that followed one without."""
    why: str
    """Reason of the last loss."""
    do: str
    """The command that changes it, or words."""
    most_why: str = ""
    """The cause under which most of `total` was lost, at its worst; empty: not known."""
    most_do: str = ""

    @property
    def cause(self) -> str:
        return self.most_why or self.why

    @property
    def remedy(self) -> str:
        return self.most_do or self.do


class Hidden(Model):
    what: str
    needs: str
    """The right or counter that would show it."""
    why: str


Blind = Literal[
    "no_program",
    "down",
    "no_carrier",
    "stopped",
    "ring_not_visible",
    "counters_read",
    "frames_cut",
]


class BlindPort(Model):
    """A port that was blind in a part of the watch."""

    port: str
    why: Blind
    since_real_ns: Count
    until_real_ns: Count | None = None
    """Null: it still is."""


class WatchedInterval(Model):
    format: Literal[1] = 1
    real_ns: Count
    """End of the interval, by the clock of the host."""
    interval_s: NotNegative
    captures: list[WatchedCapture]
    ended: list[WatchedCapture]
    """Captures that ended since the watch began: their last books before they fell silent."""
    places: list[WatchedPlace]
    """The worst now first."""
    not_for_us_packets: Packets | None
    """rx_dropped of the ports within the interval, which is no loss."""
    notes: list[str]
    blind: list[BlindPort]
    not_visible: list[Hidden]
    look_ns: Count
    """How long the look took."""

    @property
    def began_real_ns(self) -> int:
        return self.real_ns - round(self.interval_s * 1e9)


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
