"""The examples in the help of each command, and the commands in blocks of the documentation, run as
they stand there, in a folder and a network namespace that have what they name. Further options make
a measurement short."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from nodrop.cli import main
from nodrop.cli.lab import NODE_JOBS
from nodrop.testbed.hosts.rights import in_user_namespace
from nodrop.testbed.images.image_cache import list_images
from tests.depth import depth
from tests.unit.test_docs import blocks, lines, programs

ROOT = Path(__file__).parents[2]
RUNS = (
    "before/my-1", "after/my-1", "results/capacity-my-20261126T101500Z",
    "results/my-20261126T101500Z", "results/nightly-1", "results/nightly-2", "results/nightly-3",
    "RUNDIR", "before/NAME-UTC", "after/NAME-UTC",
)  # fmt: skip
"""Run directories that the examples name: copies of one that is measured here."""
IN_PROCESS = {
    "baseline",
    "clean",
    "compare",
    "export",
    "history",
    "image",
    "init",
    "plugins",
    "put",
}
"""Commands that need no namespace: a process of its own takes a second."""
CAPTURING = (
    "import socket, sys; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768);"
    "s.bind(('eth1', 0)); print(flush=True); sys.stdin.read()"
)
RULE = 'alert tcp any any -> any 80 (msg:"to port 80"; sid:1;)\n'
YAML = """\
%YAML 1.1
---
af-packet:
  - interface: eth1
    cluster-id: 99
    cluster-type: cluster_flow
"""
SHORT = ("--sut", "sink", "--set", "sut.service_rate_pps=4000", "--window", "2.0..2.5")
SURICATA = ("--window", "2.0..2.5", "--set", "search.rounds=1", "--budget", "25s")

EXPERIMENT = """\
name = "my"
question = "What does the sink lose?"
[setup]
kind = "bare"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "my.pcap"
window = "2.0..2.3"
[measure]
late_p99_us = 1_000_000
"""
PROGRAM = (
    """\
name = "mine"
argv = ["tcpdump", "-i", "{interface}", "-w", "{work}/out.pcap"]
discard = ["out.pcap"]
[stop]
signal = "INT"
[threads]
receive = '^tcpdump$'
[exit]
from = "stderr"
regex = """
    + r"""'(?P<received>\d+) packets received by filter\s+(?P<dropped>\d+) packets dropped'
