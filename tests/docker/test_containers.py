"""Containers as a place for the SUT: closed books, the same bits, and faults called by name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput, LabProblem, NotReady
from nodrop.measure.baselines import probe_in
from nodrop.results.trial import TrialRecord
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.rights import SUT_USER
from nodrop.testbed.images.image_cache import find_image
from nodrop.testbed.setups import docker_engine
from nodrop.testbed.setups.contained import Ending
from nodrop.testbed.setups.docker_engine import DockerEngine
from tests import described_program
from tests.depth import depth
from tests.docker.conftest import private_daemon
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import Inject, labelled, nic_gone_once
from tests.e2e.killing import die_at, leftovers, undo, unnamed
from tests.e2e.one_world import STANDING, loads_of_one_world
from tests.real_inputs import REALMIX_PACKETS

CAP_NET_RAW = 13
MULTIPLIERS = (1, 2)
ONE = """
name = "containers"
[matrix]
"setup.kind" = ["docker", "docker-macvtap", "oci"]
[sut]
kind = "suricata"
ring_size = 30000 # no burst of a busy machine may overflow it
defrag = "yes"
[load]
kind = "replay"
trace = "{trace}"
cpu = "any" # other tests run beside it
speed = 40
[measure]
repetitions = 1
late_p99_us = 60e6 # a busy machine is late; the books are the question
steal_max_ratio = 1
late_burst_max_ratio = 1
"""
SINK = (
    ONE[: ONE.index("[sut]")]
    + '[sut]\nkind = "sink"\nring_bytes = "128MiB"\n'
    + ONE[ONE.index("[load]") :]
)
"""The node alone in a container without an image."""


def containers(url: str, label: str) -> list[str]:
    with closing(DockerEngine(url)) as engine:
        found = engine._client.api.containers(all=True, filters={"label": f"nodrop.lab={label}"})
    return [entry["Id"] for entry in found]


@pytest.mark.usefixtures("docker")
def test_the_books_of_real_traffic_close_in_every_container(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One start of each carries every load, and each trial has books of its own. A profile beside
    it names functions by the files that the container has."""
    loads_of_one_world(monkeypatch, *({"multiplier": times} for times in MULTIPLIERS))
    outcome = run(STANDING, "measure.profile=true", text=ONE)
    assert len(outcome.records) == 3 * len(MULTIPLIERS)
    for record in outcome.records:
        where = f"{record.run}: {record.cell}: {record.verdict}"
        assert record.valid, where
        assert record.world == record.index - record.repetition + 1, where
        assert record.offered.sent == MULTIPLIERS[record.repetition - 1] * REALMIX_PACKETS, where
        assert closes(record) and record.packets.decoded_packets > 0, where
        assert record.packets.lost_by_place.keys() <= {"macvtap", "socket ring"}, where
        trial = json.loads((outcome.directory / "runs" / record.run / "trial.json").read_text())
        proof = trial["details"]["facts"]["proof"]
        assert int(proof["capabilities"], 16) == 1 << CAP_NET_RAW and proof["no_new_privileges"]
        assert int(proof["effective_capabilities"], 16) == 1 << CAP_NET_RAW, where
        assert proof["filters_system_calls"], where
        kind = record.cell["setup.kind"]
        assert proof["user_id"] == (SUT_USER if kind == "oci" else 0), where
        servants = trial["details"]["servants"]
        spent_s = sum(one["cpu_s"] for one in servants)
        assert record.setup_cpu_s == pytest.approx(record.sut_cpu_s + spent_s), where
        assert_charged(kind, {one["name"] for one in servants})
        if kind == "docker-macvtap":
            assert_macvtap_is_a_hop(outcome.directory / "runs" / record.run, record)
    for record in outcome.records:
        assert {"suricata", "[kernel]"} <= named(outcome.directory / "runs" / record.run)


def assert_charged(kind: str, names: set[str]) -> None:
    """Daemons and shims are charged beside the SUT; test_books_close.py has the setup `bare`."""
    if kind == "oci":
        assert names == {"runc"}
    else:
        assert names >= {"dockerd", "containerd"}
        assert any(name.startswith("containerd-shim") for name in names)


def assert_macvtap_is_a_hop(folder: Path, record: TrialRecord) -> None:
    ledger = json.loads((folder / "ledger.json").read_text())
    counted = {hop["name"]: hop["packets"] for hop in ledger["hops"]}
    # Macvlan itself puts the two multicast fragments of this trace together.
    merged = {a["name"]: a["packets"] for a in ledger["accounts"] if a["into"] == "macvtap"}
    own = MULTIPLIERS[record.repetition - 1] * 2
    assert merged.pop("rx_merged_macvlan_defrag") == own
    assert counted["rx_nic"] - counted["macvtap"] == own + sum(merged.values())


