"""Settings that a port would lose when it moves are put back, or the port is refused."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.config.lab_file import load_lab
from nodrop.errors import LabProblem, NotReady
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.labs.nic import put_back, settings_of
from nodrop.testbed.labs.ssh import SshLab
from tests.ssh.pairs import UNUSUAL, Pair, runs_on

EACH = {"pfifo": "root", "ingress": "ingress", "clsact": "clsact"}


@pytest.mark.parametrize("kind", EACH)
def test_a_port_with_disciplines_and_filters_is_refused(
    here: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = f"queueing discipline of its own \\({kind}\\).*`tc qdisc del dev cab0 {EACH[kind]}`"
    at = ["root", kind] if EACH[kind] == "root" else [kind]
    here.receiver.run("tc", "qdisc", "add", "dev", "cab0", *at)
    try:
        with runs_on(here, tmp_path) as run, pytest.raises(NotReady, match=words):
            run()
        lab = plugins.build_lab(load_lab(here.lab(tmp_path)))
        assert isinstance(lab, SshLab)
        assert sum("queueing discipline" in problem for problem in lab.problems()) == 1
    finally:
        here.receiver.run("tc", "qdisc", "del", "dev", "cab0", EACH[kind])


def test_settings_are_what_is_otherwise_than_of_a_new_port(here: Pair) -> None:
    found = dict(word.split("=") for word in settings_of("cab0").split())
    assert found["promisc"] == "on"
    assert (found["ipv4/conf/rp_filter"], found["ipv4/conf/arp_ignore"]) == ("2", "1")
    assert found["ipv4/neigh/mcast_solicit"] == "7"
    assert "ipv4/conf/forwarding" not in found
    before = here.shown()
    here.receiver.run("sh", "-euc", "ip link set cab0 promisc off; "
                      "echo 0 >/proc/sys/net/ipv4/conf/cab0/rp_filter")  # fmt: skip
    try:
        put_back("cab0", " ".join(f"{name}={value}" for name, value in found.items()))
        assert here.shown() == before
    finally:
        here.receiver.run("sh", "-euc", UNUSUAL)


def test_what_a_kernel_does_not_take_is_named(here: Pair) -> None:
    with pytest.raises(LabProblem, match="cab0: ipv4/conf/rp_filter does not take many: Invalid"):
        put_back("cab0", "promisc=on ipv4/conf/rp_filter=many")


@pytest.mark.parametrize(
    ("settings", "fails"),
    [
        ("", False),
        ("1", False),
        ("promisc=on ipv6/conf/mtu=1500", False),
        ("promisc=on; reboot", True),
        ("ipv4/../../../x=1", True),
        ("kernel/conf/x=1", True),
    ],
)
def test_a_journal_names_settings_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, fails: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    no_settings = pytest.raises(LabProblem, match="is not settings of a port")
    with no_settings if fails else nullcontext(), DiskJournal.create() as journal:
        netns = f"nodrop-{journal.label}-rcv"  # it is not there: nothing is to be done
        home = [netns, "x", "1", settings]
        journal.push(what="port x at home", action=UndoAction.RETURN_PORT, arguments=home)
