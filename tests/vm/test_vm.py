"""A virtual machine under emulation: books that close, losses in the right place, no traces."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.plan import Progress
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.testbed.images import guest_assets
from nodrop.testbed.images.guest_assets import GuestAssets, cpio, make_assets
from nodrop.testbed.images.image_cache import find_image
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups import vm
from tests import described_program
from tests.depth import depth
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import labelled, nic_gone_once
from tests.e2e.killing import Killed, die_at, leftovers, undo, unnamed
from tests.e2e.one_world import STANDING, loads_of_one_world
from tests.e2e.test_throttled import Quota, was_throttled
from tests.real_inputs import REALMIX_PACKETS

pytestmark = pytest.mark.timeout(600)

VM = """
name = "vm"
[setup]
kind = "vm"
accelerator = "tcg"
[sut]
kind = "{sut}"
[load]
kind = "replay"
trace = "{trace}"
cpu = "any" # other tests run beside it
{pace}
[measure]
repetitions = 1
drain_timeout_s = 60
late_p99_us = 60e6 # of the books alone, on a machine with nothing to spare
steal_max_ratio = 1
late_burst_max_ratio = 1
"""
REAL = VM.replace("{sut}", "suricata").replace("{pace}", "speed = 20")
DESCRIBED = VM.replace(
    "{sut}", f'command"\nimage = "suricata"\nprogram = "{described_program.FILE}'
).replace("{pace}", "pps = 500\nduration_s = 1")
"""A program that starts at once, where Suricata takes half a minute under emulation."""
BURST_PACKETS = 6000
CAP_NET_RAW = 13


@pytest.mark.parametrize(
    ("defrag", "multipliers"), [("yes", (1, 0.2)), depth("yes", (1, 4)), depth("no", (1,))]
)
def test_books_close_on_real_traffic_at_every_load(
    run: Run, defrag: str, multipliers: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets that an emulated guest cannot carry are lost in the macvtap's queue or in the guest's
    ring. One guest carries every load, and each trial has books of its own."""
    loads_of_one_world(monkeypatch, *({"multiplier": times} for times in multipliers))
    profiled = defrag == "yes"
    asked = f"measure.profile={str(profiled).lower()}"
    outcome = run(STANDING, f"sut.defrag={defrag}", asked, text=REAL)
    assert [record.world for record in outcome.records] == [1] * len(multipliers)
    for record, times in zip(outcome.records, multipliers, strict=True):
        assert record.valid, record.verdict
        assert record.offered.sent == pytest.approx(
            times * REALMIX_PACKETS, rel=0 if times >= 1 else 0.5
        )
        assert closes(record) and record.packets.decoded_packets > 0
        assert set(record.packets.lost_by_place) <= {"macvtap queue", "macvtap", "socket ring"}
        assert record.accelerator == "tcg"
        seen_from_inside(outcome.directory / "runs" / record.run)
        if profiled:
            profiled_from_inside(outcome.directory / "runs" / record.run)
    if profiled:
        assert "Flame graph of" in write_report(read_story([outcome.directory])).read_text()
        rows = (outcome.directory / "report" / "profile-functions.csv").read_text()
        assert ",worker," in rows and ",suricata," in rows


def seen_from_inside(folder: Path) -> None:
    """The guest's softnet is a hop; its sampler's rows lie around the traffic, by our clock."""
    ledger = json.loads((folder / "ledger.json").read_text())
    counted = {hop["name"]: hop["packets"] for hop in ledger["hops"]}
    assert [*counted][4:9] == ["macvtap", "virtio_ring", "guest_nic", "guest_softnet", "socket"]
    assert counted["guest_softnet"] == counted["guest_nic"]
    details = json.loads((folder / "trial.json").read_text())["details"]
    proof = details["facts"]["proof"]
    assert int(proof["capabilities"], 16) == 1 << CAP_NET_RAW and proof["no_new_privileges"]
    assert proof["filters_system_calls"] and proof["user_id"] == 0
    marks, inside = details["usage"]["marks_mono_ns"], details["inside"]["guest"]
    assert inside["sut_cpu_s"] > 0
    assert 20e6 < inside["sut_rss_peak_bytes"] < details["usage"]["sut_rss_peak_bytes"]
    rows = [json.loads(row) for row in (folder / "samples-guest.jsonl").read_text().splitlines()]
    times = [row["mono_ns"] + details["clock_offsets_ns"]["guest"] for row in rows]
    assert times[0] < marks["offer"] < marks["drained"] < times[-1]
    assert rows[0]["memory"]["total_bytes"] < 1 << 30


