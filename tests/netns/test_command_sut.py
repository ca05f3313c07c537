"""Capture programs that a file describes, in the one-machine lab: what they say is what came."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.calibrate.program import judge, prove
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import TrialFailed
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.suts.command import Command
from nodrop.testbed.suts.command.description import Books, read_program, shipped
from nodrop.testbed.suts.command.sut import RunningCommand
from tests.depth import depth


@pytest.fixture(scope="module")
def trace(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "demo.pcap"
    argv = [str(node), "trace", "make", "demo", str(path), "--packets", "20000"]
    run_command(argv, where="test", timeout_s=60)
    return path


@contextmanager
def launched(label: str, work: Path, **options: Any) -> Iterator[tuple[RunningCommand, Link]]:
    sut = Command(options, base=work)
    bits = resolve_bits(options, sut.needs_bits() or "", base=work, version=sut.version)
    folder = work / "sut"
    folder.mkdir()
    with (
        DiskJournal.create(label) as journal,
        NetnsLab().up(journal) as link,
        Bare().provision(link, bits=bits, limits=Limits(), work=folder, journal=journal) as env,
    ):
        running = sut.launch(env)
        try:
            yield running, link
        finally:
            running.close()
            running.process.signal(signal.SIGKILL)
            running.process.stop(timeout_s=5)


def test_two_instances_of_a_program_of_the_host(tmp_path: Path, trace: Path) -> None:
    """Each sees the host's libraries through a folder of its own."""
    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not in PATH")
    (tmp_path / "x.toml").write_text(TWO.format(trace=trace))
    outcome = run_experiment(
        load_experiment(tmp_path / "x.toml"),
        load_lab(None),
        out=tmp_path / "out",
        resume=False,
        progress=Progress(),
    )
    (record,) = outcome.records
    assert record.packets.books_closed and (record.offered.sent or 0) > 20_000, record.verdict


TWO = """
name = "two"
[setup]
kind = "bare"
instances = 2
[sut]
kind = "command"
program = "tcpdump"
[load]
kind = "replay"
trace = "{trace}"
speed = 20
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
"""


def replay(link: Link, trace: Path, pps: float) -> int:
    spec = {"job": "replay", "trace": str(trace), "interface": link.tx.name, "pps": pps}
    job = link.tx.host.job(spec)
    try:
        job.start()
        return int(job.result(timeout_s=60)["sent_packets"])
    finally:
        job.close()


FURTHER = [depth(name) for name in shipped() if name not in ("tcpdump", "dumpcap")]


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
@pytest.mark.parametrize("program", ["tcpdump", "dumpcap", *FURTHER])
def test_each_description_is_proved(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not in PATH")
    proof = prove({"kind": "command", "program": program}, base=tmp_path, work=tmp_path)
    assert not proof.wrong
    slowly, still = proof.answers
    assert slowly.truth == {"captured": 5000, "dropped_ring_full": 0, "decoded": 5000}
    assert 0 < still.truth["dropped_ring_full"] < still.truth["captured"]
    if program != "tcpdump":
        return
    own = read_program(shipped()["tcpdump"])
    for lie, words in LIES.items():
        told = own.model_copy(update={"books": Books.model_validate_json(lie)})
        wrong, _ = judge(told, proof.answers)
        assert any(words in line for line in wrong), wrong


LIES = {
    '{"captured": "received", "dropped_ring_full": "captured", "decoded": "dropped"}': (
        'this would hold: dropped_ring_full = "dropped"'
    ),
    '{"captured": "captured", "dropped_ring_full": "dropped", "decoded": "captured"}': (
        'this would hold: captured = "received"'
    ),
    '{"captured": "received", "decoded": "captured"}': (
        'books leave out what it says: dropped_ring_full = "dropped"'
    ),
}
"""Books of tcpdump: received and dropped swapped; drops left out of what came, and altogether."""


HIDES = """
name = "liar"
argv = ["tcpdump", "-n", "-i", "{interface}", "-w", "{work}/out.pcap"]
[stop]
signal = "INT"
[exit]
from = "stderr"
regex = '(?P<captured>\\d+) packets? captured\\n(?P<received>\\d+) packets? received by filter'
[books]
captured = "received - 7"
decoded = "captured"
"""


COPIES = HIDES.replace("received - 7", "received").replace("[stop]", "[ready]\nsockets='2'\n[stop]")


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
def test_a_program_that_has_each_packet_twice(tmp_path: Path) -> None:
    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not in PATH")
    one = "tcpdump -n -i {interface} -w {work}/"
    argv = ["sh", "-c", f"{one}a.pcap & exec {one}b.pcap"]
    lines = COPIES.strip().splitlines()
    (tmp_path / "twice.toml").write_text(
        "\n".join([lines[0], f"argv = {json.dumps(argv)}", *lines[2:]])
    )
    proof = prove({"kind": "command", "program": "./twice.toml"}, base=tmp_path, work=tmp_path)
    assert "2 sockets that each see every packet" in proof.wrong[0]


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
def test_what_differs_from_the_kernels_counters_is_named(
    label: str, tmp_path: Path, trace: Path
) -> None:
    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not in PATH")
    (tmp_path / "liar.toml").write_text(HIDES)
    with launched(label, tmp_path, program="./liar.toml") as (running, link):
        running.wait_ready(timeout_s=20)
        sent = replay(link, trace, 50_000)
        running.drain(expected_packets=sent, timeout_s=20)
        final = running.finish(timeout_s=20)
    (problem,) = final.problems
    assert problem.code == "counters_disagree"
    assert problem.words == (
        f"liar says captured {sent - 7:,}, and the kernel counted {sent:,} on its sockets"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["false"], r"liar ended before it opened a capture socket \(exit status 1\)"),
        (["sh", "-c", "sleep 60 & exit 0"], "status 0.*keep it in the foreground"),
        (["sh", "-c", "echo no such port >&2; exit 3"], r"status 3\): no such port"),
        (["sleep", "60"], "has 0 of 1 capture sockets on its interface after 0.5 s"),
        (["yes", "a packet" * 1000], "has printed .* MiB: killed.*make it quiet"),
        (
            ["sh", "-c", "echo 4096 >/proc/sys/net/core/rmem_max"],
            "status 2.*(Read-only file system|Permission denied)",
        ),
        (["sh", "-c", "ip link set {interface} mtu 900"], "status 2.*not permitted"),
    ],
)
def test_a_program_that_never_listens(
    label: str, tmp_path: Path, argv: list[str], words: str
) -> None:
    lines = HIDES.strip().splitlines()
    text = "\n".join([lines[0], f"argv = {json.dumps(argv)}", *lines[2:]])
    # Only the one that lives on is waited out: on a busy host the others need longer to end.
    ready = "[ready]\ntimeout_s = " + ("0.5" if argv[0] == "sleep" else "20")
    (tmp_path / "liar.toml").write_text(f"{text}\n{ready}\n")
    with launched(label, tmp_path, program="./liar.toml") as (running, _):
        with pytest.raises(TrialFailed) as caught:
            running.wait_ready(timeout_s=20)
        assert re.search(words, str(caught.value)) and "\n" not in str(caught.value)
