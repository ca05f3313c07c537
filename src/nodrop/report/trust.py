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
from nodrop.report import escape, numbers
from nodrop.report.hosts import hosts_sentences
from nodrop.report.repeats import outlying, stopped
from nodrop.report.sensor import sensor_sentences
from nodrop.report.sentences import Sentence, reason_words, reasons_of
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
    hosts = {f"{escape.plain(name)}: ": host for name, host in measured_on(manifest).items()}
    return [
        (well, f"{name}{words}")
        for name, host in (hosts or {"": manifest}).items()
        for well, words in map(_certificate_words, tables_in(host, "calibration"))
    ]


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
    words = f"{setup} stands on the certificate of {made}: "
    words += f"{len(caught)} of {len(caught) + len(missed)} known answers caught"
    if missed:
        words += f", missed {', '.join(missed)}"
    if impossible:
        words += f"; not possible here: {', '.join(impossible)}"
    loss = table_in(certificate, "smallest_loss")
    packets, of_packets = loss.get("packets"), loss.get("of_packets")
    if isinstance(packets, int) and isinstance(of_packets, int):
        said = f"{numbers.count(packets)} of {numbers.count(of_packets)}"
        words += f"; smallest loss named to the packet {said}"
    pace = certificate.get("largest_pps_paced")
    if isinstance(pace, int | float):
        words += f"; sender within its bounds up to {numbers.count(pace)} packets/s"
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
        words = "the record says otherwise than its books, balanced again here, or its trial.json"
        yield Sentence("books-differ", words, trials=differ)
    if missing := tuple(t for t in story.trials if BOOKS_MISSING in t.invalid_reasons):
        words = f"the books of {count_of(len(missing), 'trial')} that were measured are not there: "
        words += "what their records say is not proved, and enters no figure"
        yield Sentence("books-missing", words, trials=missing)
    n = len(story.trials)
    if closed := sum(t.closed and BOOKS_DIFFER not in t.invalid_reasons for t in story.trials):
        words = f"the books of {closed} of {count_of(n, 'trial')} were balanced again: residual 0"
        yield Sentence("books-balanced-again", words, {"closed": closed, "trials": n})


def _sender(story: Story) -> Iterator[Sentence]:
    measured = [(t, t.record.offered) for t in story.trials if t.valid]
    late = [(e.p99, e.max) for _, sent in measured if (e := sent.schedule_error_us)]
    if late:
        p99, most = (max(ends) for ends in zip(*late, strict=True))
        yield Sentence(
            "sender-lateness",
            f"in {len(late)} of {count_of(len(measured), 'measured trial')} the sender's "
            f"schedule error is known: its p99 was at most {numbers.millis(p99)} ms, its largest "
            f"{numbers.millis(most)} ms",
            {"p99_us": p99, "max_us": most, "trials": len(late)},
        )
    bursts = [(burst, t) for t, sent in measured if (burst := sent.largest_late_burst)]
    if bursts:  # one that could explain losses made its trial void
        burst, trial = max(bursts, key=lambda pair: pair[0].sent)
        lost = trial.lost_packets
        yield Sentence(
            "sender-burst",
            f"the largest burst of a late sender in a measured trial was "
            f"{count_of(burst.sent, 'packet')}, {numbers.millis(burst.late_us)} ms behind; "
            f"lost in that trial: {'not known' if lost is None else lost}",
            {"packets": burst.sent, "late_us": burst.late_us, "lost_packets": lost},
            (trial,),
        )
    shaped = [
        (asked.p99, sent.shaped_per_s, t)
        for t, sent in measured
        if sent.shaped_per_s is not None
        and (asked := sent.asked_schedule_error_us) is not None
        and asked.p99 > LATE_FOR_THE_TRACE_US
    ]
    if shaped:
        p99, slowest = max(p for p, _, _ in shaped), min(pps for _, pps, _ in shaped)
        yield Sentence(
            "sender-shaped",
            f"in {count_of(len(shaped), 'measured trial')} the trace asks for more at once than "
            f"the sender sends: that left at {numbers.count(slowest)} packets/s or faster, at p99 "
            f"up to {numbers.millis(p99)} ms after the trace's own time",
            {"asked_p99_us": p99, "shaped_pps": slowest, "trials": len(shaped)},
            tuple(t for _, _, t in shaped),
        )
    if silent := tuple(t for t, sent in measured if sent.schedule_error_us is None):
        has = "has" if len(silent) == 1 else "have"
        words = f"{count_of(len(silent), 'measured trial')} {has} no schedule error: the generator "
        words += "cannot say it, or had no schedule"
        yield Sentence("sender-silent", words, {"trials": len(silent)}, silent)


