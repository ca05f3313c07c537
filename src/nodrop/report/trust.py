"""Why a reader may believe the run, and what to hold against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from nodrop.config.units import noun
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.ledger.sender import KNOBS
from nodrop.report import escape, numbers
from nodrop.report.hosts import hosts_sentences
from nodrop.report.repeats import outlying, stopped
from nodrop.report.senders import cpus_of_both, other_programs, reason_words, reasons_of
from nodrop.report.sensor import sensor_sentences
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Source, Story, once
from nodrop.report.trials import BOOKS_DIFFER, BOOKS_MISSING, Trial
from nodrop.results.rundir import Records
from nodrop.results.summary import measured_on
from nodrop.untrusted.json_text import list_in, table_in, tables_in


def calibration_words(source: Source) -> list[tuple[bool, str]]:
    """Per setup, and per host if there are several, whether all is well, and a sentence. Empty if
    the manifest does not say: the run was made before there were certificates, or by another
    program."""
    manifest = source.run.manifest
    hosts = measured_on(manifest)
    if not hosts:
        return [*_of_host(manifest)]
    return [
        (well, f"{escape.plain(name)}: {words}")
        for name, host in hosts.items()
        for well, words in _of_host(host)
    ]


def _of_host(manifest: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    yield from map(_words, tables_in(manifest, "calibration"))


def _words(item: Mapping[str, Any]) -> tuple[bool, str]:
    setup = escape.plain(item.get("setup"))
    certificate = item.get("certificate")
    if not isinstance(certificate, dict):
        why = escape.plain(item.get("not_calibrated"), longest=500)
        return False, f"{setup}: not calibrated ({why})"
    caught, missed, impossible = (
        [*map(escape.plain, list_in(certificate, name))]
        for name in ("caught", "missed", "not_possible")
    )
    made = escape.plain(certificate.get("made_utc"))
    words = f"{setup} stands on the certificate of {made}: "
    words += f"{len(caught)} of {len(caught) + len(missed)} known answers caught"
    if missed:
        words += f", missed {', '.join(missed)}"
    if impossible:
        words += f"; not possible here: {', '.join(impossible)}"
    return not missed, "; ".join((words, *_figures(certificate)))


def _figures(certificate: Mapping[str, Any]) -> Iterator[str]:
    loss = table_in(certificate, "smallest_loss")
    packets, of_packets = loss.get("packets"), loss.get("of_packets")
    if isinstance(packets, int) and isinstance(of_packets, int):
        said = f"{numbers.count(packets)} of {numbers.count(of_packets)}"
        yield f"smallest loss named to the packet {said}"
    pace = certificate.get("largest_pps_paced")
    if isinstance(pace, int | float):
        yield f"sender within its bounds up to {numbers.count(pace)} packets/s"


COLD_START = 2.0
"""A first trial that took so many times the median activation found the caches cold."""


@once
def findings(story: Story) -> list[Sentence]:
    """The bad ones first."""
    found = [
        *_not_measured(story),
        *_rules(story),
        *sensor_sentences(story),
        *stopped(story),
        *_calibration(story),
        *_books(story),
        *_sender(story),
        *cpus_of_both(story),
        *_foreign(story),
        *_other_programs(story),
        *_own_quota(story),
        *_outlying(story),
        *hosts_sentences(story),
        *_cold(story),
        *_warmed(story),
        *_reset(story),
    ]
    return sorted(found, key=lambda f: f.good)


def _not_measured(story: Story) -> Iterator[Sentence]:
    for rule, outcome in (("trials-failed", "failed"), ("trials-void", "void")):
        codes: dict[str, list[Trial]] = {}
        for trial in story.trials:
            if trial.outcome == outcome:
                for code in dict.fromkeys(reasons_of(trial)):
                    codes.setdefault(code, []).append(trial)
        for code, trials in sorted(codes.items()):
            yield Sentence(
                rule,
                f"{outcome}: {reason_words(code)} ({escape.plain(code)})",
                {"reason": escape.plain(code), "trials": len(trials)},
                tuple(trials),
            )


def _rules(story: Story) -> Iterator[Sentence]:
    """Sentences of the rules shared with imported data; an imported run brings its own, with
    more."""
    for number, source in enumerate(story.sources):
        if source.run.beside("findings") is not None:
            continue
        records = Records(t.packed for t in story.trials if t.source == number)
        for finding in find(observations_of(records)):
            words = f"{finding.title} ({finding.code}): {finding.evidence}. {finding.effect}"
            yield Sentence(
                finding.code, escape.plain(words, longest=2000), finding.as_json(), finding=True
            )


def _calibration(story: Story) -> Iterator[Sentence]:
    told = [said for source in story.sources for said in calibration_words(source)]
    for good, words in dict.fromkeys(told):
        rule = "calibrated" if good else "calibration-lacks"
        yield Sentence(rule, words)


def _books(story: Story) -> Iterator[Sentence]:
    differ = [BOOKS_DIFFER in t.invalid_reasons for t in story.trials]
    contradicting = tuple(t for t, does in zip(story.trials, differ, strict=True) if does)
    if contradicting:
        words = "the record says otherwise than its books, balanced again here, or its trial.json"
        yield Sentence("books-differ", words, trials=contradicting)
    if missing := tuple(t for t in story.trials if BOOKS_MISSING in t.invalid_reasons):
        words = f"the books of {plural(len(missing), 'trial')} that were measured are not there: "
        words += "what their records say is not proved, and enters no figure"
        yield Sentence("books-missing", words, trials=missing)
    closed = tuple(t for t, does in zip(story.trials, differ, strict=True) if t.closed and not does)
    if closed:
        yield Sentence(
            "books-balanced-again",
            f"the books of {len(closed)} of {len(story.trials)} "
            f"{noun(len(story.trials), 'trial')} were balanced again: residual 0",
            {"closed": len(closed), "trials": len(story.trials)},
        )


def _sender(story: Story) -> Iterator[Sentence]:
    measured = [t for t in story.trials if t.valid]
    found = (t.record.offered.schedule_error_us for t in measured)
    late = [(e.p99, e.max) for e in found if e]
    if late:
        p99, most = (max(ends) for ends in zip(*late, strict=True))
        yield Sentence(
            "sender-lateness",
            f"in {len(late)} of {plural(len(measured), 'measured trial')} the sender's "
            f"schedule error is known: its p99 was at most {numbers.micros(p99)} µs, its largest "
            f"{numbers.micros(most)} µs",
            {"p99_us": p99, "max_us": most, "trials": len(late)},
        )
    yield from _late_burst(measured)
    yield from _shaped(measured)
    silent = tuple(t for t in measured if t.record.offered.schedule_error_us is None)
    if silent:
        has = "has" if len(silent) == 1 else "have"
        yield Sentence(
            "sender-silent",
            f"{plural(len(silent), 'measured trial')} {has} no schedule error: the generator "
            "cannot say it, or had no schedule",
            {"trials": len(silent)},
            silent,
        )


def _late_burst(measured: Sequence[Trial]) -> Iterator[Sentence]:
    """One that could explain losses made its trial void."""
    found = [(burst, t) for t in measured if (burst := t.record.offered.largest_late_burst)]
    if not found:
        return
    burst, trial = max(found, key=lambda pair: pair[0].sent)
    lost = trial.lost_packets
    yield Sentence(
        "sender-burst",
        f"the largest burst of a late sender in a measured trial was "
        f"{plural(burst.sent, 'packet')}, {numbers.micros(burst.late_us)} µs behind; "
        f"lost in that trial: {'not known' if lost is None else lost}",
        {"packets": burst.sent, "late_us": burst.late_us, "lost_packets": lost},
        (trial,),
    )


LATE_FOR_THE_TRACE_US = 1_000


def _shaped(measured: Sequence[Trial]) -> Iterator[Sentence]:
    found = [
        (asked.p99, t.record.offered.shaped_per_s, t)
        for t in measured
        if t.record.offered.shaped_per_s is not None
        and (asked := t.record.offered.asked_schedule_error_us) is not None
        and asked.p99 > LATE_FOR_THE_TRACE_US
    ]
    if not found:
        return
    p99, slowest = max(p for p, _, _ in found), min(pps for _, pps, _ in found)
    yield Sentence(
        "sender-shaped",
        f"in {plural(len(found), 'measured trial')} the trace asks for more at once than the "
        f"sender sends: that left at {numbers.count(slowest)} packets/s or faster, at p99 up to "
        f"{numbers.micros(p99)} µs after the trace's own time",
        {"asked_p99_us": p99, "shaped_pps": slowest, "trials": len(found)},
        tuple(t for _, _, t in found),
    )


def _foreign(story: Story) -> Iterator[Sentence]:
    trials = tuple(t for t in story.trials if t.record.packets.foreign_packets)
    if trials:
        yield Sentence(
            "foreign-packets",
            "packets that the generator did not send were seen",
            {t.name: t.record.packets.foreign_packets for t in trials},
            trials,
        )


def _other_programs(story: Story) -> Iterator[Sentence]:
    found = other_programs(story)
    if not found.ratios:
        return
    most = max(found.ratios)
    used = f"used at most {most * 100:.0f} % of {found.whole} under load"
    evidence = {"most_ratio": most, "trials": len(found.ratios)}
    if found.crowded:
        yield Sentence(
            "host-crowded", f"other programs {used}; {found.words}", evidence, found.crowded
        )
    else:
        known = f" (known of {len(found.ratios)} of {len(story.trials)} trials)"
        yield Sentence(
            "host-quiet",
            f"the host was quiet: other programs {used}"
            + ("" if len(found.ratios) == len(story.trials) else known),
            evidence,
        )


def _own_quota(story: Story) -> Iterator[Sentence]:
    found = [
        (t, seen.quota)
        for t in story.trials
        if (seen := t.record.disturbed) and seen.quota is not None
    ]
    if not found:
        return
    worst = max((quota for _, quota in found), key=lambda quota: quota.throttled_s)
    yield Sentence(
        "own-quota",
        f"a CPU quota around nodrop itself ({worst.cpus:g} CPUs, {worst.group}) held it back "
        f"in {len(found)} of {plural(len(story.trials), 'trial')}, for up to "
        f"{worst.throttled_s:.2f} s of one: raise it ({KNOBS})",
        {t.name: quota.throttled_s for t, quota in found},
        tuple(t for t, _ in found),
    )


def _outlying(story: Story) -> Iterator[Sentence]:
    found = outlying(story)
    trials = tuple({one.trial.anchor: one.trial for one in found}.values())
    if not trials:
        return
    titles = ", ".join(dict.fromkeys(one.figure.title for one in found))
    stand, others = ("stands", "its cell") if len(trials) == 1 else ("stand", "their cells")
    yield Sentence(
        "stands-apart",
        f"{plural(len(trials), 'trial')} {stand} apart from the others of {others} "
        f"({titles}); marked, and in every figure like the others",
        {
            "figures": [
                {
                    "run": one.trial.name,
                    "figure": one.figure.name,
                    "value": one.found.value,
                    "median": one.found.median,
                }
                for one in found
            ]
        },
        trials,
    )


def _cold(story: Story) -> Iterator[Sentence]:
    first = next((t for t in story.trials if t.activation_s is not None), None)
    times = sorted(t.activation_s for t in story.trials if t.activation_s is not None)
    if first is None or len(times) < 3:
        return
    middle = times[len(times) // 2]
    took = first.activation_s or 0.0
    if took > COLD_START * middle:
        yield Sentence(
            "cold-start",
            f"cold start: the first trial took {numbers.seconds(took)} s to get ready, the "
            f"median is {numbers.seconds(middle)} s",
            {"first_s": took, "median_s": middle, "trials": len(times)},
            (first,),
        )


def _warmed(story: Story) -> Iterator[Sentence]:
    """The first load after a guest has booted finds nothing translated or paged in."""
    warmed = [(t, found) for t in story.trials if (found := warmed_up(t)) is not None]
    if not warmed:
        return
    sent = sum(n for _, w in warmed if isinstance(n := w.get("offered_packets"), int))
    yield Sentence(
        "guest-warmed-up",
        f"{plural(len(warmed), 'trial')} began in a guest that had just booted: each first "
        "carried its whole load once, cold, and that load was discarded "
        f"({numbers.count(sent)} packets that are in no figure)",
        {"trials": len(warmed), "packets": sent},
    )


def _reset(story: Story) -> Iterator[Sentence]:
    times = [t.record.reset_s for t in story.trials if t.record.reset_s is not None]
    if times:
        yield Sentence(
            "reset",
            f"receiver or driver began anew for {len(times)} of "
            f"{plural(len(story.trials), 'trial')}, and all was found as before; until then "
            f"{numbers.seconds(median(times))} s went by (median), which are in no figure",
            {"trials": len(times), "median_s": median(times)},
        )


def warmed_up(trial: Trial) -> Mapping[str, Any] | None:
    """Facts on the load that was sent to warm the SUT up and discarded; None if there was none."""
    return trial.aside.warm_up


def self_test_words(source: Source) -> str:
    """A sentence on what the probe proved on this kernel; empty if it is not recorded."""
    hosts = measured_on(source.run.manifest)
    if not hosts:
        return _self_test_words(source.run.manifest)
    each = ((name, _self_test_words(one)) for name, one in hosts.items())
    return " ".join(f"{escape.plain(name)}: {words}" for name, words in each if words)


def _self_test_words(manifest: Mapping[str, Any]) -> str:
    if not (ring := table_in(manifest, "self_test", "ring")):
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
    """Changes of the host, and those that could not be put back. None = not recorded."""
    found = source.run.manifest.get("undo")
    if not isinstance(found, dict):
        return None
    changed, left = ([*map(escape.plain, list_in(found, name))] for name in ("changed", "left"))
    return changed, left
