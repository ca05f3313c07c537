"""CPUs and flows that the generators had in common with the SUT, and with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodrop.config.units import parse_cpus
from nodrop.report import escape
from nodrop.report import sentences as rules
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story
from nodrop.report.trials import Trial


def cpus_of_both(story: Story) -> Iterator[Sentence]:
    """Trials of older runs do not record it."""
    shared: list[Trial] = []
    apart: list[Trial] = []
    for trial in story.trials:
        theirs = _cpus(trial.record.sut_cpus)
        if theirs:
            own = _cpus(trial.record.generator_cpus)
            turns = not _elsewhere(trial) and (own is None or own & theirs)
            (shared if turns else apart).append(trial)
    if shared:
        yield Sentence(
            rule=rules.CPUS_SHARED,
            text=f"in {plural(len(shared), 'trial')} the generator and the SUT may have taken "
            "turns on a CPU, or the generator cannot say (load.cpu and limits.cpus part them)",
            evidence={"trials": len(shared)},
            trials=tuple(shared),
        )
    if apart:
        chosen = sum(trial.record.cpus_parted is True for trial in apart)
        said = dict.fromkeys(map(_both, apart))
        words = "; ".join([*said][:3]) + ("; …" if len(said) > 3 else "")
        by = f", chosen by nodrop in {chosen}: the experiment names none" if chosen else ""
        yield Sentence(
            rule=rules.CPUS_APART,
            good=True,
            text=f"in {plural(len(apart), 'trial')} the generator and the SUT had CPUs of their "
            f"own ({words}{by})",
            evidence={"trials": len(apart), "chosen_by_nodrop": chosen, "cpus": [*said]},
            trials=tuple(apart),
        )


def _both(trial: Trial) -> str:
    generator, sut = trial.record.generator_cpus or "", trial.record.sut_cpus or ""
    if _elsewhere(trial):
        generator = "on a machine of its own"
    return f"generator {escape.plain(generator)}, SUT {escape.plain(sut)}"


def _elsewhere(trial: Trial) -> bool:
    return trial.record.cpus_in_common is False


def _cpus(words: str | None) -> frozenset[int] | None:
    return None if words is None else frozenset(parse_cpus(words))


def flows_differ(story: Story) -> Iterator[Sentence]:
    """N copies with the same flows are another load than N replicas with flows of their own."""
    by_flows: dict[str, dict[str, None]] = {}
    for source in story.sources:
        listed = source.run.manifest.get("loads")
        for load in listed if isinstance(listed, list) else []:
            options = load.get("options") if isinstance(load, Mapping) else None
            if isinstance(options, Mapping) and _several(options):
                name = escape.plain(load.get("generator") or "a generator")
                by_flows.setdefault(str(options.get("flows")), {})[name] = None
    distinct, same = by_flows.get("distinct"), by_flows.get("same")
    if distinct and same:
        yield Sentence(
            rule=rules.FLOWS_DIFFER,
            text="what the flows alone make of a load: replicas of the trace had flows of their "
            f"own with {_listed(distinct)}, the same flows with {_listed(same)}, so these loads "
            'are not the same traffic (load.flows = "same" makes them so)',
            evidence={"distinct": [*distinct], "same": [*same]},
        )


def _several(options: Mapping[str, Any]) -> bool:
    multiplier = options.get("multiplier")
    return isinstance(multiplier, int | float) and multiplier > 1


def _listed(names: Mapping[str, None]) -> str:
    return " and ".join(names)