[books]
captured = "received"
dropped_ring_full = "dropped"
decoded = "received - dropped"
"""
)

NOT_RUN: Mapping[str, str] = {
    "nodrop ab my.pcap --a ./old/suricata": "two builds of Suricata: tests/slow/report/test_ab.py",
    "nodrop ab my.pcap --a suricata:7": "two images: tests/slow/report/test_ab.py",
    "nodrop audit sensor1": "a host by ssh: tests/ssh",
    "nodrop ab trace.pcap": "two builds of Suricata: tests/slow/report/test_ab.py",
    "nodrop capacity my.pcap --config": "a Suricata of the host's own: tests/e2e",
    "nodrop capacity my.pcap --setup docker": "Docker: tests/docker",
    "nodrop compare DIR": "a run of two cells: tests/slow/report",
    "nodrop compare results/low": "a run of a fleet: tests/slow/report",
    "nodrop run experiment.toml --out after": "another build of Suricata: tests/e2e",
    "nodrop baseline s3:": "a store: tests/slow/results/test_stored.py",
    "nodrop calibrate": "minutes: tests/known_answers/test_calibrate.py runs its cases",
    "nodrop drops sensor1": "a host by ssh: tests/ssh",
    "nodrop image build": "150 packages, minutes: `make test` builds one if none is there",
    "nodrop image ensure tcpdump": "builds an image, a minute: tests/slow/images",
    "nodrop image guest": "builds a guest, minutes: tests/vm",
    "nodrop import cs590": "the published data: tests/slow/test_import_cs590.py makes some",
    "nodrop image show suricata:8": "CI builds no Suricata 8: tests/unit/cli/test_commands.py",
    "nodrop lab prepare": "hosts by ssh: tests/ssh",
    "nodrop probe kvm": "needs KVM: tests/vm",
    "nodrop probe tsc --setup": "a container and Docker: tests/docker",
    "nodrop probe vmx": "needs KVM: tests/vm",
    "nodrop profile experiments/thread-models.toml": "minutes: tests/e2e/test_profile.py",
    "nodrop put results/capacity-my-20261126T101500Z s3:": "a store: tests/slow/results",
    "nodrop tune prove mpm": "Suricata with two cells for minutes: tests/known_answers",
    "nodrop tune prove rps=1 ring-size": "Suricata with four cells for minutes",
    "nodrop tune prove ring-size": "Suricata with two cells for minutes: tests/known_answers",
    "nodrop tune plan --port eth1 gro=off": "netdev-budget is the host's: tests/unit/tune",
    "nodrop watch": "runs until Ctrl-C: tests/slow/watch",
}
"""Beginning of an example → why it is not run here, and where its like is."""
PAGES_NOT_RUN: Mapping[str, str] = {
    "docs/how-to/any-capture-program.md": "the file of the page has a mistake on purpose",
    "docs/how-to/calibrate.md": "minutes: tests/known_answers/test_calibrate.py",
    "docs/how-to/dpdk.md": "an image with DPDK: tests/e2e, where there is one",
    "docs/how-to/fleet.md": "hosts and a store: tests/netns/test_fleet.py",
    "docs/how-to/import-published-data.md": "published data: tests/slow/test_import_cs590.py",
    "docs/how-to/iperf3.md": "iperf3: tests/netns/test_iperf3.py",
    "docs/how-to/lost-detections.md": "minutes: tests/e2e/test_detections.py",
    "docs/how-to/mme.md": "minutes: tests/netns/test_attaches.py",
    "docs/how-to/thread-models.md": "minutes: tests/e2e/test_profile.py",
    "docs/how-to/tools-by-hand.md": "jobs of the node: tests/netns/test_replay_and_sink.py",
    "docs/how-to/two-hosts.md": "hosts by ssh: tests/ssh",
    "docs/how-to/vm-setup.md": "guests: tests/vm",
    "docs/how-to/watch-a-run.md": "runs until Ctrl-C: tests/slow/watch",
}
"""Page → why the commands of its blocks are not run here, and where their like is."""
MORE: Mapping[str, Sequence[str]] = {
    "nodrop ab": (*SHORT, "--load", "1X", "--most", "12", "--budget", "40s"),
    "nodrop audit --watch": ("--port", "eth1"),
    "nodrop capacity": SURICATA,
    "nodrop demo": (*SHORT[2:4], "--set", "search.budget_s=10"),
    "nodrop drops --": ("--interval", "500ms", "--for", "1s"),
    "nodrop drops --port": ("--port", "lo", "--interval", "500ms", "--for", "1s"),
    "nodrop profile": ("--set", "measure.repetitions=1"),
    "nodrop run": ("--set", "measure.repetitions=2"),
    "nodrop tune prove": (*SHORT, "--load", "1", "--most", "12", "--budget", "20s"),
}
"""Beginning of an example → options that are added to it."""
ENDS: Mapping[str, Mapping[int, str]] = {
    "nodrop audit": {
        0: r'(?s)^(?!.*\nNot read:).* 0 findings|"findings": \[\], "missing": \[\]',
        1: r' [1-9]\d* findings?|"findings": \[\{',
        6: r'\nNot read:|"missing": \[\{',
    },
    "nodrop compare": {6: "(?i)cannot tell"},  # two trials of one run
    "nodrop drops --port": {6: "blind at eth1 since .*: no program captures there"},
    "nodrop doctor": {0: r'Ready|"problems": \[\]', 3: r'to fix|"problems": \["'},
    "nodrop history": {6: "(?i)cannot tell"},  # three runs
    "nodrop lab check": {0: r'Ready|"problems": \[\]', 3: r'to fix|"problems": \["'},
    "nodrop plan": {0: r"(?s)^(?!.*stands in the way: )", 3: "stands in the way: "},
}
"""Beginning of an example → exit code, and the words that then say why; elsewhere 0. Where there
are several, a host has one of them: what can be read there, what it lacks."""
OF_A_USER: Mapping[str, Mapping[int, str]] = {
    "nodrop drops": {6: ""},  # it may not see what root's programs capture
    "nodrop profile": {0: "", 1: "void: the sender was late"},  # it has no real-time class
    "nodrop sut check": {2: "be root"},
    "nodrop tune apply --port eth1 gro=off rps=1": {2: "run as root"},
}
"""Beginning of an example → exit code and words for a normal user, where they differ."""
MEASURED: Mapping[str, set[int]] = {
    "nodrop ab": {0, 6},
    "nodrop capacity": {0, 6},
    "nodrop capacity my.pcap --need": {0, 5, 6},
    "nodrop demo": {0, 6},
    "nodrop tune prove": {0, 6},
}
"""Beginning of an example → exit codes of a verdict: what a few seconds of trials show on a machine
with other work is different each time."""
SHELL = ("console", "sh")
DEPTH = (
    "nodrop ab", "nodrop audit --role", "nodrop audit --watch", "nodrop capacity", "nodrop demo",
    "nodrop lab check netns", "nodrop run my.toml --lab", "nodrop sut check ./",
    "nodrop tune prove",
)  # fmt: skip
"""Measurements of a kind that another example, or a test of its own, has in `make test`."""


SENSOR = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", """\
ip link set lo up
tcpdump -i lo -w /dev/null 2>/dev/null &
until [ "$(wc -l </proc/net/packet)" -gt 1 ]; do kill -0 $! || exit 99; sleep 0.02; done
exec "$@"
""", "sensor")  # fmt: skip
"""Start of a command for which one program captures, and none of another test."""


def of(table: Mapping[str, Any], example: str, default: Any) -> Any:
    found = [key for key in table if example.startswith(key)]
    return table[max(found, key=len)] if found else default


def examples() -> Iterator[str]:
    """Also of commands that packages beside nodrop bring."""

    def below(command: Any, context: Any) -> Iterator[str]:
        for line in (command.help or "").splitlines():
            if line.strip().startswith("nodrop "):
                yield line.strip()
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                if name not in NODE_JOBS:
                    yield from below(command.get_command(context, name), context)

    command = typer.main.get_command(main.app)
    yield from below(command, command.context_class(command))


def documented() -> Iterator[str]:
    """Commands of blocks, of pages that are not named above."""
    for block in blocks():
        if block.language in SHELL and block.page not in PAGES_NOT_RUN:
            for argv in (argv for line in lines(block) for argv in programs(line)):
                if argv[0].endswith("nodrop") and "…" not in argv:
                    yield shlex.join(["nodrop", *argv[1:]])


def cases() -> Iterator[Any]:
    shown = [*examples()]
    for command in dict.fromkeys([*shown, *documented()]):
        if of(NOT_RUN, command, None) is None:
            further = command.startswith(DEPTH) or command not in shown
            yield depth(command) if further else command


def test_every_row_is_of_a_command_and_names_tests_that_are_there() -> None:
    commands = {*examples(), *documented()}
    started = {command for command in commands if of(NOT_RUN, command, None) is None}
    for table, named in [(NOT_RUN, commands), *((one, started) for one in (MORE, ENDS, MEASURED))]:
        held = {max((k for k in table if c.startswith(k)), key=len, default="") for c in named}
        assert {*table} - held == set()
    for page, why in [*PAGES_NOT_RUN.items(), *NOT_RUN.items()]:
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", why):
            assert (ROOT / path).exists(), (page, path)
    assert {*PAGES_NOT_RUN} <= {block.page for block in blocks() if block.language in SHELL}


@pytest.fixture(scope="module")
def namespace(node: Path) -> Iterator[str]:
    """A network namespace with eth1."""
    name = f"ndhelp{os.getpid()}"
    queues = ["numrxqueues", "2", "numtxqueues", "2"]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for words in (
            ["link", "add", "eth1", *queues, "type", "veth", "peer", "name", "eth2", *queues],
            ["link", "set", "eth1", "up"],
            ["link", "set", "eth2", "up"],
        ):
            subprocess.run(["ip", "-n", name, *words], check=True)
        argv = ["ip", "netns", "exec", name, sys.executable, "-c", CAPTURING]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as capturing:
            assert capturing.stdout and capturing.stdout.readline()
            yield name
            capturing.communicate()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture(scope="module")
def folder(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    folder: Path = tmp_path_factory.mktemp("examples")
    for name, words in {
        "my.pcap": ("make", "demo"),
        "host.pcap": ("make", "demo"),
        "my.pcap0": ("cut", "my.pcap", "--to-s", "1"),
        "my.pcap1": ("cut", "my.pcap", "--from-s", "1", "--to-s", "2"),
        "my.pcap2": ("cut", "my.pcap", "--from-s", "2", "--to-s", "3"),
    }.items():
        argv = [node, "trace", *words[:2], name, *words[2:]]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    (folder / "my.rules").write_text(RULE)
    (folder / "suricata.yaml").write_text(YAML)
    for name in ("my.toml", "experiment.toml"):
        (folder / name).write_text(EXPERIMENT)
    (folder / "experiments").symlink_to(ROOT / "experiments")
    (folder / "my-lab.toml").write_text((ROOT / "labs/netns.toml").read_text())
    (folder / "mine.toml").write_text(PROGRAM)
    for name, program in (("rootfs.tar", "snort"), ("sensor.tar", "suricata")):
        with tarfile.open(folder / name, "w") as tar:
            tar.add("/bin/true", f"usr/bin/{program}")
    late = ("--set", "measure.late_p99_us=10_000_000")  # other tests run beside it
    twice = ("--set", "measure.repetitions=2")
    done = started(folder, "run", "my.toml", *twice, *late, "--out", "made")
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "made").iterdir()
    for run in RUNS:
        shutil.copytree(made, folder / run)
        manifest = json.loads((folder / run / "manifest.json").read_text())
        (folder / run / "manifest.json").write_text(json.dumps(manifest | {"run_id": run}))
    started(folder, "baseline", "before/my-1", "base.json")
    return folder


def started(
    folder: Path, *words: str, inside: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*inside, sys.executable, "-m", "nodrop.cli.main", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "BROWSER": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def expanded(word: str, folder: Path, scratch: Path) -> Sequence[str]:
    """A word as a shell gives it; folders of the host are some of the test's own."""
    word = word.replace("/etc/suricata/suricata.yaml", "suricata.yaml")
    word = re.sub("^(file://|)(/mnt|/tmp|/var/lib/node_exporter)/", rf"\1{scratch}/", word)
    found = (
        sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else ()
    )
    return found or [word]


