"""The bare setup: from a root folder of its own or from the host, and neither is changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.rights import sut_user
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.setups.api import Limits, ProcessSpec
from nodrop.testbed.setups.bare import Bare, BareEnv, BareProcess

DEADLINE_S = 20.0
SCRIPT = """
cat rules/x > copied; echo $WORD > word; ls /sys/class/net > ports
echo x > /tmp/x; echo x > /var/log/x; echo x > /run/x
echo more >> rules/x
echo told; echo warned >&2
exec tail -f /dev/null
"""
PROGRAMS = ("sh", "cat", "grep", "ls", "tail")
CAP_NET_RAW = 13


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Bits:
    """A root folder with just enough of this host to run a few programs."""
    root = tmp_path_factory.mktemp("image") / "rootfs"
    for folder in ("usr/bin", "run", "tmp", "var/log", "proc", "sys", "dev"):
        (root / folder).mkdir(parents=True)
    for program in PROGRAMS:
        path = Path(shutil.which(program) or "")
        shutil.copy(path, root / "usr/bin" / program)
        needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", needed):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    return Bits(kind="image", path=root, sha256="0" * 64)


@contextmanager
def provisioned(bits: Bits | None, work: Path, label: str, cpus: str | None) -> Iterator[BareEnv]:
    work.mkdir()
    limits = Limits(cpus=cpus)
    setup = Bare({"kind": "bare"}, base=work)
    assert setup.problems(bits, limits) == []
    with (
        DiskJournal.create(label) as journal,
        NetnsLab().up(journal) as link,
        setup.provision(link, bits=bits, limits=limits, work=work, journal=journal) as env,
    ):
        yield env


def launch(env: BareEnv, rules: Path, script: str = SCRIPT) -> BareProcess:
    process = env.launch(
        ProcessSpec(
            argv=("/usr/bin/sh", "-c", f"cd {env.work_inside}\n{script}"),
            files={"rules/x": rules, "written": b"bytes"},
            env={"WORD": "hello", "PATH": "/usr/bin"},
        )
    )
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{process.root.pid}/comm").read_text() != "tail\n":
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read_text()
        time.sleep(0.01)
    return process


def contents(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


def test_out_of_an_image(image: Bits, tmp_path: Path, label: str) -> None:
    rules, work = tmp_path / "rules", tmp_path / "work"
    rules.write_text("alert\n")
    before = contents(image.path)
    with provisioned(image, work, label, cpus="0") as env:
        assert (env.work_inside, list(env.capture_interfaces)) == ("/run/nodrop", ["ndrx0"])
        process = launch(env, rules)
        assert os.sched_getaffinity(process.root.pid) == {0}
        assert (work / "ports").read_text().split() == ["lo", "ndrx0"]
        assert process.poll() is None
        assert process.stop(timeout_s=0.1) == -signal.SIGKILL, "process 1 without a handler"
    assert (work / "copied").read_text() == "alert\n" == rules.read_text()  # shown read-only
    assert (work / "word").read_text() == "hello\n"
    assert (work / "written").read_bytes() == b"bytes"
    assert process.stdout.read_text() == "told\n"
    assert (
        re.search("Read-only|denied", process.stderr.read_text())
        and "warned\n" in process.stderr.read_text()
    )
    assert contents(image.path) == before
    left = {path.name for path in work.iterdir()}
    assert left == {"copied", "ports", "rules", "sh.stderr", "sh.stdout", "word", "written"}
    assert list((work / "rules").iterdir()) == []


def test_from_the_host(tmp_path: Path, label: str) -> None:
    rules, work = tmp_path / "rules", tmp_path / "work"
    rules.write_text("alert\n")
    script = "cat rules/x > copied; ls /sys/class/net > ports; exec tail -f /dev/null"
    with provisioned(None, work, label, cpus=None) as env:
        assert env.work_inside == "/run/nodrop"
        process = launch(env, rules, script)
        assert (work / "ports").read_text().split() == ["lo", "ndrx0"]
    assert process.poll() == -signal.SIGKILL  # no one stopped it: the environment did
    assert (work / "copied").read_text() == "alert\n"
    assert not (work / "rules/x").exists() and rules.exists()


def test_a_program_that_will_not_stop_is_killed(tmp_path: Path, label: str) -> None:
    rules = tmp_path / "rules"
    rules.touch()
    with provisioned(None, tmp_path / "work", label, cpus=None) as env:
        process = launch(env, rules, "trap '' TERM; exec tail -f /dev/null")
        assert process.stop(timeout_s=0.2) == -signal.SIGKILL


def test_a_memory_limit_ends_what_goes_beyond_it(tmp_path: Path, label: str) -> None:
    limits = Limits(memory_bytes=48 << 20)
    if words := Bare().problems(None, limits):
        pytest.skip(words[0])
    work = tmp_path / "work"
    work.mkdir()
    with (
        DiskJournal.create(label) as journal,
        NetnsLab().up(journal) as link,
        Bare().provision(link, bits=None, limits=limits, work=work, journal=journal) as env,
    ):
        greedy = env.launch(ProcessSpec(argv=(sys.executable, "-c", "b'x' * (256 << 20)")))
        deadline = time.monotonic() + DEADLINE_S
        while greedy.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert greedy.poll() == -signal.SIGKILL
        memory = env.facts()["memory"]
        assert memory["oom_kills"] == 1
        assert memory["peak_bytes"] is None or memory["peak_bytes"] <= 48 << 20
        (tmp_path / "x").touch()
        group = Path(
            f"/proc/{launch(env, tmp_path / 'x', 'exec tail -f /dev/null').root.pid}/cgroup"
        )
        assert f"nodrop-{label}" in group.read_text()
    assert not list(Path("/sys/fs/cgroup").rglob(f"nodrop-{label}"))


RIGHTS = """
grep -E '^Cap(Bnd|Eff)|NoNewPrivs|^Uid|^Seccomp:' /proc/self/status > status
ls /dev > devices; ls -d /proc/[0-9]* > processes
kill -0 {controller} 2>/dev/null && echo killed > damage
echo x 2>/dev/null > /proc/sys/kernel/domainname && echo sysctl > damage
echo x 2>/dev/null > /usr/bin/new && echo root > damage
echo x 2>/dev/null > /sys/fs/cgroup/cgroup.procs && echo cgroup > damage
exec tail -f /dev/null
"""


def test_it_holds_what_capturing_takes_and_nothing_of_the_host(
    image: Bits, tmp_path: Path, label: str
) -> None:
    rules, work = tmp_path / "rules", tmp_path / "work"
    rules.touch()
    with provisioned(image, work, label, cpus=None) as env:
        process = launch(env, rules, RIGHTS.format(controller=os.getpid()))
        proof = process.proof()
        assert proof is not None
        assert int(proof.capabilities, 16) == 1 << CAP_NET_RAW
        assert proof.no_new_privileges and proof.filters_system_calls
        assert int(proof.effective_capabilities, 16) == 1 << CAP_NET_RAW
        assert proof.user_id == (sut_user() or 0)
        assert process.stop(timeout_s=0.1) == -signal.SIGKILL, "process 1 without a handler"
    status = dict(line.split(":\t") for line in (work / "status").read_text().splitlines())
    assert {int(status[name], 16) for name in ("CapBnd", "CapEff")} == {1 << CAP_NET_RAW}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert set(status["Uid"].split()) == {str(sut_user() or 0)}
    nodes = ["full", "null", "random", "urandom", "zero"]
    assert (work / "devices").read_text().split() == nodes
    assert (work / "processes").read_text().split() == ["/proc/1"]
    assert not (work / "damage").exists(), (work / "damage").read_text()


OF_THE_HOST = """
import os, socket, sys
seen = {"cwd": os.getcwd(), "writable": [], "secrets": [], "calls": []}
for place in sys.argv[1:]:
    try:
        open(place + "/nodrop-was-here", "w").close()
        seen["writable"].append(place)
    except OSError:
        pass
