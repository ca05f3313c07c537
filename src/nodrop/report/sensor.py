"""Inputs of the user that were not taken as they are: captures that were changed before they were
sent, rules that were not measured, keys of a yaml that were replaced."""

from __future__ import annotations

from collections.abc import Iterator

from nodrop.report import escape, numbers
from nodrop.report import sentences as rules
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story
from nodrop.report.trials import Sensor, Trial

MOST_NAMED = 5
"""Rules in a sentence, keys in a line of a terminal."""
LOG = "engine.json"


def sensor_sentences(story: Story) -> Iterator[Sentence]:
    yield from trace_changes(story)
    found: dict[Sensor, list[Trial]] = {}
    for trial in story.trials:
        if (sensor := trial.aside.sensor) is not None:
            found.setdefault(sensor, []).append(trial)
    for sensor, trials in found.items():
        yield from _rules(sensor, tuple(trials))
        yield from _yaml(sensor, tuple(trials))


def sensor_words(story: Story) -> list[str]:
    """For a terminal, whose reader has the page for more."""
    told = []
    for one in sensor_sentences(story):
        if one.rule is not rules.YAML_REPLACED:
            told.append(f"{one.text}.")
            continue
        keys = [_plain(row["key"]) for row in one.evidence["replaced"]]
        more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
        named = f"{', '.join(keys[:MOST_NAMED])}{more}"
        told.append(
            f"{plural(len(keys), 'key')} of {_plain(one.evidence['yaml'])} replaced: {named} "
            "(see Trust)."
        )
    return [*dict.fromkeys(told)]


def trace_changes(story: Story) -> Iterator[Sentence]:
    """Sentences on changes made to captures before they were sent, and on oddities in them."""
    found: dict[str, str] = {}
    for source in story.sources:
        loads = source.run.manifest.get("loads")
        for load in loads if isinstance(loads, list) else []:
            if not isinstance(load, dict):
                continue
            ports = load.get("ports")
            of_ports = ports if isinstance(ports, list) else []
            for one in (load.get("captured"), *of_ports):
                words = one.get("words") if isinstance(one, dict) else None
                for said in words if isinstance(words, list) else []:
                    trace = escape.plain(one.get("trace"), longest=1000).rpartition("/")[2]
                    found[escape.plain(f"{trace}: {said}", longest=1000)] = trace
    for text, trace in found.items():
        yield Sentence(rule=rules.TRACE_CHANGED, text=text, evidence={"trace": trace})


def _rules(sensor: Sensor, trials: tuple[Trial, ...]) -> Iterator[Sentence]:
    loaded, failed = sensor.rules_loaded, sensor.rules_failed
    if loaded is not None and failed:
        named = "; ".join(map(_plain, sensor.failed_first[:MOST_NAMED]))
        more = failed - len(sensor.failed_first[:MOST_NAMED])
        beyond = f" and {numbers.count(more)} more, in {LOG} of each trial" if more > 0 else ""
        did = "did not load and is" if failed == 1 else "did not load and are"
        yield Sentence(
            rule=rules.RULES_NOT_LOADED,
            text=f"{numbers.count(failed)} of {numbers.count(loaded + failed)} rules {did} not "
            f"measured: {named}{beyond}",
            evidence={"loaded": loaded, "failed": failed, "first": [*sensor.failed_first]},
            trials=trials,
        )
    if sensor.rules_skipped:
        yield Sentence(
            rule=rules.RULES_NOT_LOADED,
            text=f"{plural(sensor.rules_skipped, 'rule')} skipped by Suricata for want of what "
            "they require",
            evidence={"loaded": loaded, "skipped": sensor.rules_skipped},
            trials=trials,
        )
    if sensor.rules_lacking:
        lacking = [*map(_plain, sensor.rules_lacking)]
        is_are = "is" if len(lacking) == 1 else "are"
        yield Sentence(
            rule=rules.RULES_NOT_LOADED,
            text=f"rule-files of {_plain(sensor.yaml)} names what {is_are} not there, and was not "
            f"measured: {', '.join(lacking[:MOST_NAMED])}"
            + (f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""),
            evidence={"yaml": sensor.yaml, "lacking": lacking},
            trials=trials,
        )


def _yaml(sensor: Sensor, trials: tuple[Trial, ...]) -> Iterator[Sentence]:
    if not sensor.yaml or not sensor.replaced:
        return
    listed = "; ".join(
        f"{_plain(key)} ({_plain(was)} → {_plain(now)})" for key, was, now in sensor.replaced
    )
    yield Sentence(
        rule=rules.YAML_REPLACED,
        good=True,
        text=f"{plural(len(sensor.replaced), 'key')} of {_plain(sensor.yaml)} replaced, and all "
        f"others kept: {listed}",
        evidence={
            "yaml": sensor.yaml,
            "replaced": [{"key": key, "was": was, "now": now} for key, was, now in sensor.replaced],
        },
        trials=trials,
    )


def _plain(text: str | None) -> str:
    return "not there" if text is None else escape.plain(text)
