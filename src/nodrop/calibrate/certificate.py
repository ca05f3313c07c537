"""A certificate in a terminal: a row for each known answer, and its figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from nodrop.ledger.verdict import percent
from nodrop.results.calibration import Certificate, Pace
from nodrop.terminal.console import new_table

ANSWER_MARKS = {"caught": "✓", "missed": "✗", "not possible here": "–"}


def certificate_table(certificate: Certificate) -> Table:
    """`calibrate`: what was put in, what nodrop said, and whether that is true."""
    rows = (
        (known.name, known.put_in, "; ".join(filter(None, (known.seen, known.why))),
         f"{ANSWER_MARKS[known.answer]} {known.answer}", f"{known.took_s:.1f}")
        for known in certificate.known_answers
    )  # fmt: skip
    return new_table("case", "put in", "said", "", "s", rows=rows)


def certificate_words(certificate: Certificate) -> Iterator[str]:
    """The figures below the table."""
    missed, impossible = certificate.named("missed"), certificate.named("not possible here")
    tried = len(certificate.known_answers) - len(impossible)
    never = f", {len(impossible)} not possible here" if impossible else ""
    yield f"{certificate.key.setup}: {tried - len(missed)} of {tried} known answers caught{never}"
    for known in certificate.known_answers:
        if known.run_directory:
            yield f"the run of {known.name}: {known.run_directory}"
    if loss := certificate.smallest_loss:
        yield f"smallest loss named to the packet: {loss.packets:,} of {loss.of_packets:,}"
    if certificate.pace:
        yield pace_words(certificate.pace)
    if certificate.spread and (loss_ratio := certificate.spread.loss_ratio):
        runs, (low, high) = certificate.spread.runs, map(percent, loss_ratio)
        yield f"spread of one loss between {runs} runs of the same thing: {low} to {high}"
    if certificate.clocks:
        bound_us = max(clock.bound_ns for clock in certificate.clocks) / 1000
        yield f"clocks of the lab's hosts: their offset is known to within {bound_us:.1f} µs"


def pace_words(pace: Pace) -> str:
    if pace.largest_pps is None:
        return f"the sender is late already at {min(pace.tried_pps):,.0f} packets/s"
    words = f"the sender keeps its bounds up to {pace.largest_pps:,.0f} packets/s"
    return words + (", the most that was tried" if pace.largest_pps == max(pace.tried_pps) else "")
