"""CPUs and flows that the generators had in common with the SUT, and with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodrop.config.units import noun, parse_cpus
from nodrop.report import escape
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story, once
from nodrop.report.trials import Trial
from nodrop.untrusted.json_text import table_in, tables_in

REASON_WORDS = {
    "residual": "some packets are in no class",
    "not_read": "a counter could not be read",
    "sender_late": "the sender was late",
    "sender_burst": "packets were lost in a burst of a late sender",
    "cpu_stolen": "the hypervisor took CPU time that can explain the losses",
    "sender_short": "the sender sent fewer packets than asked for",
    "nothing_sent": "nothing was sent",
    "nothing_arrived": "nothing came to the receiving port: the cable leads elsewhere",
    "received_more_than_sent": "packets arrived or left that the generator did not send",
    "counters_disagree": "the SUT's counters contradict each other, or the kernel's",
    "sut_not_ready": "the SUT did not get ready in time",
    "sut_died": "the SUT died",
    "load_failed": "the generator broke down",
    "counters_moved_after_drain": "counters moved after the drain",
    "not_drained": "the SUT did not come to rest after the load",
    "other_bits": "what ran is not what the run says it measures",
    "no_rules": "rules were named, and none or not all of them loaded",
    "other_files": "the rules or the trace are not those that the run began with",
    "self_test_failed": "the self-test of a counter failed",
    "lab_problem": "the lab, or the place of the SUT, broke down",
    "books_differ": "the record says otherwise than its books or its trial.json",
    "books_missing": "its books are not there, and a record alone proves nothing",
    "clock_moved": "a host's clock moved against ours",
    "no_books": "there was nothing to balance",
    "traffic_before_ready": "traffic began before the SUT was ready",
}


def reason_words(code: str) -> str:
    """A plugin's own code stands as it is."""
    return REASON_WORDS.get(code, escape.plain(code))


def reasons_of(trial: Trial) -> list[str]:
    """For a failed trial, what the SUT did. What follows from that is no reason of its own."""
    return trial.record.failures or [*trial.invalid_reasons]


def counted(trials: Iterable[Trial]) -> Counter[str]:
    return Counter(code for trial in trials for code in dict.fromkeys(reasons_of(trial)))


def why(trials: Iterable[Trial]) -> str:
    """`the sender was late in 2, nothing was sent in 1`; without numbers if it is always so."""
    listed = list(trials)
    found = counted(listed)
    if len(found) == 1 or all(n == len(listed) for n in found.values()):
        return ", ".join(map(reason_words, found))
    return ", ".join(f"{reason_words(code)} in {n}" for code, n in found.most_common())


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
        words = f"in {plural(len(shared), 'trial')} the generator and the SUT may have taken "
        words += "turns on a CPU, or the generator cannot say (load.cpu and limits.cpus part them)"
        yield Sentence("cpus-shared", words, {"trials": len(shared)}, tuple(shared))
    if apart:
        pairs = "; ".join([*said][:3]) + ("; …" if len(said) > 3 else "")
        by = f", chosen by nodrop in {chosen}: the experiment names none" if chosen else ""
        words = f"in {plural(len(apart), 'trial')} the generator and the SUT had CPUs of their own"
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
        trials = noun(len(self.ratios), "trial")
        return f"in {len(self.crowded)} of {len(self.ratios)} {trials} more than {limit}"


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
