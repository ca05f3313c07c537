"""Settings of a real veth in a foreign namespace: applied, put back, killed in between."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.cli import main
from nodrop.errors import BadInput
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.folders import is_root_of_host
from nodrop.testbed.hosts.journal import DiskJournal, undo_abandoned
from nodrop.testbed.hosts.local import LocalHost
from nodrop.tune.applying import Restored, tuned
from nodrop.tune.kept import put_back, tunings
from tests.depth import depth

pytestmark = pytest.mark.skipif(not is_root_of_host(), reason="needs root and unshare")
KNOBS = (
    "mtu=9000",
    "tx-queue-len=500",
    "gro=on",
    "tso=off",
    "sg=off",
    "rx=off",
    "rxvlan=off",
    "rps=1",
    "rfs-flows=1024",
    "xps=0",
    "gro-flush-timeout=20000",
    "napi-defer-hard-irqs=2",
    "rx-channels=1",
    "tx-channels=1",
)
NEVER = 1000
STAT_INTERVAL = Path("/proc/sys/vm/stat_interval")


class Namespace:
    def __init__(self, there: subprocess.Popen[str]) -> None:
        self.there = there
        self.first = self._said()

    def _said(self) -> dict[str, str]:
        assert self.there.stdout
        found: dict[str, str] = json.loads(self.there.stdout.readline())
        return found

    def tell(self, words: str = "") -> dict[str, str]:
        assert self.there.stdin
        self.there.stdin.write(words + "\n")
        self.there.stdin.flush()
        return self._said()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    script = Path(__file__).with_name("tuned_port.py")
    command = ["unshare", "--net", "--mount", sys.executable, str(script)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as there:
        yield Namespace(there)
        assert there.stdin
        there.stdin.close()


def _restored(*, overwrite: bool = False) -> list[Restored]:
    return [put_back(one, overwrite=overwrite) for one in tunings(killed=True).whole]


def _away(namespace: Namespace, *argv: str) -> str:
    """Output of a command that runs there."""
    where = ["nsenter", "-t", str(namespace.there.pid), "-n", "-m"]
    return subprocess.run([*where, *argv], check=True, capture_output=True, text=True).stdout


def _shuffled(seed: int) -> list[str]:
    some = random.Random(seed)
    return some.sample(KNOBS, some.randint(4, len(KNOBS)))


@pytest.mark.parametrize("seed", [1, *(depth(seed) for seed in range(2, 22))])
def test_any_real_knobs_and_back_is_identity(namespace: Namespace, seed: int) -> None:
    knobs = _shuffled(seed)
    tuned = namespace.tell(f"{NEVER} {' '.join(knobs[2:])}")
    assert tuned != namespace.first
    namespace.tell(f"{NEVER} {' '.join(knobs[:2])}")  # a second apply adds to the first
    assert undo_abandoned() == []  # what is set stays: no run was killed
    (found,) = _restored()
    assert (found.failed, found.others) == ([], [])
    assert namespace.tell() == namespace.first
    assert tunings(killed=True).whole == []


@pytest.mark.parametrize(
    ("seed", "writes", "by"),
    [(1, 2, "undo"), (2, 5, "restore"), *(depth(s, s % 12, "restore") for s in range(3, 51))],
)
def test_killed_in_between_every_value_comes_back(
    namespace: Namespace, seed: int, writes: int, by: str
) -> None:
    halfway = namespace.tell(f"{writes} {' '.join(_shuffled(seed))}")
    assert halfway != namespace.first or writes == 0
    if by == "undo":
        (report,) = undo_abandoned()
        assert (report.done, report.failed) == (["settings of eth1"], [])
    else:
        assert [one.failed for one in _restored()] == [[]]
    assert namespace.tell() == namespace.first


def _nodrop(namespace: Namespace, words: str) -> str:
    where = ["nsenter", "-t", str(namespace.there.pid), "-n", "-m"]
    argv = [*where, sys.executable, "-m", "nodrop.cli.main", *shlex.split(words, comments=True)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def _printed(said: str) -> list[str]:
    lines = [line.removeprefix("do: ") for line in said.splitlines()]
    return [line.removeprefix("nodrop ") for line in lines if line.startswith("nodrop ")]


@pytest.mark.parametrize(
    "knobs", [["gro=on", "rx-channels=1"], depth(["rps=1", "mtu=1600", "tso=off"])]
)
def test_each_printed_command_runs_where_it_was_printed(
    namespace: Namespace, knobs: list[str]
) -> None:
    """Seen in a namespace: `do: nodrop tune plan netdev-budget=600`, which it does not have."""
    (again,) = _printed(_nodrop(namespace, "tune plan --port eth1"))
    _nodrop(namespace, again)
    (apply,) = _printed(_nodrop(namespace, f"tune plan --port eth1 {' '.join(knobs)}"))
    assert "`nodrop tune restore` puts it back" in _nodrop(namespace, apply)
    assert namespace.tell() != namespace.first
    _nodrop(namespace, "tune restore")
    assert namespace.tell() == namespace.first


def test_a_refused_value_leaves_all_as_it_was(namespace: Namespace) -> None:
    assert namespace.tell(f"{NEVER} gro=on rps=1 mtu=99999") == namespace.first
    assert tunings(killed=True).whole == []


def test_what_ethtool_changes_since_stays(namespace: Namespace) -> None:
    namespace.tell(f"{NEVER} mtu=9000 gro=on tso=off")
    away = ["nsenter", "-t", str(namespace.there.pid), "-n"]
    subprocess.run([*away, "ethtool", "-K", "eth1", "gro", "off"], check=True)
    subprocess.run([*away, "ip", "link", "set", "eth1", "mtu", "4000"], check=True)
    (found,) = _restored()
    assert found.others == ["eth1 mtu is 4000 since, by somebody else: it stays (1500 before the "
                            "tuning)"]  # fmt: skip
    assert found.failed == []
    now = namespace.tell()
    assert now == namespace.first | {"eth1 mtu": "4000"}
    assert [one.others for one in _restored()] == [found.others]
    (found,) = _restored(overwrite=True)
    assert (found.others, found.failed) == ([], [])
    assert namespace.tell() == namespace.first
    assert tunings(killed=True).whole == []


def _status(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main.exit_code(["tune", "status"])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("knobs", "code"), [("gro=on mtu=9000", 1), ("tx-queue-len=77", 1)])
def test_a_port_that_was_deleted_is_gone_and_was_not_changed_by_somebody(
    namespace: Namespace, knobs: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.tell(f"{NEVER} {knobs}")
    _away(namespace, "ip", "link", "delete", "eth1")
    found, said = _status(capsys)
    assert found == code and len(said) == len(knobs.split())
    assert all(line.endswith(": the port is gone, and its settings with it") for line in said)
    assert [one.done for one in _restored()] == [
        ["eth1: the port is gone, and its settings with it"]
    ]
    assert _status(capsys)[0] == 0 and tunings(killed=True).whole == []


@pytest.mark.parametrize("index_is_taken", [False, True])
def test_a_port_that_moved_to_another_namespace_is_put_back_there(
    namespace: Namespace, index_is_taken: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: `the port is gone, and its settings with it`, of a port that a container has now."""
    index = _away(namespace, "cat", "/sys/class/net/eth1/ifindex").strip()
    namespace.tell(f"{NEVER} mtu=9000 gro=on rps=1")
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as there:
        assert there.stdin and there.stdout and there.stdout.readline()
        inside = ["nsenter", "-t", str(there.pid), "-n"]
        if index_is_taken:
            taken = ["ip", "link", "add", "o1", "index", index, "type", "veth"]
            subprocess.run([*inside, *taken], check=True)
        _away(namespace, "ip", "link", "set", "eth1", "netns", str(there.pid))
        code, said = _status(capsys)
        space = Path(f"/proc/{there.pid}/ns/net").stat().st_ino
        assert code == 0 and f"eth1 (namespace {space}) mtu: 1500 → 9000" in said
        (found,) = _restored()
        assert (found.failed, found.others) == ([], [])
        assert f"eth1: in another network namespace now ({space})" in found.done
        assert "eth1 mtu: 9000 → 1500" in found.done
        shown = subprocess.run([*inside, "ethtool", "-k", "eth1"], capture_output=True, text=True)
        assert "generic-receive-offload: off" in shown.stdout
        there.stdin.close()
    assert tunings(killed=True).whole == []


