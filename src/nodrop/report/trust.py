"""Why a reader may believe the run, what to hold against it, and inputs of the user that were not
taken as they are: captures that were changed, rules not measured, keys of a yaml replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodrop.answer.finding import WORDS
from nodrop.capacity.searched_cells import subject
from nodrop.config.units import count_of, parse_cpus
from nodrop.findings.observations import observations_of, suspicion_json
from nodrop.findings.rules import find
from nodrop.ledger.sender import KNOBS
from nodrop.report import escape, numbers
from nodrop.report.hosts import hosts_sentences
from nodrop.report.repeats import outlying, stopped
from nodrop.report.sentences import (
    Sentence,
    first_of,
    phrase,
    reason_words,
    reasons_of,
    sentence_of,
)
from nodrop.report.story import Story, StorySource, by_key, once
from nodrop.report.trials import BOOKS_DIFFER, BOOKS_MISSING, ReportedSensor, StoredTrial
from nodrop.results.rundir import Records
from nodrop.results.summary import cell_key, idle_ports, measured_on, not_whole
from nodrop.sensor.suricata_counters import lost_analysis
from nodrop.untrusted.json_text import list_in, table_in, tables_in

MOST_NAMED = 5
"""Rules in a sentence, keys in a line of a terminal."""
LOG = "engine.json"
LATE_FOR_THE_TRACE_US = 1_000


def sensor_sentences(story: Story) -> Iterator[Sentence]:
    yield from trace_changes(story)
    told = ((trial.aside.sensor, trial) for trial in story.trials)
    found = by_key((sensor, trial) for sensor, trial in told if sensor is not None)
    for sensor, trials in found.items():
        yield from _unloaded(sensor, tuple(trials))
        if sensor.yaml and sensor.replaced:
            changes = "; ".join("{} ({} → {})".format(*map(_plain, row)) for row in sensor.replaced)
            each = [dict(zip(("key", "was", "now"), row, strict=True)) for row in sensor.replaced]
            evidence = {"yaml": sensor.yaml, "replaced": each}
            yield sentence_of("yaml-replaced", evidence, trials, n=len(each), changes=changes,
                              file=_plain(sensor.yaml))  # fmt: skip


def sensor_words(story: Story) -> list[str]:
    """Sentences for a terminal, whose reader has the page for more."""
    told = []
    for sensor_sentence in sensor_sentences(story):
        if sensor_sentence.rule != "yaml-replaced":
            told.append(f"{sensor_sentence.text}.")
            continue
        named = first_of(
            [_plain(row["key"]) for row in sensor_sentence.evidence["replaced"]], MOST_NAMED
        )
        keys = count_of(len(sensor_sentence.evidence["replaced"]), "key")
        inline = any(
            row["key"].endswith(".copy-mode") for row in sensor_sentence.evidence["replaced"]
        )
        more = ". Inline (copy-mode) was not measured: it listened" if inline else ""
        yaml = _plain(sensor_sentence.evidence["yaml"])
        told.append(f"{keys} of {yaml} replaced: {named} (see Trust){more}.")
    return [*dict.fromkeys(told)]


def trace_changes(story: Story) -> Iterator[Sentence]:
    """Sentences on changes made to captures before they were sent, and on oddities in them."""
    found: dict[str, str] = {}
    for source in story.sources:
        for load in tables_in(source.run.manifest, "loads"):
            for one in (table_in(load, "captured"), *tables_in(load, "ports")):
                for said in list_in(one, "words"):
                    trace = escape.plain(one.get("trace"), longest=1000).rpartition("/")[2]
                    found[escape.plain(f"{trace}: {said}", longest=1000)] = trace
    yield from (Sentence("trace-changed", said, {"trace": one}) for said, one in found.items())


def _unloaded(sensor: ReportedSensor, trials: tuple[StoredTrial, ...]) -> Iterator[Sentence]:
    loaded, failed, skipped = sensor.rules_loaded, sensor.rules_failed, sensor.rules_skipped

    def said(words: str, **evidence: object) -> Sentence:
        return Sentence("rules-not-loaded", words, evidence, trials)

    if loaded is not None and failed:
        first = sensor.failed_first[:MOST_NAMED]
        named = "; ".join(map(_plain, first))
        if failed > len(first):
            named += f" and {numbers.count(failed - len(first))} more, in {LOG} of each trial"
        words = phrase("rules-failed", failed=failed, of=loaded + failed, named=named)
        yield said(words, loaded=loaded, failed=failed, first=[*sensor.failed_first])
    if skipped:
        yield said(phrase("rules-skipped", n=skipped), loaded=loaded, skipped=skipped)
    if lacking := [*map(_plain, sensor.rules_lacking)]:
        words = phrase("rules-lacking", n=len(lacking), file=_plain(sensor.yaml),
                       named=first_of(lacking, MOST_NAMED))  # fmt: skip
        yield said(words, yaml=sensor.yaml, lacking=lacking)


def _plain(text: str | None) -> str:
    return "not there" if text is None else escape.plain(text)


@once
def decoder_sentences(story: Story) -> tuple[Sentence, ...]:
    measured = by_key((subject(story, cell), t) for cell in story.cells for t in cell.valid)
    said = []
    for whose, trials in measured.items():
        for about in ("cut", "invalid", "checksum"):
            found = {t: part for t in trials if (part := not_whole(t.record).get(about))}
            if not found:
                continue
            worst = max(found, key=found.__getitem__)
            remark = next(r for r in worst.record.packets.remarks if r.about == about)
            books = [trial.record.packets for trial in found]
            worst_of = ", in the worst of them" if len(found) > 1 else ","
            of = count_of(len(trials), "measured trial")
            text = f"{whose}: in {len(found)} of {of}{worst_of} "
            text += f"{escape.plain(remark.words, longest=1000)}: {WORDS['decoder'][about]}."
            evidence = {
                "packets": [getattr(book, f"{about}_packets") for book in books],
                "decoded_packets": [book.decoded_packets for book in books],
                "measured": len(trials),
            }
            knob = escape.plain(remark.knob, longest=1000)
            said.append(Sentence(f"frames-{about}", text, evidence, (*found,), whose, knob))
        said += _denied(whose, trials)
        said += _analysis_lost(whose, trials)
    return tuple(said)


def _denied(whose: str, trials: Sequence[StoredTrial]) -> Iterator[Sentence]:
    """Losses in a ring that the SUT does not see, beside the drops that it counts itself."""
    books = {trial: trial.record.packets for trial in trials}
    lost = {
        trial: (book.lost_packets or 0) - (book.lost_before_sut_packets or 0)
        for trial, book in books.items()
        if book.own_dropped_packets is not None
    }
    found = [t for t, packets in lost.items() if packets > (books[t].own_dropped_packets or 0)]
    if not found:
        return
    worst = max(found, key=lost.__getitem__)
    evidence = {
        "own_dropped_packets": [books[t].own_dropped_packets for t in found],
        "lost_packets": [lost[t] for t in found],
    }
    own = books[worst].own_dropped_packets
    yield sentence_of(
        "drops-denied", evidence, found, whose, n=len(found), own=own, lost=lost[worst]
    )


def _analysis_lost(whose: str, trials: Sequence[StoredTrial]) -> Iterator[Sentence]:
    """Memory of the SUT that was full and flows that it gave up, which no packet counter shows."""
    lost = {trial: counts for trial in trials if (counts := trial.record.packets.analysis_lost)}
    if not lost:
        return
    most = Counter[str]()
    for counts in lost.values():
        most |= Counter(counts)
    rows = [*lost_analysis(most)]
    what = "; ".join(f"{row.loses} ({name} {most[name]:,})" for row, name in rows)
    settings = ", ".join(dict.fromkeys(row.setting for row, _ in rows if row.setting))
    first = min(lost, key=lambda trial: trial.record.index)
    evidence = {"counters": dict(most), "first": first.name, "measured": len(trials)}
    yield sentence_of("analysis-lost", evidence, lost, whose, settings, n=len(lost), what=what)


def decoder_words(story: Story) -> list[str]:
    told = decoder_sentences(story)
    return [
        f"{sentence.text} What touches it: {sentence.knob}." if sentence.knob else sentence.text
        for sentence in told
    ]


def without_work(story: Story) -> Iterator[Sentence]:
    """Sentences about ports without packets, by cell, whatever loads a search offered it."""
    valid = (trial for trial in story.trials if trial.valid and trial.record.packets.ports)
    cells = by_key((cell_key(trial.record.cell), trial) for trial in valid)
    told = [(idle_ports([t.record for t in trials]), trials) for trials in cells.values()]
    if found := [(ports, trials) for ports, trials in told if ports]:
        named = dict.fromkeys(escape.plain(port) for ports, _ in found for port in ports)
        evidence = {"idle": [ports for ports, _ in found], "cells": len(cells)}
        without, words = (t for _, each in found for t in each), " and ".join(named)
        yield sentence_of("idle-port", evidence, without, ports=words, n=len(found))


def calibration_words(source: StorySource) -> list[tuple[bool, str]]:
    """Sentences on the certificates per setup, and per host if there are several, each with whether
    all is well. Empty if the manifest does not say: the run was made before there were
    certificates, or by another program."""
    return [
        (well, f"{name}{words}")
        for name, host in _hosts(source).items()
        for well, words in map(_certificate_words, tables_in(host, "calibration"))
    ]


def _hosts(source: StorySource) -> Mapping[str, Mapping[str, Any]]:
    """Manifests by what stands before their words: of each host, or of a run that names none."""
    manifest = source.run.manifest
    hosts = {f"{escape.plain(name)}: ": host for name, host in measured_on(manifest).items()}
    return hosts or {"": manifest}


def _certificate_words(item: Mapping[str, Any]) -> tuple[bool, str]:
    setup, certificate = escape.plain(item.get("setup")), item.get("certificate")
    if not isinstance(certificate, dict):
        why = escape.plain(item.get("not_calibrated"), longest=500)
        return False, f"{setup}: not calibrated ({why})"
    caught, missed, impossible = (
        [*map(escape.plain, list_in(certificate, name))]
        for name in ("caught", "missed", "not_possible")
    )
    made = escape.plain(certificate.get("made_utc"))
    n = len(caught) + len(missed)
    words = phrase("certificate", setup=setup, made=made, caught=len(caught), n=n)
    words += f", missed {', '.join(missed)}" if missed else ""
    words += f"; not possible here: {', '.join(impossible)}" if impossible else ""
    loss, pace = table_in(certificate, "smallest_loss"), certificate.get("largest_pps_paced")
    packets, of = loss.get("packets"), loss.get("of_packets")
    known = isinstance(packets, int) and isinstance(of, int)
    words += phrase("smallest-loss", n=packets, of=of) if known else ""
    words += phrase("paced", pps=pace) if isinstance(pace, int | float) else ""
    return not missed, words


COLD_START = 2.0
"""Multiple of the median activation from which on a first trial found the caches cold."""


@once
def findings(story: Story) -> list[Sentence]:
    told = dict.fromkeys(said for source in story.sources for said in calibration_words(source))
    found = [
        *_not_measured(story),
        *_rules(story),
        *sensor_sentences(story),
        *stopped(story),
        *(Sentence("calibrated" if well else "calibration-lacks", words) for well, words in told),
        *_books(story),
        *_sender(story),
        *cpus_of_both(story),
        *_others(story),
        *_outlying(story),
        *hosts_sentences(story),
        *_starts(story),
    ]
    return sorted(found, key=lambda f: f.good)


def _not_measured(story: Story) -> Iterator[Sentence]:
    for rule, outcome in (("trials-failed", "failed"), ("trials-void", "void")):
        such = [trial for trial in story.trials if trial.outcome == outcome]
        codes = by_key((code, trial) for trial in such for code in dict.fromkeys(reasons_of(trial)))
        for code, trials in sorted(codes.items()):
            reason = escape.plain(code)
            words = f"{outcome}: {reason_words(code)} ({reason})"
            evidence = {"reason": reason, "trials": len(trials)}
            yield Sentence(rule, words, evidence, tuple(trials))


def _rules(story: Story) -> Iterator[Sentence]:
    """Sentences of the rules shared with imported data; an imported run brings more of its own."""
    for number, source in enumerate(story.sources):
        own = (t.packed for t in story.trials if t.source == number)
        known = source.run.beside("findings") is not None
        for finding in [] if known else find(observations_of(Records(own))):
            one = suspicion_json(finding)
            words = f"{one['title']} ({one['code']}): {one['evidence']}. {one['effect']}"
            said = escape.plain(words, longest=2000)
            yield Sentence(one["code"], said, one, finding=True)


def _books(story: Story) -> Iterator[Sentence]:
    if differ := [t for t in story.trials if BOOKS_DIFFER in t.invalid_reasons]:
        yield sentence_of("books-differ", {}, differ)
    if missing := [t for t in story.trials if BOOKS_MISSING in t.invalid_reasons]:
        yield sentence_of("books-missing", {}, missing, n=len(missing))
    if closed := sum(t.closed and BOOKS_DIFFER not in t.invalid_reasons for t in story.trials):
        yield sentence_of("books-balanced-again", {"closed": closed, "trials": len(story.trials)})


def _sender(story: Story) -> Iterator[Sentence]:
    measured = [(t, t.record.offered) for t in story.trials if t.valid]
    if late := [e for _, sent in measured if (e := sent.schedule_error_us)]:
        p99, most = max(e.p99 for e in late), max(e.max for e in late)
        lateness = {"p99_us": p99, "max_us": most, "trials": len(late)}
        yield sentence_of("sender-lateness", lateness, measured=len(measured))
    # A burst that could explain losses made its trial void.
    if bursts := [(burst, t) for t, sent in measured if (burst := sent.largest_late_burst)]:
        burst, trial = max(bursts, key=lambda pair: pair[0].sent)
        lost = trial.lost_packets
        evidence = {"packets": burst.sent, "late_us": burst.late_us, "lost_packets": lost}
        known = "not known" if lost is None else lost
        yield sentence_of("sender-burst", evidence, [trial], lost=known)
    shaped = [
        (asked.p99, sent.shaped_per_s, t)
        for t, sent in measured
        if sent.shaped_per_s is not None
        and (asked := sent.asked_schedule_error_us) is not None
        and asked.p99 > LATE_FOR_THE_TRACE_US
    ]
    if shaped:
        p99, slowest = max(p for p, _, _ in shaped), min(pps for _, pps, _ in shaped)
        evidence = {"asked_p99_us": p99, "shaped_pps": slowest, "trials": len(shaped)}
        yield sentence_of("sender-shaped", evidence, (t for _, _, t in shaped))
    if silent := [t for t, sent in measured if sent.schedule_error_us is None]:
        yield sentence_of("sender-silent", {"trials": len(silent)}, silent)


def _others(story: Story) -> Iterator[Sentence]:
    """Packets of other senders, other programs on the SUT's CPUs, and its own quota of them."""
    if foreign := {t: n for t in story.trials if (n := t.record.packets.foreign_packets)}:
        yield sentence_of("foreign-packets", {t.name: n for t, n in foreign.items()}, foreign)
    found, every = other_programs(story), len(story.trials)
    n = len(found.ratios)
    evidence = {"most_ratio": max(found.ratios, default=0.0), "trials": n}
    if found.crowded:
        yield sentence_of("host-crowded", evidence, found.crowded, words=found.words)
    elif found.ratios:
        known = "" if n == every else f" (known of {n} of {count_of(every, 'trial')})"
        yield sentence_of("host-quiet", evidence, known=known)
    seen = ((t, t.record.disturbed) for t in story.trials)
    if held := {t: one.quota for t, one in seen if one and one.quota is not None}:
        worst = max(held.values(), key=lambda quota: quota.throttled_s)
        evidence = {t.name: quota.throttled_s for t, quota in held.items()}
        yield sentence_of("own-quota", evidence, held, worst=worst, n=len(held), every=every,
                          knobs=KNOBS)  # fmt: skip


