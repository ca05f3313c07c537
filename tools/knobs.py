"""The page of knobs: `python -m tools.knobs > docs/reference/knobs.md` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from nodrop.tune.knobs import KNOBS
from nodrop.tune.suricata_yaml import OF_SURICATA


def page() -> str:
    return "\n".join([*_lines(), *_suricata_lines()]) + "\n"


def _lines() -> Iterator[str]:
    yield "# Knobs of `nodrop tune`"
    yield ""
    yield (
        "`python -m tools.knobs` writes this page from the knobs in `src/nodrop/tune/knobs.py`; "
        "edit those. nodrop sets knobs in this order, because one further up may undo those "
        "further down. *Flaps*: on a hardware NIC the link goes down and "
        "up. A plugin adds knobs by an entry point of the group `nodrop.knobs`, which names one "
        "`Knob` or several. [How to use it](../how-to/tune.md)."
    )
    yield ""
    columns = ("knob", "what it is", "values", "flaps", "why", "wrong when", "source", "by hand")
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for knob in KNOBS:
        by_hand = knob.command.format(port="PORT", value="VALUE") or (
            f"echo … > /{knob.at if knob.of_host else 'sys/class/net/PORT/' + _plain(knob.at)}"
        )
        row = (
            f"**{knob.id}**",
            knob.title,
            knob.values,
            "yes" if knob.flaps else "no",
            knob.why,
            knob.wrong_when,
            knob.source,
            f"`{by_hand}`",
        )
        yield "| " + " | ".join(words.replace("|", "\\|") for words in row) + " |"


def _suricata_lines() -> Iterator[str]:
    yield ""
    yield "## Of Suricata"
    yield (
        "Values of its yaml: `nodrop tune plan --config suricata.yaml KNOB=VALUE` prints the "
        "change, `--write` writes `suricata.yaml.nodrop` beside it. `nodrop tune prove` sets them "
        "in the Suricata that it measures."
    )
    yield ""
    yield "| knob | in the yaml | values | why | source |"
    yield "|---|---|---|---|---|"
    for knob in OF_SURICATA:
        yield f"| **{knob.id}** | `{knob.path}` | {knob.values} | {knob.why} | {knob.source} |"


def _plain(pattern: str) -> str:
    return pattern.replace(r"\d+", "N")


if __name__ == "__main__":
    sys.stdout.write(page())