def test_an_experiment_sets_knobs_of_the_labs_port(link: Link, journal: DiskJournal) -> None:
    host, port, interval = link.rx.host, link.rx.name, STAT_INTERVAL.read_text()
    assert isinstance(host, LocalHost)

    def seen() -> str:
        return host.run(["ip", "-d", "link", "show", port]).stdout

    with tuned(
        {"mtu": 1400, "tso": "off", "stat-interval": 7}, host.netns, [port], journal
    ) as again:
        assert "mtu 1400" in seen()
        assert STAT_INTERVAL.read_text() == "7\n"
        host.run(["ip", "link", "set", port, "mtu", "1500"])  # as a SUT does with offloads
        again()
        assert "mtu 1400" in seen()
    assert STAT_INTERVAL.read_text() == interval
    with (
        pytest.raises(BadInput, match="mtu=99999 is refused: mtu greater than device maximum"),
        tuned({"mtu": 99999}, host.netns, [port], journal),
    ):
        pass


def test_the_link_of_our_own_session_goes_down_only_if_it_is_meant(namespace: Namespace) -> None:
    away = ["nsenter", "-t", str(namespace.there.pid), "-n"]
    subprocess.run([*away, "ip", "address", "add", "10.9.9.9/24", "dev", "eth1"], check=True)
    asked = ["tune", "apply", "--port", "eth1", "rx-channels=1"]
    command = [*away, sys.executable, "-m", "nodrop.cli.main", *asked]
    environment = os.environ | {"SSH_CONNECTION": "10.9.9.1 50000 10.9.9.9 22"}

    def tried(*more: str) -> tuple[int, str]:
        argv = [*command, *more]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = tried()
    assert code == 2 and "your own session runs over it; add --yes to mean it" in said
    assert namespace.tell() == namespace.first
    assert tried("--yes")[0] == 0
    assert namespace.tell() != namespace.first
