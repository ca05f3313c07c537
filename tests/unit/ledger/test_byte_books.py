"""Bytes beside packets: a swap of packets shows, and nothing that is known to have gone does."""

from __future__ import annotations

import pytest

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import judge
from nodrop.results.ledger_file import ledger_from_json, ledger_to_json


def hop(name: str, packets: int, bytes: int | None, *, wire: bool = False) -> Hop:
    return Hop(name=name, packets=packets, counter="c", bytes=bytes, wire=wire)


def account(kind: Class, packets: int, bytes: int | None = None, into: str = "b") -> Account:
    return Account(into=into, kind=kind, name="x", packets=packets, counter="c", bytes=bytes)


def books(*hops: Hop, accounts: tuple[Account, ...] = (), longest: int | None = 1000) -> Ledger:
    ledger = balance(hops, accounts, longest_frame_bytes=longest)
    assert ledger_from_json(ledger_to_json(ledger)) == ledger
    return ledger


@pytest.mark.parametrize(
    ("swapped", "length", "by"), [(200, 1000, 60), (1, 60, 61), (7, 9014, 14), (50, 60, 1500)]
)
def test_as_many_other_packets_void_a_trial(swapped: int, length: int, by: int) -> None:
    sent = 2000 * length
    other = sent - swapped * length + swapped * by
    ledger = books(hop("a", 2000, sent), hop("b", 2000, other, wire=True), longest=length)
    assert ledger.residual_packets == 0
    assert ledger.residual_bytes == swapped * (length - by)
    assert not ledger.closed
    verdict = judge(ledger, Sending(intended_packets=2000, sent_packets=2000))
    assert [p.code for p in verdict.invalid_reasons] == ["residual"]
    assert f"{ledger.residual_bytes:+,d} bytes unexplained between a and b" in verdict.words


@pytest.mark.parametrize("kind", [Class.LOST, Class.MERGED, Class.HELD])
@pytest.mark.parametrize(
    ("missing", "residual"),
    [(140, 0), (10_000, 0), (139, -1), (10_001, 1), (0, -140), (-60, -200), (12_000, 2000)],
)
def test_packets_of_unknown_length_have_that_of_a_frame(
    kind: Class, missing: int, residual: int
) -> None:
    hops = (hop("a", 100, 50_000), hop("b", 90, 50_000 - missing))
    assert books(*hops, accounts=(account(kind, 10),)).residual_bytes == residual


def test_bytes_that_were_counted_are_taken_off() -> None:
    hops = (hop("a", 100, 50_000), hop("b", 90, 44_000))
    for counted, residual in ((6000, 0), (5999, 1), (0, 6000)):
        lost = account(Class.LOST, 10, counted)
        assert books(*hops, accounts=(lost,)).residual_bytes == residual


def test_what_came_in_has_any_length() -> None:
    ledger = books(
        hop("a", 100, 50_000), hop("b", 101, 90_000), accounts=(account(Class.FOREIGN, 1),)
    )
    assert ledger.residual_bytes is None
    # So have packets that are in no class.
    assert books(hop("a", 100, 50_000), hop("b", 90, 90_000)).residual_bytes is None


def test_a_hop_without_bytes_is_stepped_over() -> None:
    hops = (hop("a", 100, 50_000), hop("m", 98, None), hop("b", 95, 49_000))
    lost = (account(Class.LOST, 2, into="m"), account(Class.LOST, 3))
    assert books(*hops, accounts=lost).residual_bytes == 0
    (step,) = books(*hops, accounts=lost).byte_steps
    assert (step.start.name, step.end.name) == ("a", "b")
    assert books(hop("a", 9, 900), hop("b", 9, None)).residual_bytes is None


def test_what_the_longest_frame_is_unknown_bounds_nothing_from_above() -> None:
    hops = (hop("a", 100, 50_000), hop("b", 99, 1))
    assert books(*hops, accounts=(account(Class.LOST, 1),), longest=None).closed