def named(folder: Path) -> set[str]:
    """Files of which the profile has functions with a name."""
    found = json.loads((folder / "profile.json").read_text())
    if any(one["what"] in ("functions", "kernel") for one in found["missing"]):
        pytest.skip("perf_event_open is not permitted here")
    return {one["module"] for one in found["functions"] if one["name"]}


@pytest.mark.alone  # a macvtap's queue overflows if other tests keep its kernel thread waiting
@pytest.mark.usefixtures("docker")
def test_the_place_itself_loses_nothing(run: Run) -> None:
    """A packet that a sink there does not get is lost by the lab."""
    records = run(text=SINK).records
    assert {record.cell["setup.kind"] for record in records} == {"docker", "docker-macvtap", "oci"}
    for record in records:
        assert record.valid, record.verdict
        assert closes(record)
        assert record.packets.lost_packets == 0, record.verdict


@pytest.mark.usefixtures("docker")
def test_a_cpu_is_asked_inside_a_container() -> None:
    kinds = ["docker", "docker-macvtap", "oci"]
    for kind, found in probe_in("tsc", kinds).items():
        assert found["place"]["setup"] == kind
        assert 0 < found["ns"]["rdtsc"]["best"] <= found["ns"]["rdtsc"]["median"]


def test_too_little_memory_ends_its_own_trial_only(run: Run) -> None:
    outcome = run("setup.kind=oci", 'matrix."limits.memory"=["30MiB", "1GiB"]',
                  "load.speed=100", text=ONE)  # fmt: skip
    little, enough = sorted(outcome.records, key=lambda r: len(r.cell["limits.memory"]) < 5)
    assert outcome.exit_code == 1
    assert "for lack of memory (limits.memory = 30 MiB)" in little.error
    assert enough.valid and closes(enough), enough.verdict or enough.error


@pytest.mark.parametrize("kind", ["docker", "bare", depth("docker-macvtap"), depth("oci")])
@pytest.mark.usefixtures("docker")
def test_too_little_memory_is_named(run: Run, kind: str) -> None:
    outcome = run(f"setup.kind={kind}", 'limits.memory="30MiB"', text=ONE)
    record = only(outcome)
    assert outcome.exit_code == 1
    assert "for lack of memory (limits.memory = 30 MiB)" in record.error
    assert "raise limits.memory" in record.error


@pytest.mark.usefixtures("docker")
def test_the_kernels_own_log_says_what_docker_missed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's shim misses it if the control group is gone before the shim has looked."""
    ended = DockerEngine.ended

    def missed(engine: DockerEngine, container: str, *, timeout_s: float) -> Ending:
        return replace(ended(engine, container, timeout_s=timeout_s), out_of_memory=False)

    monkeypatch.setattr(DockerEngine, "ended", missed)
    outcome = run("setup.kind=docker", 'limits.memory="30MiB"', text=ONE)
    assert "for lack of memory (limits.memory = 30 MiB)" in only(outcome).error


@pytest.mark.usefixtures("docker")
def test_who_was_killed_by_hand_lacked_no_memory(run: Run) -> None:
    def kill() -> None:
        (pid,) = labelled("Suricata")
        os.kill(pid, signal.SIGKILL)

    error = only(run("setup.kind=docker", text=ONE, progress=Inject("offer", kill))).error
    assert "signal SIGKILL" in error and "the kernel killed it" not in error, error