for secret in ("/etc/shadow", "/root/.ssh", "/root/.bashrc", "/run/docker.sock"):
    try:
        os.stat(secret) if secret != "/etc/shadow" else open(secret).close()
        seen["secrets"].append(secret)
    except OSError:
        pass
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, arguments in {
    "mount": (b"x", b"/tmp", b"tmpfs", 0, None),
    "unshare": (0x10000000,),
    "ptrace": (0, 0, 0, 0),
    "setns": (0, 0),
    "perf_event_open": (),
}.items():
    call = getattr(libc, name, None) or (lambda *_: libc.syscall(298, 0, 0, -1, -1, 0))
    if call(*arguments) == 0 or ctypes.get_errno() != 1:
        seen["calls"].append((name, ctypes.get_errno()))
seen["environment"] = sorted(os.environ)
seen["home"] = os.listdir("/home")
socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
import json, threading
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
with open("seen.json", "w") as file:
    json.dump(seen, file)
import time
time.sleep(1000)
"""


def test_a_program_of_the_host_sees_it_closed(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "x")
    work, places = tmp_path / "work", ["/", "/etc", "/usr/bin", "/root", "/var/lib", "/sys", "/dev"]
    shown = tmp_path / "configuration"
    shown.write_text("x")
    shown.chmod(0o644)
    with provisioned(None, work, label, cpus=None) as env:
        argv = (sys.executable, "-c", OF_THE_HOST, *places)
        process = env.launch(ProcessSpec(argv=argv, reads=[shown]))
        deadline = time.monotonic() + DEADLINE_S
        while not (work / "seen.json").exists() or not (work / "seen.json").read_text():
            assert time.monotonic() < deadline, process.stderr.read_text()
            assert process.poll() is None, process.stderr.read_text()
            time.sleep(0.01)
        root = Path(f"/proc/{process.root.pid}/root")
        assert (root / str(shown).lstrip("/")).read_text() == "x", "what it names is shown"
        proof = process.proof()
        assert proof is not None
        assert proof.filters_system_calls and proof.user_id == (sut_user() or 0)
        assert Path(proof.exe).exists(), "named as the host names it"
    seen = json.loads((work / "seen.json").read_text())
    assert (seen["cwd"], seen["secrets"], seen["calls"]) == ("/run/nodrop", [], [])
    assert set(seen["writable"]) <= {"/root"}, "a folder of the trial lies over it"
    if os.access("/root", os.X_OK):  # a normal user's namespace cannot look into it
        assert not Path("/root/nodrop-was-here").exists()
    assert "AWS_SECRET" not in seen["environment"]
    assert (work / "seen.json").stat().st_uid == os.geteuid()
    assert not work.with_name("work.private").exists()


def test_a_file_that_only_root_may_read_is_shown_all_the_same(
    image: Bits, tmp_path: Path, label: str
) -> None:
    rules, work = tmp_path / "rules", tmp_path / "work"
    rules.write_text("alert\n")
    rules.chmod(0o600)
    with provisioned(image, work, label, cpus=None) as env:
        process = launch(env, rules)
        proof = process.proof()
        assert proof is not None and proof.files["rules/x"] == file_sha256(rules)
    assert (work / "copied").read_text() == "alert\n"
