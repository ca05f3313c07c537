"""The table of Suricata's counters: each row is a loss for drops and a finding for audit."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.audit.audit_answer import findings
from nodrop.audit.kinds import KINDS
from nodrop.drops.places import ANALYSIS
from nodrop.sensor.suricata_counters import LossCounter, loss_counters, matches, table
from tests.unit.audit.made_host import MadeHost
from tests.unit.drops.test_capture_books import port, program, said, sock
from tests.unit.drops.test_places import interval

LOST, NO_LOSS = loss_counters(), table()["no_loss"]


@pytest.mark.parametrize("row", LOST, ids=lambda row: row.counter)
def test_drops_and_audit_say_each_counter_that_rises(row: LossCounter) -> None:
    counter = row.counter.replace("*", "ssh")
    caps = {row.memcap: "3mb"} if row.memcap else {}

    def at(value: int) -> dict[str, Any]:
        told = said(0, 0, counters={counter: value, "decoder.pkts": 9}, memcaps=caps)
        one = {"7": program(suricata=told)}
        return {"sockets": [sock(41, 0, 0)], "ports": [port((0, 0))], "programs": one}

    (found,) = interval(at(2), at(13)).answer.places
    assert (found.place, found.counter, found.total) == (ANALYSIS, counter, 11)
    assert row.loses in found.why and row.setting in found.why
    assert ("memcap-set" in found.do) == bool(row.memcap)
    assert (row.memcap or row.setting) in found.do

    host = MadeHost()
    host.suricata["answers"]["counters"] = {counter: 13}
    (seen,) = [one for one in findings(host.world()) if one.id == row.finding]
    assert row.loses in seen.says and "13 times" in seen.says and row.setting in seen.change
    assert seen.read[0].value == f"{counter} 13"


def test_no_counter_is_a_loss_and_none_at_once() -> None:
    lost = [row.counter for row in LOST]
    none = [one for each in NO_LOSS for one in each["counters"]]
    assert len({*lost, *none}) == len(lost) + len(none)
    assert [n for n in lost if any(matches(one, n) for one in none)] == []
    assert {row.finding for row in LOST} <= {kind.id for kind in KINDS}
    assert [each["counters"] for each in NO_LOSS if not each["because"]] == []


@pytest.mark.parametrize(
    ("family", "name", "member"),
    [
        ("app_layer.error.*.alloc", "app_layer.error.http.alloc", True),
        ("app_layer.error.*.alloc", "app_layer.error.http.more.alloc", False),
        ("decoder.event.*", "decoder.event.ipv4.frag_overlap", True),
        ("flow.memcap", "flow.memcaps", False),
    ],
)
def test_a_family_has_names_of_its_form(family: str, name: str, member: bool) -> None:
    assert matches(family, name) is member
