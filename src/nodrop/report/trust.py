"""Why a reader may believe the run, and what to hold against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodrop.report import escape, numbers
from nodrop.report.calibrated import calibration_words
from nodrop.report.other_programs import other_programs
from nodrop.report.story import Source, Story, Trial
from nodrop.results.findings import find
from nodrop.results.observations import observations_of

COLD_START = 2.0
"""A first trial that took so many times the median activation found the caches cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    good: bool
    words: str
    trials: tuple[Trial, ...] = ()


INVALID_WORDS = {
    "residual": "some packets are in no class",
    "not_read": "a counter could not be read",
    "sender_late": "the sender was late",
    "sender_short": "fewer packets were sent than asked for",
    "nothing_sent": "nothing was sent",
    "received_more_than_sent": "more packets were received than sent",
    "sut_not_ready": "the SUT did not get ready in time",
    "sut_died": "the SUT died",
    "load_failed": "the generator broke down",
    "counters_moved_after_drain": "counters moved after the drain",
    "not_drained": "counters did not come to rest",
    "other_bits": "what ran is not what the run says it measures",
    "no_rules": "rules were named, and none or not all of them loaded",
    "other_files": "the rules that ran are not those that the run began with",
    "lab_problem": "the lab, or the place of the SUT, broke down",
    "no_books": "there was nothing to balance",
}


def findings(story: Story) -> list[Finding]:
    """The bad ones first."""
    found = [
        *_invalid(story),
        *_rules(story),
        *_calibration(story),
        *_books(story),
        *_sender(story),
        *_foreign(story),
        *_other_programs(story),
        *_cold(story),
        *_warmed(story),
    ]
    return sorted(found, key=lambda f: f.good)


def _invalid(story: Story) -> Iterator[Finding]:
    codes: dict[str, list[Trial]] = {}
    for trial in story.trials:
        for code in trial.record.invalid_reasons:
            codes.setdefault(code, []).append(trial)
    for code, trials in sorted(codes.items()):
        words = INVALID_WORDS.get(code, escape.plain(code))
        yield Finding(good=False, words=f"{words} ({escape.plain(code)})", trials=tuple(trials))


def _rules(story: Story) -> Iterator[Finding]:
    """What the rules shared with imported data say; an imported run brings its own, with more."""
    for number, source in enumerate(story.sources):
        if source.run.beside("findings") is not None:
            continue
        records = [t.record for t in story.trials if t.source == number]
        for finding in find(observations_of(records)):
            words = f"{finding.title} ({finding.code}): {finding.evidence}. {finding.effect}"
            yield Finding(good=False, words=escape.plain(words, longest=2000))


def _calibration(story: Story) -> Iterator[Finding]:
    told = [said for source in story.sources for said in calibration_words(source)]
    for good, words in dict.fromkeys(told):
        yield Finding(good=good, words=words)


def _books(story: Story) -> Iterator[Finding]:
    contradicting = tuple(
        t
        for t in story.trials
        if t.ledger
        and t.record.books_closed is not None
        and t.ledger.closed != t.record.books_closed
    )
    if contradicting:
        words = "the record says otherwise than its books, which were balanced again here"
        yield Finding(good=False, words=words, trials=contradicting)
    closed = sum(1 for t in story.trials if t.ledger and t.ledger.closed)
    if closed:
        words = (
            f"the books of {closed} of {len(story.trials)} trials were balanced again: residual 0"
        )
        yield Finding(good=True, words=words)


def _sender(story: Story) -> Iterator[Finding]:
    late = [t.record.schedule_error_us for t in story.trials if t.record.valid]
    worst = max((e.p99 for e in late if e), default=None)
    if worst is not None:
        said = f"{numbers.micros(worst)} µs"
        words = f"in valid trials the sender's p99 schedule error was at most {said}"
        yield Finding(good=True, words=words)
    silent = sum(1 for e in late if e is None)
    if silent:
        words = (
            f"{silent} valid trials have no schedule error: their generator cannot say it, "
            "or had no schedule"
        )
        yield Finding(good=False, words=words)


def _foreign(story: Story) -> Iterator[Finding]:
    trials = tuple(t for t in story.trials if t.record.foreign_packets)
    if trials:
        yield Finding(good=False, words="packets nobody of ours sent were seen", trials=trials)


def _other_programs(story: Story) -> Iterator[Finding]:
    found = other_programs(story)
    if not found.ratios:
        return
    used = f"used at most {max(found.ratios) * 100:.0f} % of the host's CPUs under load"
    if found.crowded:
        words = f"other programs {used}; {found.words}"
        yield Finding(good=False, words=words, trials=found.crowded)
    else:
        yield Finding(good=True, words=f"the host was quiet: other programs {used}")


def _cold(story: Story) -> Iterator[Finding]:
    first = next((t for t in story.trials if t.record.activation_s is not None), None)
    times = sorted(t.record.activation_s for t in story.trials if t.record.activation_s is not None)
    if first is None or len(times) < 3:
        return
    middle = times[len(times) // 2]
    took = first.record.activation_s or 0.0
    if took > COLD_START * middle:
        words = (
            f"cold start: the first trial took {numbers.seconds(took)} s to get ready, "
            f"the median is {numbers.seconds(middle)} s"
        )
        yield Finding(good=False, words=words, trials=(first,))


def _warmed(story: Story) -> Iterator[Finding]:
    """The first load after a guest has booted finds nothing translated or paged in."""
    warmed = [(t, found) for t in story.trials if (found := warmed_up(t)) is not None]
    if not warmed:
        return
    sent = sum(n for _, w in warmed if isinstance(n := w.get("offered_packets"), int))
    yield Finding(
        good=True,
        words=f"{len(warmed)} trials began in a guest that had just booted: each first carried its "
        f"whole load once, cold, and that load was discarded ({numbers.count(sent)} packets that "
        "are in no figure)",
    )


def warmed_up(trial: Trial) -> Mapping[str, Any] | None:
    """What was sent to warm it up and discarded; None where nothing was."""
    facts = trial.details.get("facts")
    found = facts.get("warm_up") if isinstance(facts, dict) else None
    return found if isinstance(found, dict) and found.get("discarded") else None


def self_test_words(source: Source) -> str:
    """What the probe proved on this kernel, in a sentence; empty where it is not recorded."""
    test = source.run.manifest.get("self_test")
    ring = test.get("ring") if isinstance(test, dict) else None
    if not isinstance(ring, dict):
        return ""
    sent, read, packets, drops = (
        escape.plain(ring.get(name))
        for name in ("sent_packets", "readable_packets", "tp_packets", "tp_drops")
    )
    counted = f"{sent} sent, {read} readable, tp_drops {drops}, tp_packets {packets}"
    match ring.get("tp_packets_includes_drops"):
        case True:
            return f"✓ Proved on this kernel: tp_packets includes tp_drops ({counted})."
        case False:
            return f"✓ Proved on this kernel: tp_packets does not include tp_drops ({counted})."
        case _:
            return f"▼ No meaning of tp_packets adds up here ({counted}): trust no ledger."


def undone(source: Source) -> tuple[list[str], list[str]] | None:
    """What was changed on the host, and what could not be put back. None = not recorded."""
    found = source.run.manifest.get("undo")
    if not isinstance(found, dict):
        return None
    return _texts(found.get("changed")), _texts(found.get("left"))


def _texts(found: Any) -> list[str]:
    return [escape.plain(item) for item in found] if isinstance(found, list) else []
