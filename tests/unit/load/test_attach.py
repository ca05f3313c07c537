"""The load of attaches: its table, and what it makes of what its node job says."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodrop.errors import BadInput
from nodrop.ledger.transactions import Latency
from nodrop.testbed.load.attach import Attach, transactions


def load(**options: Any) -> Attach:
    return Attach({"kind": "attach", "rate": 400, **options}, base=Path())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "load.count = 0"),
        ({"count": (1 << 24) + 1}, "load.count"),
        ({"count": 1, "rate": 0}, "load.rate = 0"),
        ({"count": 1, "rate": -400}, "load.rate = -400"),
        ({"count": 1, "rate": 1e300}, "load.rate"),
        ({}, "count and duration_s"),
        ({"count": 1, "duration_s": 1}, "count and duration_s"),
        ({"duration_s": 86_400, "rate": 1e6}, "more than 16,777,216"),
        ({"count": 1 << 24, "rate": 0.1}, "longer than a day"),
        ({"count": 1, "k": "465b5ce8b199b49faa5f0a2ee238a6"}, "load.k"),
        ({"count": 1, "opc": "+d63cb71954a9f4e48a5994e37a02baf"}, "load.opc"),
        ({"count": 1, "first_imsi": "00101000000001"}, "load.first_imsi"),
        ({"count": 2, "first_imsi": "999999999999999"}, "first_imsi "),
        ({"count": 5, "subscribers": 4}, "subscribers "),
        ({"count": 1, "subscribers_file": "no.csv"}, "load.subscribers_file"),
        ({"count": 1, "eea": []}, "load.eea = []: "),
        ({"count": 1, "eia": []}, "load.eia = []: "),
        ({"count": 1, "eea": [4]}, "load.eea.0 = 4"),
        ({"count": 1, "eia": [2, 0]}, "load.eia.1 = 0"),
        ({"count": 1, "mnc": "1"}, "load.mnc"),
        ({"count": 1, "enb_id": 1 << 20}, "load.enb_id"),
        ({"count": 1, "hold_s": -1}, "load.hold_s"),
        ({"count": 1, "timeout_s": 0}, "load.timeout_s"),
        ({"count": 1, "enodebs": 0}, "load.enodebs"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_by_name(options: Any, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(**options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_length_or_a_number_of_ues_is_the_same_load() -> None:
    by_count, by_time = load(count=4000), load(duration_s=10)
    assert by_count.options.ues == by_time.options.ues == 4000
    assert by_count.duration_s() == by_time.duration_s() == 10.0


class Said:
    """A host whose node jobs are as they were asked for, and end at once."""

    name = "here"
    pid = 1

    def __init__(self) -> None:
        self.ready = {"setup_ns": [5]}
        self.specs: list[dict[str, Any]] = []

    def job(self, spec: dict[str, Any], **_: object) -> Any:
        self.specs.append(spec)
        return self

    def start(self) -> None: ...

    def close(self) -> None: ...

    def result(self, **_: object) -> dict[str, Any]:
        began = {"start_mono_ns": 0, "last_start_ns": 0, "lateness_us": LATENCY, "cpu_s": 0.1}
        return SAID | began


@pytest.mark.parametrize(
    ("subscribers", "firsts"),
    [
        (None, ["001010000000001", "001010000000004", "001010000000007", "001010000000010"]),
        (7, ["001010000000001", "001010000000004", "001010000000001", "001010000000004"]),
        (3, ["001010000000001"] * 4),
    ],
)
def test_an_mme_that_stands_is_offered_new_imsis_in_each_trial(
    subscribers: int | None, firsts: list[str]
) -> None:
    host, asked = Said(), load(count=3, subscribers=subscribers)
    link = cast(Any, SimpleNamespace(tx=SimpleNamespace(host=host), servers=["10.0.0.1:1"]))
    with asked.prepare(link, work=Path(), journal=cast(Any, None)) as offerer:
        for _ in range(3):
            offerer.offer(timeout_s=1, tick=lambda _: None)
            offerer.aim(asked, work=Path())
    assert [spec["first_imsi"] for spec in host.specs] == firsts
    with asked.prepare(link, work=Path(), journal=cast(Any, None)):
        assert host.specs[-1]["first_imsi"] == firsts[0], "an MME that was started anew knows none"


def test_ues_of_a_file_are_offered_in_its_order_of_imsis_with_their_keys(tmp_path: Path) -> None:
    def line(number: int) -> str:
        return f"0010100000{number:05},{number:032x},{number:032x}"

    def of(**options: Any) -> Attach:
        table = {"kind": "attach", "rate": 400, "subscribers_file": "all.csv", **options}
        return Attach(table, base=tmp_path)

    (tmp_path / "all.csv").write_text("\n".join(["imsi,k,opc", *map(line, range(9, 1, -1))]))
    with pytest.raises(BadInput, match=r"all\.csv: .* 8 .* 9 "):
        of(count=9)
    with pytest.raises(BadInput, match="load: subscribers: "):
        of(count=3, subscribers=8)
    host, asked = Said(), of(count=3)
    link = cast(Any, SimpleNamespace(tx=SimpleNamespace(host=host), servers=["10.0.0.1:1"]))
    with asked.prepare(link, work=Path(), journal=cast(Any, None)) as offerer:
        for _ in range(2):
            offerer.offer(timeout_s=1, tick=lambda _: None)
            offerer.aim(asked, work=Path())
    found = [[int(usim["imsi"][-5:]) for usim in spec["usims"]] for spec in host.specs]
    assert found == [[2, 3, 4], [5, 6, 7], [2, 3, 4]], "an MME that stands is offered new ones"
    assert host.specs[1]["usims"][0] == {
        "imsi": "001010000000005",
        "k": f"{5:032x}",
        "opc": f"{5:032x}",
    }
    assert "all.csv" not in json.dumps(host.specs)


LATENCY = {"count": 3, "p50": 140, "p90": 160, "p99": 180, "max": 200}
NONE = dict.fromkeys(LATENCY, 0)
SAID: dict[str, Any] = {
    "transport": "tcp-framed (not SCTP)",
    "started": 7,
    "attached": 3,
    "rejected": {"22": 1},
    "timed_out": 2,
    "aborted": {"released": 1},
    "attach_us": LATENCY,
    "auth_us": LATENCY,
    "smc_us": LATENCY,
    "ics_us": LATENCY,
    "detach_us": NONE,
    "peak_in_progress": 4,
    "peak_sessions": 3,
    "first_accept_ns": 1_400_000,
    "last_accept_ns": 2_000_000_000,
    "resolved_ns": 15_000_000_000,
    "accepts": [2, 0, 1],
    "sent": {"initial_ue_message": 7},
    "received": {"downlink_nas": 6},
    "anomalies": {"mac_failures": 1, "repeats": 0},
    "sctp_retransmits": 5,
    "unreleased": 2,
}


def test_what_the_node_says_becomes_classes_times_and_messages() -> None:
    seen = transactions(SAID, setup_s=0.25)
    assert (seen.started, seen.completed, seen.failed, seen.residual) == (7, 3, 4, 0)
    assert seen.latency == Latency(count=3, p50_us=140, p90_us=160, p99_us=180, max_us=200)
    assert [*seen.steps] == ["authentication", "security mode", "context setup"]
    assert (seen.first_completed_s, seen.last_completed_s, seen.resolved_s) == (0.0014, 2.0, 15.0)
    assert seen.per_s == 1.5
    assert (seen.retransmits, seen.unreleased) == (5, 2)
    assert (seen.setup_s, seen.peak_sessions, seen.anomalies["mac_failures"]) == (0.25, 3, 1)