@pytest.mark.parametrize("kind", ["docker", depth("bare"), depth("oci")])
@pytest.mark.usefixtures("docker")
def test_swappiness_is_the_kernels_own(run: Run, kind: str) -> None:
    seen: list[str] = []

    def look() -> None:
        (pid,) = labelled("Suricata")
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        group = next(line.split(":", 2)[2] for line in lines if ":memory:" in line)
        file = Path(f"/sys/fs/cgroup/memory{group}/memory.swappiness")
        if not file.exists():
            pytest.skip("control groups of version 2 have no swappiness")
        seen.append(file.read_text().strip())

    try:
        outcome = run(f"setup.kind={kind}", "limits.swappiness=7", "load.speed=100", text=ONE,
                      progress=Inject("offer", look))  # fmt: skip
    except NotReady as refused:
        assert "limits.swappiness = 7: control groups of version 2" in str(refused)
        return
    assert seen == ["7"]
    assert only(outcome).packets.residual_packets == 0


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("docker", "offer"),
        ("docker-macvtap", "ready"),
        ("oci", "offer"),
        depth("bare", "ready"),
        depth("bare", "offer"),
        depth("docker", "ready"),
        depth("docker-macvtap", "offer"),
        depth("oci", "ready"),
    ],
)
def test_undo_after_kill_9_leaves_nothing(
    run: Run, tmp_path: Path, real_trace: Path, docker: str, kind: str, step: str
) -> None:
    file = tmp_path / "killed.toml"
    file.write_text(ONE.format(trace=real_trace))
    before = unnamed()
    # With a limit there is a control group in every setup.
    killed = die_at(step, file, [f"setup.kind={kind}", "limits.memory=1GiB"])
    ours = containers(docker, killed.label)
    left = "\n".join(leftovers(killed, before, *ours))
    # What is our own child dies with us; a container does not.
    for thing in ("netns", "cgroup", *(("process",) if kind.startswith("docker") else ())):
        assert thing in left, f"killed too early to prove anything: {left}"
    assert bool(ours) == kind.startswith("docker")
    undo()
    assert leftovers(killed, before, *ours) == []
    assert containers(docker, killed.label) == []


def test_a_container_that_docker_does_not_remove_is_named(
    docker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "GONE_TIMEOUT_S", 0.1)
    with closing(DockerEngine(docker)) as engine:
        image = find_image("suricata")
        bits = engine.image(image.sha256, image.folder / "rootfs.tar")
        made = [engine.create(bits, ["/bin/true"], network_mode="none") for _ in range(2)]
        with monkeypatch.context() as deaf:
            deaf.setattr(engine, "_order_removal", lambda container: None)
            with pytest.raises(LabProblem, match="has not removed within") as told:
                engine.remove(made)
        assert all(f"{container[:12]} (created)" in str(told.value) for container in made)
        monkeypatch.undo()
        engine.remove(made)
        assert [engine._state(container) for container in made] == ["", ""]


def test_a_daemon_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODROP_DOCKER_HOST", "unix:///run/nodrop-no-such.sock")
    with pytest.raises(LabProblem, match="no Docker daemon answers at unix:///run/nodrop-no"):
        run("setup.kind=docker", text=ONE)


