"""The figures of the books and of the verdict in a trial record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nodrop.ledger.balance import Ledger
from nodrop.ledger.hops import CUT, Class
from nodrop.ledger.verdict import Verdict


def figures(ledger: Ledger | None, verdict: Verdict) -> dict[str, Any]:
    """Fields of a `TrialRecord`, by name. Without books every count is None: not measured."""
    found: dict[str, Any] = {
        "outcome": str(verdict.outcome),
        "valid": verdict.valid,
        "invalid_reasons": [str(problem.code) for problem in verdict.invalid_reasons],
        "verdict": verdict.words,
        "offered": {},
        "body": _of_the_verdict(verdict),
    }
    if ledger is not None:
        found["offered"] = {
            "intended": ledger.packets_at("intended"),
            "sent": ledger.packets_at("sent"),
            "unsent": ledger.total(Class.UNSENT),
        }
        found["body"] |= _of_the_books(ledger)
    return found


def _of_the_verdict(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {
        "loss_ratio": verdict.loss_ratio,
        "lost_beyond_bursts_packets": verdict.lost_beyond_bursts,
        "loss_place": verdict.place.name if verdict.place else None,
        "lost_by_place": {place.name: packets for place, packets in verdict.lost_at.items()},
        "lost_before_sut_packets": None
        if verdict.loss_ratio is None
        else sum(n for place, n in verdict.lost_at.items() if not place.within_sut),
        "loss_evidence": verdict.evidence,
        "loss_cause": verdict.cause,
        "loss_causes": [
            {
                "rule": str(cause.rule),
                "words": cause.words,
                "share": cause.share,
                "thread": cause.thread,
                "evidence": dict(cause.evidence),
            }
            for cause in verdict.causes
        ],
        "knob": verdict.knob,
        "remarks": [asdict(remark) for remark in verdict.remarks],
    }
    if verdict.pace is not None:
        found |= {
            "sustained": verdict.pace.sustained,
            "sustained_evidence": verdict.pace.evidence,
            "service_pps_at_least": verdict.pace.service_pps_at_least,
        }
    return found


def _of_the_books(ledger: Ledger) -> dict[str, Any]:
    absorbed, held = ledger.total(Class.MERGED), ledger.total(Class.HELD)
    cut = next((a for a in ledger.accounts if a.name == CUT), None)
    invalid = next((a for a in ledger.accounts if a.kind is Class.INVALID), None)
    return {
        "cut_packets": None if cut is None else cut.packets,
        "cut_bytes": None if cut is None else cut.bytes,
        "invalid_packets": None if invalid is None else invalid.packets,
        "decoded_bytes": next((h.bytes for h in ledger.hops if h.name == "decoded"), None),
        "captured_packets": ledger.packets_at("socket"),
        "decoded_packets": ledger.packets_at("decoded"),
        "lost_packets": ledger.total(Class.LOST),
        "merged_packets": absorbed + held,
        "merged_detail": {"absorbed_packets": absorbed, "held_packets": held},
        "foreign_packets": ledger.total(Class.FOREIGN),
        "copied_packets": ledger.total(Class.COPIED),
        "answered_packets": ledger.total(Class.ANSWERED),
        "residual_packets": ledger.residual_packets,
        "residual_bytes": ledger.residual_bytes,
        "residual_bytes_slack": ledger.slack_bytes,
        "books_closed": ledger.closed,
    }