LATE_FOR_THE_TRACE_US = 1_000


def _foreign(story: Story) -> Iterator[Sentence]:
    found = [(t, n) for t in story.trials if (n := t.record.packets.foreign_packets)]
    if found:
        words, trials = "packets that the generator did not send were seen", [t for t, _ in found]
        evidence = {t.name: n for t, n in found}
        yield Sentence("foreign-packets", words, evidence, tuple(trials))


def _other_programs(story: Story) -> Iterator[Sentence]:
    found = other_programs(story)
    known, most = len(found.ratios), max(found.ratios, default=0.0)
    used = f"used at most {most * 100:.0f} % of {found.whole} under load"
    evidence = {"most_ratio": most, "trials": known}
    if found.crowded:
        words = f"other programs {used}; {found.words}"
        yield Sentence("host-crowded", words, evidence, found.crowded)
    elif found.ratios:
        words = f"the host was quiet: other programs {used}"
        if known != len(story.trials):
            words += f" (known of {known} of {count_of(len(story.trials), 'trial')})"
        yield Sentence("host-quiet", words, evidence)


def _own_quota(story: Story) -> Iterator[Sentence]:
    seen = ((t, t.record.disturbed) for t in story.trials)
    found = [(t, one.quota) for t, one in seen if one and one.quota is not None]
    if not found:
        return
    worst = max((quota for _, quota in found), key=lambda quota: quota.throttled_s)
    yield Sentence(
        "own-quota",
        f"a CPU quota around nodrop itself ({worst.cpus:g} CPUs, {worst.group}) held it back "
        f"in {len(found)} of {count_of(len(story.trials), 'trial')}, for up to "
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
    figures = [
        {
            "run": one.trial.name,
            "figure": one.figure.name,
            "value": one.found.value,
            "median": one.found.median,
        }
        for one in found
    ]
    yield Sentence(
        "stands-apart",
        f"{count_of(len(trials), 'trial')} {stand} apart from the others of {others} "
        f"({titles}); marked, and in every figure like the others",
        {"figures": figures},
        trials,
    )


def _cold(story: Story) -> Iterator[Sentence]:
    times = [(t.activation_s, t) for t in story.trials if t.activation_s is not None]
    if len(times) < 3:
        return
    took, first = times[0]
    middle = sorted(took for took, _ in times)[len(times) // 2]
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
    warmed = [(t, found) for t in story.trials if (found := t.aside.warm_up) is not None]
    if not warmed:
        return
    sent = sum(n for _, w in warmed if isinstance(n := w.get("offered_packets"), int))
    yield Sentence(
        "guest-warmed-up",
        f"{count_of(len(warmed), 'trial')} began in a guest that had just booted: each first "
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
            f"{count_of(len(story.trials), 'trial')}, and all was found as before; until then "
            f"{numbers.seconds(median(times))} s went by (median), which are in no figure",
            {"trials": len(times), "median_s": median(times)},
        )


def self_test_words(source: Source) -> str:
    """A sentence on what the probe proved on this kernel; empty if it is not recorded."""
    manifest = source.run.manifest
    hosts = {f"{escape.plain(name)}: ": host for name, host in measured_on(manifest).items()}
    each = ((name, _self_test_words(one)) for name, one in (hosts or {"": manifest}).items())
    return " ".join(f"{name}{words}" for name, words in each if words)


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
        words = f"in {count_of(len(shared), 'trial')} the generator and the SUT may have taken "
        words += "turns on a CPU, or the generator cannot say (load.cpu and limits.cpus part them)"
        yield Sentence("cpus-shared", words, {"trials": len(shared)}, tuple(shared))
    if apart:
        pairs = "; ".join([*said][:3]) + ("; …" if len(said) > 3 else "")
        by = f", chosen by nodrop in {chosen}: the experiment names none" if chosen else ""
        words = f"in {count_of(len(apart), 'trial')} generator and SUT had CPUs of their own"
        evidence = {"trials": len(apart), "chosen_by_nodrop": chosen, "cpus": [*said]}
        yield Sentence("cpus-apart", f"{words} ({pairs}{by})", evidence, tuple(apart))


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
        yield Sentence(
            "flows-differ",
            "what the flows alone make of a load: replicas of the trace had flows of their "
            f"own with {' and '.join(distinct)}, the same flows with {' and '.join(same)}, so "
            'these loads are not the same traffic (load.flows = "same" makes them so)',
            {"distinct": [*distinct], "same": [*same]},
        )


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
