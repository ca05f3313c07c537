"""The table of Suricata's counters against every Suricata this machine has; and a memcap that real
HTTP sessions reach, which drops and audit both say."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest

from nodrop.audit.audit_answer import FindingAnswer, findings
from nodrop.audit.reading import judged, look
from nodrop.drops.places import ANALYSIS
from nodrop.drops.watching import Watch
from nodrop.protocol import Captures
from nodrop.results.watched import WatchedPlace
from nodrop.sensor.suricata_counters import LossCounter, loss_counters, matches, table
from nodrop.testbed.hosts.control_groups import SocketLooks
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images.image_tree import Bits
from tests.e2e.test_suricata import bits, launched, replay

__all__ = ["bits"]
SOUNDS_LIKE_LOSS = re.compile(
    "memcap|limit|drop|err|max|hit|emerg|fail|overflow|reject|reach|exceed|lost|busy|too_many|"
    "invalid"
)
OWN_YAML = """%YAML 1.1
---
outputs:
  - file-store: {version: 2, enabled: yes}
app-layer:
  protocols:
    http: {enabled: yes, memcap: 4kb}
"""
DEADLINE_S = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A Suricata after HTTP sessions that found no memory."""

    version: int
    counters: Mapping[str, int]
    memcaps: Mapping[str, str]
    rows: Sequence[WatchedPlace]
    """Places of `nodrop drops`."""
    findings: Sequence[FindingAnswer]
    """Findings of `nodrop audit` about it."""


def counters(seen: Captures) -> Mapping[str, int]:
    """Empty before Suricata has counted for the first time."""
    said = (one["suricata"] for one in seen["programs"].values())
    return next((one["counters"] for one in said if one and one["counters"]), {})


@pytest.fixture(scope="module")
def reached(bits: Bits, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    work = tmp_path_factory.mktemp("counters")
    trace, yaml, node = work / "web.pcap", work / "own.yaml", find_node_binary()
    subprocess.run([node, "trace", "make", "demo", trace, "--packets", "20000"], check=True)
    yaml.write_text(OWN_YAML)
    with (
        pytest.MonkeyPatch.context() as patched,
        closing(LocalHost(name="here", node=node, label="looks")) as here,
    ):
        patched.setenv("XDG_STATE_HOME", str(work / "state"))
        with launched(bits, work, config=str(yaml)) as (running, link):
            running.wait_ready(timeout_s=60)
            pid, watch, deadline = running.process.root.pid, Watch(), time.monotonic() + DEADLINE_S
            with closing(SocketLooks(here, only=[pid])) as looks:
                while not counters(seen := looks()) and time.monotonic() < deadline:
                    pass
                watch.look(seen)
                replay(link, trace, "-M", "100")
                rows: Sequence[WatchedPlace] = ()
                while not rows and time.monotonic() < deadline:
                    interval = watch.look(seen := looks())
                    assert interval is not None
                    rows = [one for one in interval.answer.places if one.place == ANALYSIS]
            mine = [one for one in findings(judged(look(here))) if f"pid {pid}" in one.where]
            version = int(str(running.facts()["version"]).partition(".")[0])
    (suricata,) = (one["suricata"] for one in seen["programs"].values())
    assert suricata
    yield Reached(
        version=version,
        counters=counters(seen),
        memcaps=suricata["memcaps"],
        rows=rows,
        findings=mine,
    )


def has(version: int, row: LossCounter) -> bool:
    return (row.since or 0) <= version <= (row.until or version)


def test_each_counter_of_the_table_is_there_and_each_that_sounds_like_loss_is_in_it(
    reached: Reached,
) -> None:
    names = [*reached.counters]
    wanted = [row for row in loss_counters() if has(reached.version, row)]
    absent = [r.counter for r in wanted if not any(matches(r.counter, name) for name in names)]
    assert absent == []
    known = [row.counter for row in loss_counters()]
    known += [counter for each in table()["no_loss"] for counter in each["counters"]]
    sounding = [name for name in names if SOUNDS_LIKE_LOSS.search(name)]
    assert len(sounding) > 100
    assert [n for n in sounding if not any(matches(one, n) for one in known)] == []
    others = [row.counter for row in loss_counters() if not has(reached.version, row)]
    assert [one for one in others if one in names] == []


def test_each_memcap_of_the_table_can_be_set(reached: Reached) -> None:
    named = {row.memcap for row in loss_counters() if row.memcap}
    if reached.version < 8:
        named.remove("ftp")
    assert named <= set(reached.memcaps)


def test_sessions_that_find_no_memory_are_said_by_drops_and_by_audit(reached: Reached) -> None:
    times = reached.counters["http.memcap"]
    (row,) = [one for one in reached.rows if one.counter == "http.memcap"]
    assert 0 < row.total <= times
    assert 'memcap-set applayer-proto-http 8kb"' in row.do
    said = [one for one in reached.findings if one.id == "memcap-reached"]
    (one,) = [each for each in said if "http.memcap" in each.read[0].value]
    assert "app-layer.protocols.http.memcap" in one.change
    assert {each.read[0].value.split()[0] for each in said} == {
        each.counter for each in reached.rows
    }
