"""Snort by its description: a stand-in that really captures; a real one, too, if PATH has it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from nodrop.calibrate.program import prove
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import TrialFailed
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.suts.command.description import shipped
from tests.depth import depth
from tests.netns.test_command_sut import launched, replay

FAKE = Path(__file__).parents[1] / "fake_snort.py"
REAL = shutil.which("snort")
PACKETS = 2000


@pytest.fixture(scope="module")
def trace(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "demo.pcap"
    argv = [str(node), "trace", "make", "demo", str(path), "--packets", str(PACKETS)]
    run_command(argv, where="test", timeout_s=60)
    return path


@pytest.fixture(params=["a stand-in", *(["real"] if REAL else [])])
def snort(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The [sut] table of Snort."""
    if request.param != "real":
        monkeypatch.setenv("PATH", request.getfixturevalue("path_of_stand_in"))
    return table(tmp_path)


@pytest.fixture(scope="module")
def path_of_stand_in() -> Iterator[str]:
    """PATH with a `snort` that any user may run."""
    with TemporaryDirectory() as folder:
        program = Path(folder) / "snort"
        shutil.copy(FAKE, program)
        for path in (program.parent, program):
            path.chmod(0o755)
        yield f"{folder}:{os.environ['PATH']}"


def table(folder: Path, fault: str = "none") -> dict[str, Any]:
    config = folder / "snort.lua"
    config.write_text(f"-- fault: {fault}\n")
    return {"program": "snort3", "config": str(config)}


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
@pytest.mark.parametrize("daq", ["afpacket", "pcap"])
def test_its_description_is_proved(snort: dict[str, Any], daq: str, tmp_path: Path) -> None:
    """With the pcap DAQ it ends by a nudge, which it counts as well."""
    proof = prove({"kind": "command", **snort, "daq": daq}, base=tmp_path, work=tmp_path)
    assert not proof.wrong
    slowly, still = proof.answers
    came = 5000 + (daq == "pcap")
    assert slowly.truth == {"captured": came, "dropped_ring_full": 0, "decoded": came}
    assert 0 < still.truth["dropped_ring_full"] < still.truth["captured"]


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
@pytest.mark.parametrize(
    ("threads", "daq"), [(2, "afpacket"), depth(1, "pcap"), depth(1, "afpacket")]
)
def test_each_of_its_threads_has_its_share(
    snort: dict[str, Any], threads: int, daq: str, label: str, tmp_path: Path, trace: Path
) -> None:
    with launched(label, tmp_path, **snort, threads=threads, daq=daq) as (running, link):
        evidence = running.wait_ready(timeout_s=60).evidence
        sent = replay(link, trace, 50_000)
        running.drain(expected_packets=sent, timeout_s=20)
        final = running.finish(timeout_s=30)
    assert not final.problems
    assert len(evidence["rings"]) == threads
    assert all((ring["fanout"] is not None) == (threads > 1) for ring in evidence["rings"])
    figures = final.captured_packets, final.dropped_ring_full_packets, final.decoded_packets
    assert figures == (sent, 0, sent)


FOUR = """
name = "four"
[setup]
kind = "bare"
instances = 4
[sut]
kind = "command"
program = "./stand-in.toml"
binary = "{python}"
script = "{script}"
config = "{config}"
ring_mib = 8
[load]
kind = "replay"
trace = "{trace}"
speed = 4
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
late_p99_us = 60e6
"""


def test_four_instances_behind_the_split(tmp_path: Path, trace: Path) -> None:
    """Four instances, as in snort-2016.toml. A script cannot be the program, so the interpreter
    is, and gets the script as a file."""
    words = shipped()["snort3"].read_text()
    assert words.count('"snort", "-c"') == 2
    words = words.replace('"snort", "-c"', '"python3", "{script}", "-c"')
    words = words.replace("[knobs.daq]", '[knobs.script]\ntype = "file"\n[knobs.daq]')
    (tmp_path / "stand-in.toml").write_text(words)
    config = table(tmp_path)["config"]
    python = Path("/usr/bin/python3").resolve()  # which any user may run
    if not python.is_file():
        pytest.skip("/usr/bin/python3 is not there")
    text = FOUR.format(python=python, script=FAKE, config=config, trace=trace)
    (tmp_path / "four.toml").write_text(text)
    outcome = run_experiment(
        load_experiment(tmp_path / "four.toml"),
        load_lab(None),
        out=tmp_path / "out",
        resume=False,
        progress=Progress(),
    )
    (record,) = outcome.records
    books = record.packets
    assert books.books_closed and books.residual_packets == 0, record.verdict
    assert (books.captured_packets, books.lost_packets) == (record.offered.sent, 0)


@pytest.mark.usefixtures("real_root")  # the kernel's counters of its sockets
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("counts each packet twice", "captured {twice:,}, and the kernel counted {sent:,}"),
        ("a counter ran backwards", "no packet twice (analyzed <= received) does not hold"),
        ("a counter of 32 bits", "dropped ring full 4,294,965,006, and the kernel counted 0"),
        ("its text is cut", "left no counters at its end"),
        ("it was killed", "(signal SIGKILL)"),
        ("no fan-out", "2 sockets that each see every packet"),
    ],
)
def test_what_it_says_wrongly_is_no_figure(
    fault: str,
    words: str,
    label: str,
    tmp_path: Path,
    trace: Path,
    path_of_stand_in: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", path_of_stand_in)
    threads = 2 if fault == "no fan-out" else 1
    said, sent = "", 0
    with launched(label, tmp_path, **table(tmp_path, fault), threads=threads) as (running, link):
        try:
            running.wait_ready(timeout_s=20)
            sent = replay(link, trace, 50_000)
            running.drain(expected_packets=sent, timeout_s=20)
            if fault == "it was killed":
                running.process.signal(signal.SIGKILL)
            said = "; ".join(one.words for one in running.finish(timeout_s=20).problems)
        except TrialFailed as failed:
            said = str(failed)
    assert words.format(sent=sent, twice=2 * sent) in said and "\n" not in said