def profiled_from_inside(folder: Path) -> None:
    """The guest's own kernel profiled it, by its own files, with times by our clock."""
    found = json.loads((folder / "profile.json").read_text())
    marks = json.loads((folder / "trial.json").read_text())["details"]["usage"]["marks_mono_ns"]
    assert [one["what"] for one in found["missing"]] == ["hardware"]
    assert found["began_mono_ns"] < marks["offered"] and marks["offer"] < found["ended_mono_ns"]
    workers = [thread for thread in found["threads"] if thread["role"] == "worker"]
    assert workers and all(thread["samples"] for thread in workers)
    assert {"suricata", "[kernel]"} <= {one["module"] for one in found["functions"] if one["name"]}


@pytest.mark.depth  # known_answers/test_bits.py has a byte more
def test_a_guest_whose_disk_has_another_byte_is_other_bits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was exchanged after it was hashed: the guest's own node sees what runs there."""
    made = make_assets(find_image("suricata").bits())
    assert made.disk is not None
    disk = tmp_path / "disk.ext4"
    subprocess.run(["cp", "--sparse=always", made.disk, disk], check=True)
    path = "/usr/lib/x86_64-linux-gnu/libm.so.6"
    change_a_byte(disk, path)
    monkeypatch.setattr(vm, "make_assets", lambda _: replace(made, disk=disk))
    described_program.write(tmp_path)
    record = only(run("load.trace=make:demo", text=DESCRIBED))
    assert record.invalid_reasons == ["other_bits"], record.verdict
    assert f"{path} has another sha256" in record.verdict


def change_a_byte(disk: Path, path: str) -> None:
    """Changes the number of an ELF file's sections, which no loader looks at."""
    asked = ["debugfs", "-R", f"bmap {path} 0", str(disk)]
    block = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    with disk.open("r+b") as file:
        file.seek(int(block) * 4096)
        assert file.read(4) == b"\x7fELF"
        file.seek(int(block) * 4096 + 60)
        file.write(b"\x01")


@pytest.mark.depth  # a split is in e2e/test_instances.py, a guest in each test here
@pytest.mark.parametrize("sut", ["sink", "suricata"])
def test_two_guests_share_the_packets(run: Run, sut: str) -> None:
    text = VM.replace("{sut}", sut).replace("{pace}", "pps = 500\nduration_s = 2")
    outcome = run("load.trace=make:demo", "setup.instances=2", text=text)
    record = only(outcome)
    assert record.valid, record.verdict
    assert record.offered.sent == 1000
    assert closes(record)
    (folder,) = outcome.directory.glob("runs/*")
    parts = json.loads((folder / "trial.json").read_text())["details"]["instances"]
    assert [(part["closed"], part["residual_packets"]) for part in parts] == [(True, 0)] * 2
    assert all(part["received_packets"] for part in parts)
    assert sum(part["received_packets"] for part in parts) == record.offered.sent
    assert sum(part["decoded_packets"] for part in parts) == record.packets.decoded_packets


