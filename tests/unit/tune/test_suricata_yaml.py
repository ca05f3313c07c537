"""Single values of a suricata.yaml: all else stays as it is, comments included."""

from __future__ import annotations

import pytest
import yaml

from nodrop.errors import BadInput
from nodrop.tune.knobs import find
from nodrop.tune.suricata_yaml import OF_SURICATA, patched

TEXT = """\
%YAML 1.1
---
max-pending-packets: 1024  # of all threads
af-packet:
  - interface: eth1 # the tap
    # ring-size: 2048
    ring-size: 2048
    block-timeout:
  - interface: eth2
detect:
  profile: medium
stream:
  reassembly: {depth: 1mb}
"""


@pytest.mark.parametrize(
    ("knob", "value", "port", "old", "new"),
    [
        ("ring-size", "20000", "eth1", "\n    ring-size: 2048\n", "\n    ring-size: 20000\n"),
        ("ring-size", "9", "eth2", "  - interface: eth2", "  - ring-size: 9\n    interface: eth2"),
        ("block-timeout", "100", "", "block-timeout:\n", "block-timeout: 100\n"),
        ("max-pending-packets", "5000", "", "1024  # of", "5000  # of"),
        ("detect-profile", "high", "", "profile: medium", "profile: high"),
        ("mpm", "ac", "", "---\n", "---\nmpm-algo: ac\n"),
        (
            "tpacket-v3",
            "true",
            "eth1",
            "- interface: eth1",
            "- tpacket-v3: yes\n    interface: eth1",
        ),
    ],
)
def test_one_value_is_put_in_and_nothing_else(
    knob: str, value: str, port: str, old: str, new: str
) -> None:
    found = patched(TEXT, [(find(knob, OF_SURICATA), value)], port=port, file="x.yaml")
    assert found == TEXT.replace(old, new, 1)
    yaml.safe_load(found)


@pytest.mark.parametrize(
    ("knob", "value", "port", "said"),
    [
        ("ring-size", "many", "eth1", "ring-size=many: must be frames per thread"),
        ("ring-size", "9", "eth3", "x.yaml: has no place for af-packet.eth3.ring-size"),
        ("flow-memcap", "1gb", "", "x.yaml: has no place for flow.memcap"),
        ("reassembly-depth", "1mb", "", "x.yaml: stream.reassembly.depth: is not a table over"),
        ("tpacket-v3", "maybe", "eth1", "tpacket-v3=maybe: must be yes, no"),
    ],
)
def test_what_has_no_place_is_refused(knob: str, value: str, port: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        patched(TEXT, [(find(knob, OF_SURICATA), value)], port=port, file="x.yaml")
    assert error.value.message.startswith(said)


def test_several_values_at_once_and_names_of_their_own() -> None:
    asked = [
        (find(name, OF_SURICATA), value) for name, value in (("threads", "2"), ("ring-size", "5"))
    ]
    said = yaml.safe_load(patched(TEXT, asked, port="eth1", file="x"))
    assert said["af-packet"][0] == {
        "interface": "eth1", "threads": 2, "ring-size": 5, "block-timeout": None
    }  # fmt: skip
    assert len({knob.id for knob in OF_SURICATA}) == len(OF_SURICATA)
    with pytest.raises(BadInput, match=r"rng-size: no such knob; did you mean ring-size\?"):
        find("rng-size", OF_SURICATA)