@pytest.mark.parametrize("example", [*cases()])
def test_an_example_runs(
    example: str,
    folder: Path,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [each for word in shlex.split(example)[1:] for each in expanded(word, folder, tmp_path)]
    words += of(MORE, example, ())
    if words[0] in ("init", "clean"):  # they write to, or empty, where they are
        shutil.copytree(folder / "results", tmp_path / "results")
        shutil.copy(folder / "my.pcap", tmp_path)
        folder = tmp_path
    if words[0] == "clean" or words[:2] == ["image", "import"]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if words[0] == "capacity" and not list_images("suricata"):
        pytest.skip("no image of Suricata: `nodrop image ensure suricata`")
    if words[0] in IN_PROCESS:
        monkeypatch.chdir(folder)
        code, (out, err) = main.exit_code(words), capfd.readouterr()
    else:
        inside = ["ip", "netns", "exec", namespace]
        if words[0] == "drops":
            inside += SENSOR
        done = started(folder, *words, inside=inside)
        code, out, err = done.returncode, done.stdout, done.stderr
    if example.startswith(tuple(MEASURED)):
        assert code in of(MEASURED, example, set()), out + err
    else:
        ends = of(ENDS, example, {0: ""})
        if in_user_namespace():
            ends = of(OF_A_USER, example, ends)
        assert code in ends and re.search(ends[code], out + err), (code, out + err)
    assert out or err
