"""One Suricata captures on several ports or queues: none lost, none twice, what came in at each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from nodrop.errors import BadInput, NodropError
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.results.packet_books import Port
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from nodrop.testbed.load.replay import Replay
from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.one_world import STANDING, loads_of_one_world

DEMO = "make:demo"
ALLOWED = os.sched_getaffinity(0)
EACH = f'load.trace=["{DEMO}", "{DEMO}"]'

pytestmark = pytest.mark.usefixtures("suricata")


def measured(record: TrialRecord, ports: int, *, copies: int = 1) -> list[Port]:
    assert record.valid, record.verdict
    assert closes(record)
    assert record.threads_unexplained_packets == 0
    found = record.packets.ports
    assert len(found) == ports
    sent = record.offered.sent or 0
    assert sum(port.received_packets for port in found) == sent * copies
    assert record.packets.copied_packets == sent * (copies - 1)
    captured = [port.captured_packets or 0 for port in found]
    assert sum(captured) == record.packets.captured_packets
    return found


@pytest.mark.parametrize(
    ("ports", "threads", "settings"),
    [
        depth(2, 1, [], id="workers"),  # so do the tests of replicas and of a loss
        pytest.param(2, 2, ["sut.runmode=autofp", "sut.detect_threads=3"], id="autofp"),
    ],
)
def test_the_ports_share_all_packets(
    run: Run, ports: int, threads: int, settings: list[str]
) -> None:
    shape = (f"sut.ports={ports}", f"sut.threads={threads}")
    for record in run(*shape, "load.speed=40", *settings).records:
        found = measured(record, ports)
        assert min(port.received_packets for port in found) > 0
        capture = [t for t in record.threads if t.captured_packets is not None]
        assert len(capture) == ports * threads


def test_each_port_gets_a_copy_of_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fragments are copied as well: the kernel puts together what comes in at any port of the
    namespace."""
    shape = ("sut.ports=2", "sut.threads=2", "setup.splitter=copy", "load.speed=40")
    loads_of_one_world(monkeypatch, {}, {})
    for record in run(*shape, STANDING).records:
        each = {port.received_packets for port in measured(record, 2, copies=2)}
        assert each == {record.offered.sent}


def test_each_port_gets_replicas_of_its_own(run: Run) -> None:
    shape = ("sut.ports=2", "sut.threads=1", "setup.splitter=trace", "load.speed=40")
    record = only(run(*shape, "load.multiplier=3"))
    first, second = (port.received_packets for port in measured(record, 2))
    assert first == 2 * second, "two replicas, and one"


@pytest.mark.parametrize("generator", ["tcpreplay", depth("replay")])
def test_each_port_gets_a_trace_of_its_own(run: Run, real_trace: Path, generator: str) -> None:
    record = only(
        run(
            "sut.ports=2",
            "sut.threads=1",
            "setup.splitter=trace",
            "load.speed=60",
            f"load.kind={generator}",
            f'load.trace=["{real_trace}", "{DEMO}"]',
        )
    )
    facts = [Replay({"trace": one}, base=Path()).trace_facts() for one in (str(real_trace), DEMO)]
    found = measured(record, 2)
    assert [port.received_packets for port in found] == [one.packets for one in facts]
    assert [port.trace for port in found] == [str(one.path) for one in facts]


def test_a_port_without_flows_is_said_to_be_idle(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "one-flow.pcap"
    packet = Ether(dst="02:00:00:00:00:01") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / bytes(60)
    wrpcap(str(trace), [packet] * 400)
    record = only(run(f"load.trace={trace}", "load.speed=", "load.pps=2000", "sut.ports=2",
                      "sut.threads=1"))  # fmt: skip
    received = sorted(port.received_packets for port in measured(record, 2))
    assert received == [0, 400]
    (found,) = [one for one in find(observations_of([record])) if one.code == "idle-port"]
    assert "1 of 2 ports" in found.values["evidence"]


def test_a_loss_is_the_loss_of_its_port(run: Run) -> None:
    """Rings too small for a burst: what each port dropped adds up to what was lost."""
    record = only(run("sut.ports=2", "sut.threads=1", "sut.ring_size=64", "load.speed=",
                      "load.pps=200000"))  # fmt: skip
    assert closes(record)
    dropped = [port.dropped_packets or 0 for port in record.packets.ports]
    lost_before = record.packets.lost_before_sut_packets or 0
    assert sum(dropped) > 0
    assert sum(dropped) == (record.packets.lost_packets or 0) - lost_before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["sut.ports=5"], "sut.ports = 5: must be <= 4"),
        (["sut.ports=0"], "sut.ports = 0: must be >= 1"),
        (["sut.ports=2", "sut.runmode=single"], "Suricata captures on one port"),
        (["sut.ports=2", "setup.kind=oci"], 'not with setup.kind = "oci"'),
        (["sut.ports=2", "setup.instances=2"], "not with setup.instances = 2"),
        (["sut.ports=2", "setup.splitter=bridge"], "not with sut.ports = 2"),
        (["sut.ports=2", "setup.splitter=trace"], "set load.multiplier = 2 or more"),
        ([EACH, "setup.splitter=trace", "sut.ports=3"], "these are 2 for sut.ports = 3"),
    ],
)
def test_ports_that_cannot_be_are_refused(run: Run, settings: list[str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        run(*settings)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("queues", "cpu"), [(2, min(ALLOWED)), depth(1, '"any"'), depth(2, '"any"')]
)
def test_cluster_qm_gives_each_queue_to_a_thread(run: Run, queues: int, cpu: object) -> None:
    """The queue goes by a packet's flow, on whatever CPU it was sent."""
    shape = (f"setup.queues={queues}", "sut.threads=2", "sut.cluster_type=cluster_qm")
    record = only(run(*shape, "load.speed=40", f"load.cpu={cpu}"))
    assert record.valid and closes(record) and record.threads_unexplained_packets == 0
    captured = [t.captured_packets for t in record.threads if t.captured_packets is not None]
    assert sum(n > 0 for n in captured) == queues, captured


@pytest.mark.usefixtures("real_root")  # the kernel lets root alone set rps_cpus
def test_the_ports_receive_half_runs_on_the_cpus_it_is_given(run: Run) -> None:
    """No other CPU runs it: only there is any CPU woken for frames of another."""
    sender, receiver = min(ALLOWED), max(ALLOWED)
    outcome = run(f'setup.rps_cpus="{receiver}"', f"load.cpu={sender}", "load.speed=40")
    record = only(outcome)
    assert record.valid and closes(record)
    rows = [
        row["softnet"]
        for row in open_run(outcome.directory).samples(record.run, "rx")
        if "softnet" in row
    ]
    woken = {then["cpu"]: now["received_rps"] - then["received_rps"]
             for then, now in zip(rows[0], rows[-1], strict=True)}  # fmt: skip
    assert {cpu for cpu, times in woken.items() if times} == {receiver}


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        ("4095", 'setup.rps_cpus = "4095": this host has no CPU 4095'),
        ("1-0", 'must be a list of CPUs, such as "0-2,5"'),
        ("", 'must be a list of CPUs, such as "0-2,5"'),
    ],
)
def test_cpus_that_are_not_there_receive_nothing(run: Run, cpus: str, words: str) -> None:
    with pytest.raises(NodropError) as refused:
        run(f'setup.rps_cpus="{cpus}"')
    assert words in str(refused.value)
