"""Why a reader may believe the run, and what to hold against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodrop.config.units import count_of, parse_cpus
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.ledger.sender import KNOBS
from nodrop.report import escape
from nodrop.report.hosts import hosts_sentences
from nodrop.report.repeats import outlying, stopped
from nodrop.report.sensor import sensor_sentences
from nodrop.report.sentences import Sentence, phrase, reason_words, reasons_of, sentence_of
from nodrop.report.story import Source, Story, once
from nodrop.report.trials import BOOKS_DIFFER, BOOKS_MISSING, Trial
from nodrop.results.rundir import Records
from nodrop.results.summary import measured_on
from nodrop.untrusted.json_text import list_in, table_in, tables_in


def calibration_words(source: Source) -> list[tuple[bool, str]]:
    """Per setup, and per host if there are several, whether all is well, and a sentence. Empty if
    the manifest does not say: the run was made before there were certificates, or by another
    program."""
    return [
        (well, f"{name}{words}")
        for name, host in _hosts(source).items()
        for well, words in map(_certificate_words, tables_in(host, "calibration"))
    ]


def _hosts(source: Source) -> Mapping[str, Mapping[str, Any]]:
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
    loss = table_in(certificate, "smallest_loss")
    packets, of_packets = loss.get("packets"), loss.get("of_packets")
    if isinstance(packets, int) and isinstance(of_packets, int):
        words += phrase("smallest-loss", n=packets, of=of_packets)
    if isinstance(pace := certificate.get("largest_pps_paced"), int | float):
        words += phrase("paced", pps=pace)
    return not missed, words


COLD_START = 2.0
"""A first trial that took so many times the median activation found the caches cold."""


@once
def findings(story: Story) -> list[Sentence]:
    """The bad ones first."""
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
    """Sentences of the rules shared with imported data; an imported run brings more of its own."""
    for number, source in enumerate(story.sources):
        if source.run.beside("findings") is not None:
            continue
        records = Records(t.packed for t in story.trials if t.source == number)
        for finding in find(observations_of(records)):
            words = f"{finding.title} ({finding.code}): {finding.evidence}. {finding.effect}"
            yield Sentence(
                finding.code, escape.plain(words, longest=2000), finding.as_json(), finding=True
            )


def _books(story: Story) -> Iterator[Sentence]:
    differ = tuple(t for t in story.trials if BOOKS_DIFFER in t.invalid_reasons)
    if differ:
        yield sentence_of("books-differ", {}, differ)
    if missing := tuple(t for t in story.trials if BOOKS_MISSING in t.invalid_reasons):
        yield sentence_of("books-missing", {}, missing, n=len(missing))
    if closed := sum(t.closed and BOOKS_DIFFER not in t.invalid_reasons for t in story.trials):
        evidence = {"closed": closed, "trials": len(story.trials)}
        yield sentence_of("books-balanced-again", evidence)


def _sender(story: Story) -> Iterator[Sentence]:
    measured = [(t, t.record.offered) for t in story.trials if t.valid]
    late = [(e.p99, e.max) for _, sent in measured if (e := sent.schedule_error_us)]
    if late:
        p99, most = (max(ends) for ends in zip(*late, strict=True))
        evidence = {"p99_us": p99, "max_us": most, "trials": len(late)}
        yield sentence_of("sender-lateness", evidence, measured=len(measured))
    bursts = [(burst, t) for t, sent in measured if (burst := sent.largest_late_burst)]
    if bursts:  # one that could explain losses made its trial void
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


LATE_FOR_THE_TRACE_US = 1_000


def _foreign(story: Story) -> Iterator[Sentence]:
    found = [(t, n) for t in story.trials if (n := t.record.packets.foreign_packets)]
    if found:
        yield sentence_of("foreign-packets", {t.name: n for t, n in found}, (t for t, _ in found))


def _other_programs(story: Story) -> Iterator[Sentence]:
    found = other_programs(story)
    n, every = len(found.ratios), len(story.trials)
    evidence = {"most_ratio": max(found.ratios, default=0.0), "trials": n}
    if found.crowded:
        words = {"whole": found.whole, "words": found.words}
        yield sentence_of("host-crowded", evidence, found.crowded, **words)
    elif found.ratios:
        known = "" if n == every else f" (known of {n} of {count_of(every, 'trial')})"
        yield sentence_of("host-quiet", evidence, whole=found.whole, known=known)


def _own_quota(story: Story) -> Iterator[Sentence]:
    seen = ((t, t.record.disturbed) for t in story.trials)
    found = [(t, one.quota) for t, one in seen if one and one.quota is not None]
    if not found:
        return
    worst = max((quota for _, quota in found), key=lambda quota: quota.throttled_s)
    yield sentence_of(
        "own-quota", {t.name: quota.throttled_s for t, quota in found}, (t for t, _ in found),
        worst=worst, n=len(found), every=len(story.trials), knobs=KNOBS,
    )  # fmt: skip


def _outlying(story: Story) -> Iterator[Sentence]:
    found = outlying(story)
    trials = tuple({one.trial.anchor: one.trial for one in found}.values())
    if not trials:
        return
    titles = ", ".join(dict.fromkeys(one.figure.title for one in found))
    figures = [
        {"run": one.trial.name, "figure": one.figure.name, "value": one.found.value,
         "median": one.found.median}
        for one in found
    ]  # fmt: skip
    yield sentence_of("stands-apart", {"figures": figures}, trials, n=len(trials), titles=titles)


def _cold(story: Story) -> Iterator[Sentence]:
    times = [(t.activation_s, t) for t in story.trials if t.activation_s is not None]
    if len(times) < 3:
        return
    took, first = times[0]
    middle = sorted(took for took, _ in times)[len(times) // 2]
    if took > COLD_START * middle:
        evidence = {"first_s": took, "median_s": middle, "trials": len(times)}
        yield sentence_of("cold-start", evidence, [first])


def _warmed(story: Story) -> Iterator[Sentence]:
    """The first load after a guest has booted finds nothing translated or paged in."""
    warmed = [found for t in story.trials if (found := t.aside.warm_up) is not None]
    sent = sum(n for w in warmed if isinstance(n := w.get("offered_packets"), int))
    if warmed:
        yield sentence_of("guest-warmed-up", {"trials": len(warmed), "packets": sent})


def _reset(story: Story) -> Iterator[Sentence]:
    times = [t.record.reset_s for t in story.trials if t.record.reset_s is not None]
    if times:
        evidence = {"trials": len(times), "median_s": median(times)}
        yield sentence_of("reset", evidence, every=len(story.trials))


def self_test_words(source: Source) -> str:
    """A sentence on what the probe proved on this kernel; empty if it is not recorded."""
    each = ((name, _self_test_words(one)) for name, one in _hosts(source).items())
    return " ".join(f"{name}{words}" for name, words in each if words)


def _self_test_words(manifest: Mapping[str, Any]) -> str:
    if not (ring := table_in(manifest, "self_test", "ring")):
        return ""
    counted = {
        name: escape.plain(ring.get(name))
        for name in ("sent_packets", "readable_packets", "tp_packets", "tp_drops")
    }
    told = ring.get("tp_packets_includes_drops")
    kind = "includes" if told is True else "without" if told is False else "unclear"
    return phrase(f"ring-{kind}", **counted)


def undone(source: Source) -> tuple[list[str], list[str]] | None:
    """Changes of the host, and those that could not be put back. None = not recorded."""
    found = source.run.manifest.get("undo")
    if not isinstance(found, dict):
        return None
    changed, left = ([*map(escape.plain, list_in(found, name))] for name in ("changed", "left"))
    return changed, left


def cpus_of_both(story: Story) -> Iterator[Sentence]:
    """Trials of older runs do not record it."""
    shared: list[Trial] = []
    apart: list[Trial] = []
    said: dict[str, None] = {}
    chosen = 0
    for trial in story.trials:
        record = trial.record
        theirs, own = _cpus(record.sut_cpus), _cpus(record.generator_cpus)
        if not theirs:
            continue
        elsewhere = record.cpus_in_common is False
        if not elsewhere and (own is None or own & theirs):
            shared.append(trial)
            continue
        generator = "on a machine of its own" if elsewhere else record.generator_cpus or ""
        said[f"generator {escape.plain(generator)}, SUT {escape.plain(record.sut_cpus)}"] = None
        chosen += record.cpus_parted is True
        apart.append(trial)
    if shared:
        yield sentence_of("cpus-shared", {"trials": len(shared)}, shared)
    if apart:
        pairs = "; ".join([*said][:3]) + ("; …" if len(said) > 3 else "")
        by = f", chosen by nodrop in {chosen}: the experiment names none" if chosen else ""
        evidence = {"trials": len(apart), "chosen_by_nodrop": chosen, "cpus": [*said]}
        yield sentence_of("cpus-apart", evidence, apart, pairs=pairs, by=by)


def _cpus(words: str | None) -> frozenset[int] | None:
    return None if words is None else frozenset(parse_cpus(words))


def flows_differ(story: Story) -> Iterator[Sentence]:
    """N copies with the same flows are another load than N replicas with flows of their own."""
    by_flows: dict[str, dict[str, None]] = {}
    for source in story.sources:
        for load in tables_in(source.run.manifest, "loads"):
            options = table_in(load, "options")
            multiplier = options.get("multiplier")
            if isinstance(multiplier, int | float) and multiplier > 1:
                name = escape.plain(load.get("generator") or "a generator")
                by_flows.setdefault(str(options.get("flows")), {})[name] = None
    distinct, same = by_flows.get("distinct"), by_flows.get("same")
    if distinct and same:
        evidence = {"distinct": [*distinct], "same": [*same]}
        words = {name: " and ".join(generators) for name, generators in evidence.items()}
        yield sentence_of("flows-differ", evidence, **words)


FOREIGN_CPU_RATIO = 0.25
"""Beyond this other programs compete with the SUT for its CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrograms:
    ratios: tuple[float, ...]
    """One per trial that measured it."""
    crowded: tuple[Trial, ...]
    whole: str
    """Name of the CPUs that the ratios are shares of."""

    @property
    def words(self) -> str:
        limit = f"{FOREIGN_CPU_RATIO * 100:.0f} %"
        of = count_of(len(self.ratios), "trial")
        return f"in {len(self.crowded)} of {of} more than {limit}"


@once
def other_programs(story: Story) -> OtherPrograms:
    known = [(r, t) for t in story.trials if (r := t.aside.foreign_cpu_ratio) is not None]
    return OtherPrograms(
        ratios=tuple(ratio for ratio, _ in known),
        crowded=tuple(t for ratio, t in known if ratio >= FOREIGN_CPU_RATIO),
        whole="the host's CPUs"
        if any(t.aside.foreign_of_all_cpus for _, t in known)
        else "the CPUs that the SUT may use",
    )
