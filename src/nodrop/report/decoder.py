"""Packets that the SUT decoded, but not whole, or that its decoder calls broken."""

from __future__ import annotations

from collections.abc import Iterator

from nodrop.report import escape
from nodrop.report import sentences as rules
from nodrop.report.searched import subject
from nodrop.report.sentences import Sentence, plural
from nodrop.report.story import Story, once
from nodrop.report.trials import Trial
from nodrop.results.packets import Remark
from nodrop.results.summary import not_whole

MEANS = {
    "cut": "no packet is lost by that, so it does not decide whether a load is carried; but what "
    "was cut off is not inspected",
    "invalid": "they count as carried, though most of the work on such a packet is not done",
}


@once
def decoder_sentences(story: Story) -> tuple[Sentence, ...]:
    return tuple(_sentences(story))


def _sentences(story: Story) -> Iterator[Sentence]:
    measured: dict[str, list[Trial]] = {}
    for cell in story.cells:
        measured.setdefault(subject(story, cell), []).extend(cell.valid)
    for whose, trials in measured.items():
        for about, rule in (("cut", rules.FRAMES_CUT), ("invalid", rules.FRAMES_INVALID)):
            found = [(t, share) for t in trials if (share := not_whole(t.record).get(about))]
            if found:
                worst, share = max(found, key=lambda one: one[1])
                remark = next(r for r in worst.record.packets.remarks if r.about == about)
                yield _sentence(whose, about, rule, remark, [t for t, _ in found], len(trials))


def _sentence(
    whose: str, about: str, rule: rules.Rule, remark: Remark, trials: list[Trial], measured: int
) -> Sentence:
    books = [trial.record.packets for trial in trials]
    worst = ", at the most" if len(trials) > 1 else ""
    return Sentence(
        rule=rule,
        subject=whose,
        text=f"{whose}: in {len(trials)} of {plural(measured, 'measured trial')}{worst}, "
        f"{escape.plain(remark.words, longest=1000)}: {MEANS[about]}.",
        knob=escape.plain(remark.knob, longest=1000),
        evidence={
            "packets": [b.cut_packets if about == "cut" else b.invalid_packets for b in books],
            "decoded_packets": [b.decoded_packets for b in books],
            "measured": measured,
        },
        trials=tuple(trials),
    )


def decoder_words(story: Story) -> list[str]:
    """For a terminal."""
    return [
        f"{one.text} What touches it: {one.knob}." if one.knob else one.text
        for one in decoder_sentences(story)
    ]