def _outlying(story: Story) -> Iterator[Sentence]:
    if found := outlying(story):
        trials = dict.fromkeys(one.trial for one in found)
        titles = ", ".join(dict.fromkeys(one.figure.title for one in found))
        figures = [
            {"run": one.trial.name, "figure": one.figure.name, "value": one.found.value,
             "median": one.found.median}
            for one in found
        ]  # fmt: skip
        told = {"figures": figures}
        yield sentence_of("stands-apart", told, trials, n=len(trials), titles=titles)


def _starts(story: Story) -> Iterator[Sentence]:
    """Cold caches, guests that were warmed up first, and the time that a reset took."""
    times = [(t.activation_s, t) for t in story.trials if t.activation_s is not None]
    if len(times) >= 3:
        took, first = times[0]
        middle = sorted(took for took, _ in times)[len(times) // 2]
        if took > COLD_START * middle:
            evidence = {"first_s": took, "median_s": middle, "trials": len(times)}
            yield sentence_of("cold-start", evidence, [first])
    # The first load after a guest has booted finds nothing translated or paged in.
    if warmed := [found for t in story.trials if (found := t.aside.warm_up) is not None]:
        sent = sum(n for w in warmed if isinstance(n := w.get("offered_packets"), int))
        yield sentence_of("guest-warmed-up", {"trials": len(warmed), "packets": sent})
    if resets := [t.record.reset_s for t in story.trials if t.record.reset_s is not None]:
        evidence = {"trials": len(resets), "median_s": median(resets)}
        yield sentence_of("reset", evidence, every=len(story.trials))


def self_test_words(source: StorySource) -> str:
    """A sentence for each host on what the probe proved on its kernel, if it is recorded."""
    said, names = [], ("sent_packets", "readable_packets", "tp_packets", "tp_drops")
    for host, manifest in _hosts(source).items():
        if ring := table_in(manifest, "self_test", "ring"):
            told = ring.get("tp_packets_includes_drops")
            kind = "includes" if told is True else "without" if told is False else "unclear"
            counted = {name: escape.plain(ring.get(name)) for name in names}
            said.append(host + phrase(f"ring-{kind}", **counted))
    return " ".join(said)


def undone(source: StorySource) -> tuple[list[str], list[str]] | None:
    """Changes of the host, and those that could not be put back. None = not recorded."""
    if not isinstance(found := source.run.manifest.get("undo"), dict):
        return None
    changed, left = ([*map(escape.plain, list_in(found, name))] for name in ("changed", "left"))
    return changed, left


def cpus_of_both(story: Story) -> Iterator[Sentence]:
    """Whether the generator and the SUT could use the same CPUs."""
    shared: list[StoredTrial] = []
    apart: dict[StoredTrial, str] = {}
    for trial in (one for one in story.trials if one.record.sut_cpus):
        record, sut = trial.record, trial.record.sut_cpus or ""
        own, elsewhere = record.generator_cpus, record.cpus_in_common is False
        if not elsewhere and (own is None or {*parse_cpus(own)} & {*parse_cpus(sut)}):
            shared.append(trial)
        else:
            generator = "on a machine of its own" if elsewhere else own or ""
            apart[trial] = f"generator {escape.plain(generator)}, SUT {escape.plain(sut)}"
    if shared:
        yield sentence_of("cpus-shared", {"trials": len(shared)}, shared)
    if apart:
        said = [*dict.fromkeys(apart.values())]
        chosen = sum(trial.record.cpus_parted is True for trial in apart)
        pairs = "; ".join(said[:3]) + ("; …" if len(said) > 3 else "")
        by = f", chosen by nodrop in {chosen}: the experiment names none" if chosen else ""
        evidence = {"trials": len(apart), "chosen_by_nodrop": chosen, "cpus": said}
        yield sentence_of("cpus-apart", evidence, apart, pairs=pairs, by=by)


def flows_differ(story: Story) -> Iterator[Sentence]:
    """N copies with the same flows are another load than N replicas with flows of their own."""
    found: dict[str, dict[str, None]] = {"distinct": {}, "same": {}}
    for source in story.sources:
        for load in tables_in(source.run.manifest, "loads"):
            options = table_in(load, "options")
            multiplier = options.get("multiplier")
            if isinstance(multiplier, int | float) and multiplier > 1:
                name = escape.plain(load.get("generator") or "a generator")
                found.setdefault(str(options.get("flows")), {})[name] = None
    evidence = {flows: [*found[flows]] for flows in ("distinct", "same")}
    if all(evidence.values()):
        words = {name: " and ".join(generators) for name, generators in evidence.items()}
        yield sentence_of("flows-differ", evidence, **words)


FOREIGN_CPU_RATIO = 0.25
"""Part of the SUT's CPUs beyond which other programs compete with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrograms:
    ratios: tuple[float, ...]
    crowded: tuple[StoredTrial, ...]
    words: str


@once
def other_programs(story: Story) -> OtherPrograms:
    known = [(r, t) for t in story.trials if (r := t.aside.foreign_cpu_ratio) is not None]
    crowded = tuple(t for ratio, t in known if ratio >= FOREIGN_CPU_RATIO)
    limit, of = f"{FOREIGN_CPU_RATIO * 100:.0f} %", count_of(len(known), "trial")
    return OtherPrograms(
        ratios=tuple(ratio for ratio, _ in known),
        crowded=crowded,
        words=f"in {len(crowded)} of {of} more than {limit}",
    )