@pytest.mark.parametrize("queues", [[10000], depth([100, 10000])])
def test_a_longer_queue_moves_the_losses_of_a_slow_program(
    run: Run, tmp_path: Path, queues: Sequence[int]
) -> None:
    """It takes the burst, which reaches the guest, whose program has no time for it: now its ring
    is to blame."""
    burst = tmp_path / "burst.pcap"
    burst.write_bytes(pcap(BURST_PACKETS))
    text = VM.replace('"{sut}"', '"sink"\nservice_rate_pps = 300\nring_bytes = "128KiB"')
    text = text.replace("{pace}", "top_speed = true").replace("{trace}", str(burst))
    outcome = run(f'matrix."setup.txqueuelen"={queues}', text=text)
    assert all(record.valid and closes(record) for record in outcome.records)
    *shorter, long = sorted(outcome.records, key=lambda r: r.cell["setup.txqueuelen"])
    for short in shorter:
        assert short.packets.loss_place == "macvtap queue"
        assert "txqueuelen" in short.packets.knob
    assert long.packets.loss_place == "socket ring"
    assert "macvtap queue" not in long.packets.lost_by_place


def test_a_guest_that_never_speaks_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm, "BOOT_TIMEOUT_S", 0.5)
    record = only(run(text=REAL))
    assert record.invalid_reasons == ["sut_not_ready"]
    assert "did not boot in time; its console: " in record.error
    assert "(tried 2 times, up to 0.5 s)" in record.error


@pytest.mark.depth  # docker/test_containers.py names who was killed
def test_a_guest_with_too_little_memory_names_who_was_killed(run: Run) -> None:
    record = only(run("limits.memory=128MiB", text=REAL))
    assert record.invalid_reasons == ["sut_not_ready"]
    assert "the guest's kernel: Out of memory: Killed process" in record.error
    assert "raise limits.memory" in record.error


class Faults(Progress):
    """In the second trial the machine is killed, in the third the NIC under it goes away, in the
    fourth it has a CPU quota."""

    def __init__(self, quota: Quota) -> None:
        quota.program = "qemu"
        self._quota = quota
        self.held: dict[str, str] = {}
        """Resources that the machine held on the host, until it was killed."""
        self._trial = 0
        self._nic_gone = nic_gone_once()

    def trial_started(self, trial: TrialInput) -> None:
        self._trial = trial.index

    def phase(self, name: str) -> None:
        if (self._trial, name) == (2, "offer"):
            (qemu,) = labelled("qemu")
            lines = Path(f"/proc/{qemu}/status").read_text().splitlines()
            self.held.update(line.split(":\t", 1) for line in lines if ":\t" in line)
            os.kill(qemu, signal.SIGKILL)
        elif (self._trial, name) == (3, "read counters"):
            self._nic_gone()
        elif self._trial == 4:
            self._quota.phase(name)


