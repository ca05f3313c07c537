"""ledger.json, the packet books of a trial: hops and accounts are the facts, the rest follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nodrop.ledger.balance import Ledger, balance
from nodrop.ledger.hops import PATH_FOREIGN, PATH_LOST, Account, Hop
from nodrop.ledger.quantities import Signed
from nodrop.untrusted.json_text import first_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class BookFacts:
    hops: tuple[Hop, ...]
    accounts: tuple[Account, ...]
    longest_frame_bytes: Signed | None = None


@cache
def _facts() -> TypeAdapter[BookFacts]:
    return TypeAdapter(BookFacts)


def ledger_to_json(ledger: Ledger) -> dict[str, Any]:
    longest = ledger.longest_frame_bytes
    given = BookFacts(hops=ledger.hops, accounts=ledger.accounts, longest_frame_bytes=longest)
    facts = _facts().dump_python(given, mode="json")
    return {
        "hops": facts["hops"],
        "accounts": facts["accounts"],
        "steps": [
            {
                "from": step.start.name,
                "into": step.end.name,
                "over": [*step.over],
                "residual_packets": step.residual_packets,
            }
            for step in ledger.steps
        ],
        "byte_steps": [
            {
                "from": step.start.name,
                "into": step.end.name,
                "residual_bytes": step.residual_bytes,
                "slack_bytes": step.slack_bytes,
            }
            for step in ledger.byte_steps
        ],
        "longest_frame_bytes": longest,
        "totals": {kind.value: packets for kind, packets in ledger.totals.items()},
        "residual_packets": ledger.residual_packets,
        "closed": ledger.closed,
    }


def ledger_from_json(table: object) -> Ledger:
    """Balances the recorded facts again: a ledger is believed if it adds up, not on its word.
    ValueError, in one sentence, if it is damaged."""
    try:
        facts = _facts().validate_python(table)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    given = [account for account in facts.accounts if account.name not in (PATH_LOST, PATH_FOREIGN)]
    return balance(facts.hops, given, longest_frame_bytes=facts.longest_frame_bytes)
