"""The real Suricata finds in a trace all that `nodrop-node trace make` claims to have put there."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images.sut_bits import resolve_bits

RULES = """
alert tcp $EXTERNAL_NET any -> $HOME_NET 8080 (msg:"1"; flow:established,to_server; \
content:"evil\\;|0d 0a|payload"; nocase; sid:9000001;)
alert tcp $EXTERNAL_NET 8443 -> $HOME_NET any (msg:"2"; flow:established,from_server; \
content:"stage-two"; content:"dropper.bin"; sid:9000002;)
alert udp $HOME_NET any -> $EXTERNAL_NET 5353 (msg:"3"; content:"beacon|01 02 03|"; sid:9000003;)
alert tcp any any -> any any (msg:"4"; content:"dropper.bin"; sid:9000004;)
alert tcp any any -> $HOME_NET any (msg:"5"; flow:established,to_server; content:"at-home"; \
sid:9000005;)
alert tcp $EXTERNAL_NET any -> $HOME_NET 1025 (msg:"6"; flow:established,from_server; \
content:"to-port-1025"; sid:9000006;)
alert udp any any -> $SQL_SERVERS any (msg:"7"; content:"at-a-server"; sid:9000007;)
"""
CONFIG = """%YAML 1.1
---
vars:
  address-groups: {{HOME_NET: "[10.0.0.0/8]", EXTERNAL_NET: "!10.0.0.0/8",
                   SQL_SERVERS: $HOME_NET}}
default-rule-path: {out}
rule-files: [planted.rules]
outputs:
  - eve-log:
      enabled: yes
      filename: eve.json
      types: [alert, flow, {{anomaly: {{types: {{decode: no, stream: yes, applayer: no}}}}}}]
app-layer:
  protocols:
    http: {{enabled: yes}}
    smtp: {{enabled: yes}}
    ssh: {{enabled: yes}}
    ntp: {{enabled: yes}}
    tls: {{enabled: yes, detection-ports: {{dp: 443}}}}
    dns: {{udp: {{enabled: yes, detection-ports: {{dp: 53}}}}}}
"""
CLAIMED = ("http", "tls", "dns", "smtp", "ssh", "ntp")


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "eve.json").read_text().splitlines()]


@pytest.mark.usefixtures("suricata")
@pytest.mark.parametrize(("profile", "packets"), [("demo", 20_000), ("ists-like", 30_000)])
def test_suricata_finds_what_was_made(tmp_path: Path, profile: str, packets: int) -> None:
    node, bits = find_node_binary(), resolve_bits({}, "suricata", base=Path())
    rules, trace, is_image = (
        tmp_path / "planted.rules",
        tmp_path / "made.pcap",
        bits.kind == "image",
    )
    rules.write_text(RULES)
    make = [node, "trace", "make", profile, trace, "--packets", str(packets), "--attacks", rules]
    subprocess.run(make, check=True, timeout=60)
    made = json.loads(Path(f"{trace}.json").read_text())
    inside = "/mnt" if is_image else str(tmp_path)
    (tmp_path / "s.yaml").write_text(CONFIG.format(out=inside))
    enter = ["--root", bits.path, "--bind", f"{tmp_path}:/mnt"] if is_image else []
    program = "/usr/bin/suricata" if is_image else bits.path
    suricata = [program, "-c", f"{inside}/s.yaml", "-r", f"{inside}/made.pcap", "-l", inside]
    done = subprocess.run(
        [node, "enter", *enter, "--", *suricata, "-k", "all", "--runmode", "single"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = events(tmp_path)
    flows = Counter(e.get("app_proto") for e in found if e["event_type"] == "flow")
    claimed = {name: made["conversations"].get(name, 0) for name in CLAIMED}
    assert {name: flows[name] for name in CLAIMED} == claimed
    assert not [e for e in found if e["event_type"] == "anomaly"]
    alerted = [e for e in found if e["event_type"] == "alert"]
    alerts = Counter(str(e["alert"]["signature_id"]) for e in alerted)
    assert made["alerts_uncertain"] == [] and made["rules_skipped"] == []
    assert dict(alerts) == made["alerts"]
    promised = {
        (sid, one["proto"], *sorted((one["client"], one["server"])))
        for one in made["planted"]
        for sid in (one["sid"], *one["also"])
    }
    assert promised == {(e["alert"]["signature_id"], *_flow(e)) for e in alerted}


def _flow(event: dict[str, Any]) -> tuple[str, str, str]:
    one, other = sorted(f"{event[f'{end}_ip']}:{event[f'{end}_port']}" for end in ("src", "dest"))
    return event["proto"].lower(), one, other