def test_a_daemon_that_stops_in_the_middle(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SINK.replace("[matrix]", '[matrix]\n"load.speed" = [40, 50]')
    text = text.replace("speed = 40\n", "")
    with private_daemon(tmp_path) as (url, daemon):
        monkeypatch.setenv("NODROP_DOCKER_HOST", url)

        def stop() -> None:
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait(60)

        class InDocker(Inject):
            def trial_started(self, trial: Any) -> None:
                self.there = trial.cell["setup.kind"] == "docker"

            def phase(self, name: str) -> None:
                if self.there:
                    super().phase(name)

        outcome = run('matrix."setup.kind"=["oci", "docker"]', "measure.seed=2", text=text,
                      progress=InDocker("drain", stop))  # fmt: skip
        assert outcome.exit_code == 1
        for record in outcome.records:
            assert record.valid == (record.cell["setup.kind"] == "oci"), record.verdict
        in_docker = [r for r in outcome.records if r.cell["setup.kind"] == "docker"]
        for record in in_docker:
            assert "Docker daemon" in record.error and "answer" in record.error, record.error
        assert [r.index for r in in_docker] == [1, 3], "a seed that lets others go on"


@pytest.mark.usefixtures("docker")
def test_the_nic_vanishes(run: Run) -> None:
    outcome = run("setup.kind=docker", "measure.repetitions=2", "load.speed=100", text=SINK,
                  progress=Inject("read counters", nic_gone_once()))  # fmt: skip
    broken, whole = outcome.records
    assert outcome.exit_code == 1
    assert not broken.valid
    assert "ndtx0" in broken.verdict or "ndrx0" in broken.verdict
    assert whole.valid and closes(whole), whole.verdict


@pytest.mark.parametrize("other", ["a", "b" * 5000])
def test_other_bits_under_the_name_of_ours_are_not_run(
    docker: str, tmp_path: Path, other: str
) -> None:
    """A tag is but a name: anyone may give it to another image."""
    (tmp_path / other[0]).write_text(other)
    tars = [tmp_path / "ours.tar", tmp_path / "other.tar"]
    for tar, name in zip(tars, ("/etc/hostname", str(tmp_path / other[0])), strict=True):
        with tarfile.open(tar, "w") as packed:
            packed.add(name, "file")
    sha256 = file_sha256(tars[0])
    with closing(DockerEngine(docker)) as engine:
        try:
            forged = engine._client.api.import_image(
                src=str(tars[1]), repository="nodrop", tag=sha256
            )
            assert "sha256:" in forged
            wrong = engine._client.images.get(f"nodrop:{sha256}").id
            right = engine.image(sha256, tars[0])
            assert right != wrong
            assert engine.image(sha256, tmp_path / "not-needed") == right, "not imported again"
        finally:
            engine._client.images.remove(f"nodrop:{sha256}", force=True)


@pytest.mark.depth  # known_answers/test_bits.py has a byte more on the host
@pytest.mark.usefixtures("docker")
def test_a_layer_with_another_byte_in_a_library_is_other_bits(
    run: Run, docker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker keeps an image in its own folder: the bits that run there are hashed there."""
    image, path = find_image("suricata"), "usr/lib/x86_64-linux-gnu/libhtp.so.2.0.0"
    forged = tmp_path / "forged.tar"
    shutil.copyfile(image.folder / "rootfs.tar", forged)
    with tarfile.open(forged) as packed:
        begin = next(m.offset_data for m in packed if m.name.removeprefix("./") == path)
    with forged.open("r+b") as file:
        file.seek(begin + 60)  # the number of its sections, which no loader looks at
        file.write(b"\x01")
    with closing(DockerEngine(docker)) as engine:
        wrong = engine.image(file_sha256(forged), forged)
        try:
            monkeypatch.setattr(DockerEngine, "image", lambda *_: wrong)
            record = only(run("setup.kind=docker", text=ONE))
        finally:
            engine._client.images.remove(wrong, force=True)
    assert record.invalid_reasons == ["other_bits"], record.verdict
    assert f"/{path} has another sha256" in record.verdict


@pytest.mark.depth  # docker/test_lost_images.py loses it in the middle of a run
@pytest.mark.usefixtures("docker")
def test_an_image_that_docker_has_lost_is_imported_again(run: Run, docker: str) -> None:
    image = find_image("suricata")
    with closing(DockerEngine(docker)) as engine:
        before = engine.image(image.sha256, image.folder / "rootfs.tar")
        engine._client.images.remove(f"nodrop:{image.sha256}", force=True)
        assert only(run("setup.kind=docker", text=ONE)).valid
        assert engine.image(image.sha256, image.folder / "rootfs.tar") != before, "imported anew"


@pytest.mark.usefixtures("docker")
def test_a_described_program_in_containers(run: Run, tmp_path: Path) -> None:
    described_program.write(tmp_path)
    text = ONE.replace(
        'kind = "suricata"', f'kind = "command"\nprogram = "{described_program.FILE}"'
    )
    text = text.replace("ring_size", 'image = "suricata"\n# ring_size').replace(
        "defrag", "# defrag"
    )
    kinds = 'matrix."setup.kind"=["docker", "oci"]'
    outcome = run(kinds, "load.speed=", "load.pps=2000", "load.duration_s=1", text=text)
    assert len(outcome.records) == 2
    for record in outcome.records:
        assert record.valid and closes(record), f"{record.cell}: {record.verdict}"
        assert record.packets.decoded_packets > 0
        assert record.threads[0].name == "python3"


@pytest.mark.depth
@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("program", ["dumpcap", "tshark", "netsniff-ng", "nfpcapd"])
def test_each_shipped_program_in_containers(run: Run, program: str) -> None:
    """tcpdump is left out, which insists on becoming another user and may not."""
    try:
        find_image("capture-tools:bookworm")
    except BadInput as missing:
        pytest.skip(f"nodrop image build capture-tools: {missing}")
    table = f'kind = "command"\nprogram = "{program}"\nimage = "capture-tools:bookworm"'
    text = ONE.replace('kind = "suricata"', table).replace("ring_size", "# ring_size")
    kinds = 'matrix."setup.kind"=["docker", "oci", "bare"]'
    text = text.replace("defrag", "# defrag")
    outcome = run(kinds, "load.speed=", "load.pps=2000", "load.duration_s=2", text=text)
    assert len(outcome.records) == 3
    for record in outcome.records:
        assert record.valid and closes(record), f"{record.cell}: {record.verdict}"
        assert record.packets.lost_packets == 0 and record.packets.captured_packets > 2000
