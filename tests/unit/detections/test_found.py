"""Rules that limit their alerts; event logs as the node's reader sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.detections import (
    clocks_of_config,
    clocks_of_rules,
    limits_of_config,
    limits_of_rules,
    read_found,
    remembering_config,
    remembering_rules,
)

HEAD = "alert tcp any any -> any any "


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('(msg:"x"; threshold: type limit, track by_src, count 1, seconds 60; sid:7;)', "by_src"),
        ("(detection_filter:track by_dst,count 5,seconds 60; sid:7; rev:2;)", "by_dst"),
        ("(threshold:type both,count 1,seconds 6,track by_both; sid:7;)", "by_both"),
        ("(threshold: type limit, track by_rule, count 1, seconds 60; sid:7;)", "by_rule"),
        ("(threshold: type limit, track by_flow, count 1, seconds 60; sid:7;)", None),
        ('(msg:"threshold by_src"; content:"track by_src"; sid:7;)', None),
    ],
)
def test_a_rule_says_what_it_tracks(options: str, found: str | None) -> None:
    expected = {} if found is None else {"1:7": found}
    assert dict(limits_of_rules(f"# {HEAD}(threshold:track by_src; sid:9;)\n{HEAD}{options}")) == (
        expected
    )


@pytest.mark.parametrize(
    ("options", "remembers"),
    [
        ("threshold:type limit,track by_rule,count 1,seconds 60; ", True),
        ("detection_filter:count 5,seconds 60,track by_rule; ", True),
        ("dns.query; dataset:set,seen,type string; ", True),
        ("dns.query; dataset: unset,seen; ", True),
        ("lua:count.lua; ", True),
        ("dns.query; dataset:isset,bad,type string,load bad.lst; ", False),
        ("threshold:type limit,track by_src,count 1,seconds 60; ", False),
        ("xbits:isset,x,track ip_src; ", False),
        ('content:"track by_rule"; ', False),
    ],
)
def test_a_rule_that_remembers_whatever_the_addresses_are(options: str, remembers: bool) -> None:
    text = f"# {HEAD}(lua:a.lua; sid:9;)\n{HEAD}({options}sid:7; gid:2;)"
    assert list(remembering_rules(text)) == ["2:7"] * remembers


def test_an_entry_of_a_threshold_config_that_remembers_whatever_the_addresses_are() -> None:
    entry = "threshold gen_id 1, sig_id {}, type limit, track {}, count 1, seconds 60"
    some = [(0, "by_rule"), (4, "by_src"), (5, "by_rule")]
    text = "\n".join(entry.format(sid, by) for sid, by in some)
    assert list(remembering_config(text)) == ["1:0", "1:5"]


def test_the_generator_of_a_rule_is_part_of_its_name() -> None:
    rule = f"{HEAD}(threshold: type limit, track by_src, count 1, seconds 9; gid:3; sid:12;)"
    assert dict(limits_of_rules(rule)) == {"3:12": "by_src"}


def test_a_threshold_config_limits_single_signatures() -> None:
    text = """
# threshold gen_id 1, sig_id 1, type limit, track by_src, count 1, seconds 1
threshold gen_id 1, sig_id 100, type threshold, track by_dst, count 10, seconds 60
event_filter gen_id 3, sig_id 200, type limit, track by_src, count 1, seconds 60
suppress gen_id 1, sig_id 300, track by_src, ip 10.0.0.1
threshold gen_id 1, sig_id 0, type limit, track by_src, count 1, seconds 60
"""
    assert dict(limits_of_config(text)) == {"1:100": "by_dst", "3:200": "by_src"}


def _alert(sid: int, source: str, port: int) -> str:
    alert = {"gid": 1, "signature_id": sid, "signature": f"s{sid}", "category": "Trojan"}
    ends = {"src_ip": source, "src_port": port, "dest_ip": "10.0.0.9", "dest_port": 80}
    return json.dumps({"event_type": "alert", **ends, "proto": "TCP", "alert": alert})


def test_logs_of_two_instances_are_one(tmp_path: Path) -> None:
    one, other = tmp_path / "0.json", tmp_path / "1.json"
    one.write_text(_alert(7, "10.0.0.1", 1) + "\n" + _alert(8, "10.0.0.1", 2) + "\n")
    other.write_text(_alert(7, "10.0.0.1", 1) + "\n" + _alert(8, "10.0.0.1", 3) + "\n{")
    found = read_found([one, other], {"1:8": "by_src"})
    flow = "tcp 10.0.0.1:1 10.0.0.9:80"
    assert found.units == {("1:7", flow), ("1:8", "by_src 10.0.0.1")}
    assert (found.alerts, found.events, found.unread) == (4, {"alert": 4}, {"cut_lines": 1})
    assert found.classes == {"1:7": "Trojan", "1:8": "Trojan"}


@pytest.mark.parametrize(
    ("options", "clock"),
    [
        ("(threshold: type threshold, track by_src, count 5, seconds 60; sid:7;)", True),
        ("(threshold: type both, track by_dst, seconds 9, count 20; sid:7;)", True),
        ("(threshold: type both, track by_dst, seconds 9, count 1; sid:7;)", False),
        ("(threshold: type limit, track by_src, count 3, seconds 60; sid:7;)", False),
        ("(detection_filter: track by_src, count 1, seconds 2; sid:7;)", True),
        ("(xbits:isset,ET.seen,track ip_src,expire 10; sid:7;)", True),
        ("(xbits:isnotset,ET.seen,track ip_pair; sid:7;)", True),
        ("(hostbits:isset,bad,src; sid:7;)", True),
        ("(xbits:set,ET.seen,track ip_src,expire 10; sid:7;)", False),
        ("(flowbits:isset,ET.http; sid:7;)", False),
        ("(flow.age:>10; sid:7;)", True),
        ('(msg:"detection_filter xbits"; content:"a"; sid:7;)', False),
    ],
)
def test_a_rule_with_a_clock_is_found(options: str, clock: bool) -> None:
    assert [*clocks_of_rules(f"# {HEAD}{options}\n{HEAD}{options}")] == (["1:7"] if clock else [])


def test_an_entry_of_a_threshold_config_has_a_clock_if_it_counts() -> None:
    text = """
threshold gen_id 1, sig_id 100, type threshold, track by_dst, count 10, seconds 60
event_filter gen_id 3, sig_id 200, type limit, track by_src, count 1, seconds 60
threshold gen_id 1, sig_id 0, type threshold, track by_src, count 5, seconds 60
suppress gen_id 1, sig_id 300, track by_src, ip 10.0.0.1
"""
    assert [*clocks_of_config(text)] == ["1:100"]
