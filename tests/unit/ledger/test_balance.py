"""The packet books close, or say by how much they do not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import ADDING, NO_PACKETS, Account, Class, Hop
from nodrop.results.ledger_file import ledger_from_json, ledger_to_json

BALANCED = [kind for kind in Class if kind not in NO_PACKETS]


def hop(name: str, packets: int | None, *, wire: bool = False) -> Hop:
    return Hop(name=name, packets=packets, counter=f"counter of {name}", wire=wire)


def account(into: str, kind: Class, packets: int) -> Account:
    return Account(into=into, kind=kind, name=f"{kind}_x", packets=packets, counter="c")


@st.composite
def true_books(draw: st.DrawFn) -> tuple[list[Hop], list[Account]]:
    """Hops whose differences are exactly the accounts between them."""
    stream = draw(st.integers(10_000, 10_000_000))
    hops = [hop("h0", stream)]
    accounts: list[Account] = []
    for i in range(1, draw(st.integers(2, 7))):
        for kind in draw(st.lists(st.sampled_from(BALANCED), max_size=4)):
            packets = draw(st.integers(0, 400))
            accounts.append(account(f"h{i}", kind, packets))
            stream += packets if kind in ADDING else -packets
        hops.append(hop(f"h{i}", stream))
    return hops, accounts


@given(true_books())
def test_true_books_close(books: tuple[list[Hop], list[Account]]) -> None:
    ledger = balance(*books)
    assert ledger.closed
    assert [step.residual_packets for step in ledger.steps] == [0] * (len(books[0]) - 1)
    hops = books[0]
    taken = ledger.total(Class.UNSENT, Class.LOST, Class.MERGED, Class.HELD)
    assert hops[0].packets == (hops[-1].packets or 0) + taken - ledger.total(*ADDING)


@given(true_books(), st.data(), st.integers(-500, 500).filter(bool))
def test_a_wrong_counter_opens_the_books_by_exactly_that_much(
    books: tuple[list[Hop], list[Account]], data: st.DataObject, error: int
) -> None:
    hops, accounts = books
    at = data.draw(st.integers(0, len(hops) - 1))
    wrong = list(hops)
    wrong[at] = replace(hops[at], packets=(hops[at].packets or 0) + error)
    ledger = balance(wrong, accounts)
    assert not ledger.closed
    residuals = [step.residual_packets for step in ledger.steps]
    expected = [0] * (len(hops) - 1)
    if at > 0:
        expected[at - 1] = -error
    if at < len(hops) - 1:
        expected[at] = error
    assert residuals == expected


@given(true_books(), st.data())
def test_an_unreadable_hop_in_between_is_skipped_and_named(
    books: tuple[list[Hop], list[Account]], data: st.DataObject
) -> None:
    hops, accounts = books
    blind = data.draw(st.sets(st.integers(1, max(1, len(hops) - 2)))) if len(hops) > 2 else set()
    seen = [replace(h, packets=None) if i in blind else h for i, h in enumerate(hops)]
    ledger = balance(seen, accounts)
    assert ledger.closed
    assert ledger.residual_packets == 0
    assert set(ledger.invisible) == {f"h{i}" for i in blind}
    assert {name for step in ledger.steps for name in step.over} == set(ledger.invisible)
    assert ledger.totals == balance(hops, accounts).totals


@given(true_books())
def test_not_for_us_is_listed_but_never_balanced(books: tuple[list[Hop], list[Account]]) -> None:
    hops, accounts = books
    stray = account(hops[-1].name, Class.NOT_FOR_US, 340)
    ledger = balance(hops, [*accounts, stray])
    assert ledger.closed
    assert stray in ledger.accounts
    assert all(stray not in step.accounts for step in ledger.steps)


@given(true_books())
def test_a_ledger_survives_its_file(books: tuple[list[Hop], list[Account]]) -> None:
    ledger = balance(*books)
    assert ledger_from_json(ledger_to_json(ledger)) == ledger


def test_what_a_cable_misses_is_lost_on_it() -> None:
    ledger = balance([hop("tx_nic", 1000), hop("rx_nic", 990, wire=True)], [])
    assert ledger.closed
    (lost,) = ledger.accounts
    assert (lost.kind, lost.name, lost.packets, lost.into) == (
        Class.LOST,
        "path_lost",
        10,
        "rx_nic",
    )
    assert lost.evidence == "tx_nic 1,000, rx_nic 990"
    assert ledger_from_json(ledger_to_json(ledger)) == ledger


def test_what_a_cable_adds_is_foreign() -> None:
    ledger = balance([hop("tx_nic", 1000), hop("rx_nic", 1003, wire=True)], [])
    (foreign,) = ledger.accounts
    assert (foreign.kind, foreign.name, foreign.packets) == (Class.FOREIGN, "path_foreign", 3)


def test_known_accounts_come_before_what_a_cable_derives() -> None:
    known = account("rx_nic", Class.FOREIGN, 2)
    ledger = balance([hop("tx_nic", 1000), hop("rx_nic", 1000, wire=True)], [known])
    assert [(a.name, a.packets) for a in ledger.accounts] == [("foreign_x", 2), ("path_lost", 2)]


@pytest.mark.parametrize("blind", [0, 2])
def test_books_with_an_unreadable_end_do_not_close(blind: int) -> None:
    hops = [hop("sent", 10), hop("socket", 10), hop("decoded", 10)]
    hops[blind] = replace(hops[blind], packets=None)
    ledger = balance(hops, [])
    assert ledger.residual_packets == 0
    assert not ledger.closed


def test_an_account_no_step_can_carry_keeps_the_books_open() -> None:
    lost = account("decoded", Class.LOST, 4)
    ledger = balance([hop("sent", 10), hop("socket", 10), hop("decoded", None)], [lost])
    assert ledger.unplaced == (lost,)
    assert not ledger.closed


def test_opposite_errors_do_not_cancel() -> None:
    ledger = balance([hop("a", 10), hop("b", 12), hop("c", 10)], [])
    assert ledger.residual_packets == 0
    assert not ledger.closed


@pytest.mark.parametrize(
    ("hops", "accounts"),
    [
        ([hop("a", 1), hop("a", 1)], []),
        ([hop("a", -1), hop("b", 1)], []),
        ([hop("a", 1), hop("b", 1)], [account("nowhere", Class.LOST, 1)]),
        ([hop("a", 1), hop("b", 1)], [account("b", Class.LOST, -1)]),
    ],
)
def test_books_that_make_no_sense_are_refused(hops: list[Hop], accounts: list[Account]) -> None:
    with pytest.raises(ValueError):
        balance(hops, accounts)


def test_the_worked_example_of_three_passes() -> None:
    """303,513 sent, 299,244 decoded, nothing lost (measured with Suricata 7.0.10, defrag: yes)."""
    ledger = three_passes()
    assert ledger.closed
    assert ledger.total(Class.MERGED, Class.HELD) == 4269 == 4116 + 153
    assert ledger.total(Class.LOST) == 0


def three_passes() -> Ledger:
    hops = [
        hop("intended", 303_513),
        hop("sent", 303_513),
        hop("tx_nic", 303_513),
        hop("rx_nic", 303_513, wire=True),
        hop("socket", 299_244),
        hop("decoded", 299_244),
    ]
    absorbed = replace(
        account("socket", Class.MERGED, 4500 - 384),
        details=(("fragments", 4500), ("datagrams", 384)),
    )
    return balance(
        hops,
        [
            account("sent", Class.UNSENT, 0),
            absorbed,
            account("socket", Class.HELD, 153),
            account("rx_nic", Class.NOT_FOR_US, 1020),
        ],
    )


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("packets", "7"),
        ("bytes", [[]]),
        ("bytes", {}),
        ("bytes_between", ""),
        ("bytes_between", [1]),
    ],
)
def test_a_count_that_is_no_whole_number_makes_no_ledger(name: str, spoilt: object) -> None:
    lost = account("rx", Class.LOST, 1)
    kept = json.loads(json.dumps(ledger_to_json(balance([hop("tx", 9), hop("rx", 8)], [lost]))))
    kept["accounts"][0][name] = spoilt
    with pytest.raises((TypeError, ValueError)):
        ledger_from_json(kept)