@pytest.mark.depth  # a kill under load, below, ends one too
def test_a_guest_that_goes_ends_its_own_trial_only(
    run: Run, quota: Quota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without init, one that dies, one whose NIC vanishes, with its macvtap; the next is
    whole, and a quota of its QEMU is the cause of a full macvtap queue."""
    empty = tmp_path / "empty.gz"
    empty.write_bytes(gzip.compress(cpio({})))
    made: list[GuestAssets] = []

    def broken_at_first(bits: Bits | None) -> GuestAssets:
        made.append(make_assets(bits))
        return made[-1] if made[1:] else replace(made[-1], initramfs=empty)

    monkeypatch.setattr(vm, "make_assets", broken_at_first)
    faults = Faults(quota)
    text = VM.replace("{sut}", "sink").replace("{pace}", "pps = 2000\nduration_s = 2")
    outcome = run("measure.repetitions=4", text=text, progress=faults)
    without_init, dead, without_nic, throttled = outcome.records
    assert outcome.exit_code == 1
    assert without_init.invalid_reasons == ["sut_not_ready"]
    assert "Kernel panic" in without_init.error, "the end of its console"
    assert "tried 2 times" in without_init.error
    assert not dead.valid and dead.error
    assert not without_nic.valid
    assert any(port in without_nic.verdict for port in ("ndtx0", "ndrx0", "ndmv0"))
    assert throttled.valid and closes(throttled), throttled.verdict
    assert throttled.packets.loss_place == "macvtap queue"
    details = json.loads((outcome.directory / "runs" / throttled.run / "trial.json").read_text())
    waited_s = details["details"]["throttled_s"]
    assert was_throttled(waited_s) in throttled.packets.loss_cause, throttled.verdict
    assert "cpu.max, cpu.cfs_quota_us" in throttled.packets.knob
    held_no_right_and_a_filter(faults.held)


class Hangs(Progress):
    """The first guest hangs at the end of its trial: it takes no order, and does not go away."""

    def __init__(self) -> None:
        self._has_hung = False

    def phase(self, name: str) -> None:
        if name == "stop" and not self._has_hung:
            self._has_hung = True
            (qemu,) = labelled("qemu")
            os.kill(qemu, signal.SIGSTOP)


@pytest.mark.depth  # two minutes of waiting
def test_a_guest_that_hangs_ends_its_own_trial_only(run: Run, tmp_path: Path) -> None:
    described_program.write(tmp_path)
    outcome = run("load.trace=make:demo", "measure.repetitions=2", text=DESCRIBED, progress=Hangs())
    hung, after = outcome.records
    assert hung.invalid_reasons == ["lab_problem"] and "the guest hangs" in hung.error
    assert after.valid and closes(after), after.verdict


def held_no_right_and_a_filter(held: Mapping[str, str]) -> None:
    assert held["Uid"].split() == ["65534"] * 4
    assert int(held["CapEff"], 16) == int(held["CapPrm"], 16) == 0
    assert int(held["CapBnd"], 16) == 1 << 1 | 1 << 6 | 1 << 7  # DAC_OVERRIDE, SETGID, SETUID
    assert held["NoNewPrivs"] == "1"
    assert held["Seccomp"] == "2"


def test_a_dynamic_node_cannot_be_a_guests_init() -> None:
    assert guest_assets._is_static(guest_assets.static_node())
    assert not guest_assets._is_static(Path(sys.executable).resolve())


@pytest.mark.depth  # under load, which follows, more is to be undone
def test_killed_while_its_guest_boots(
    tmp_path: Path, real_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tmp_path / "vm.toml"
    experiment.write_text(REAL.format(trace=real_trace))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = unnamed()
    run = subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli.main", "run", str(experiment),
         "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    label = wait_for_guest(tmp_path / "state")
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    all_undone(Killed(label=label, pid=run.pid), before)


def test_killed_with_its_guest_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = VM.replace("{sut}", "sink").replace("{pace}", "pps = 2000\nduration_s = 2")
    (tmp_path / "vm.toml").write_text(text.replace("{trace}", "make:demo"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = unnamed()
    all_undone(die_at("offer", tmp_path / "vm.toml"), before)


def all_undone(killed: Killed, before: set[str]) -> None:
    assert "netns" in "\n".join(leftovers(killed, before)), "killed too early to prove anything"
    undo()
    assert leftovers(killed, before) == []


def wait_for_guest(state: Path) -> str:
    """The label of the run, once its QEMU stands."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for journal in state.rglob("*.jsonl"):
            if "virtual machine" in journal.read_text():
                return journal.stem
        time.sleep(0.02)
    raise AssertionError("no guest within 60 s")


def pcap(packets: int) -> bytes:
    """UDP from as many addresses, to a host that does not exist."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(record(number) for number in range(packets))


def record(number: int) -> bytes:
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 60, number & 0xFFFF, 0, 64, 17, 0)
    addresses = struct.pack("!II", 0x0A000000 + number, 0x0A800001)
    udp = struct.pack("!HHHH", 1000 + number % 50000, 53, 40, 0) + bytes(32)
    frame = b"\x02\0\0\0\0\x01" + b"\x02\0\0\0\0\x02" + b"\x08\0" + ip + addresses + udp
    return struct.pack("<IIII", 0, number, len(frame), len(frame)) + frame


@pytest.mark.depth  # docker/test_containers.py has it in two places
def test_a_described_program_in_a_guest(run: Run, tmp_path: Path) -> None:
    described_program.write(tmp_path)
    record = only(run(text=DESCRIBED))
    assert record.valid and closes(record), record.verdict
    assert record.offered.sent == 500
    assert record.packets.decoded_packets > 0
