"""`nodrop lab check` of two machines over real ssh: all that stands in the way, at once."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.testbed.labs.cable import FRAMES
from tests.depth import depth
from tests.ssh.machines import MTU, Machine, Machines, await_switch

LAB = """\
name = "pair"
kind = "ssh"
ssh_config = "{config}"
[sender]
host = "{sender}"
port = "cab0"
[receiver]
host = "sensor1"
port = "{port}"
become = "sudo"
"""


BURST = (
    r"cable: a burst of [\d.]+ MB at ([\d,]+) of 10,000 Mbit/s from cab0 of sender gen1 to cab0 of "
    r"receiver sensor1 came whole"
)


def the_switch() -> Machine:
    """A namespace with the switch, entered by this thread."""
    return Machine("switch", threading.get_native_id())


@pytest.fixture
def lab(machines: Machines, tmp_path: Path) -> Path:
    return written(machines, tmp_path)


def written(machines: Machines, folder: Path, *, sender: str = "gen1", port: str = "cab0") -> Path:
    path = folder / "pair.toml"
    path.write_text(LAB.format(config=machines.config, sender=sender, port=port))
    return path


def said(capsys: pytest.CaptureFixture[str], lab: Path) -> tuple[int, list[str]]:
    code = exit_code(["lab", "check", str(lab)])
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, shown.out.splitlines()


@contextmanager
def changed(machine: Machine, do: str, undo: str) -> Iterator[None]:
    machine.run(*do.split())
    try:
        yield
    finally:
        machine.run(*undo.split())


def test_two_good_hosts(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, lab)
    assert (code, lines[-1]) == (0, "Ready."), lines
    of_cable = [line for line in lines if line.startswith("cable: ")]
    assert of_cable[:3] == [
        f"cable: {FRAMES} marked frames of 60 to {MTU + 14} bytes went from cab0 of {tx} to "
        f"cab0 of {rx}"
        for tx, rx in (("sender gen1", "receiver sensor1"), ("receiver sensor1", "sender gen1"))
    ] + [
        "cable: none came to another port that is up (mgmt of sender gen1; mgmt of receiver "
        "sensor1)"
    ]
    there, back = of_cable[3:]
    assert re.fullmatch(BURST, there), there
    assert "from cab0 of receiver sensor1 to cab0 of sender gen1" in back
    for host in ("sender gen1", "receiver sensor1"):
        system, port = (line for line in lines if line.startswith(f"{host}: "))
        assert "Linux " in system
        assert "its clock is " in system
        assert port == f"{host}: cab0: up, MTU {MTU}, 10000 Mbit/s"


def test_all_that_stands_in_the_way_of_both_is_said_at_once(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tx, rx = machines.sender, machines.receiver
    switch = the_switch()
    with (
        changed(switch, "ip link set sw0 down", "ip link set sw0 up"),
        changed(tx, "ip link set cab0 mtu 1500", f"ip link set cab0 mtu {MTU}"),
        changed(tx, "ip address add 192.0.2.1/24 dev cab0", "ip address flush dev cab0"),
        changed(rx, "ethtool -K cab0 gro on", "ethtool -K cab0 gro off"),
        changed(rx, "ip link set cab0 down", "ip link set cab0 up"),
    ):
        code, lines = said(capsys, lab)
    await_switch()
    assert code == 3
    found = [line for line in lines if line.startswith("- ")]
    for start in (
        "- sender gen1: cab0 has no carrier",
        "- sender gen1: cab0 has an address (192.0.2.1/24)",
        "- receiver sensor1: cab0 is down; `ip link set cab0 up`",
        "- receiver sensor1: offloads of cab0 hand over other frames than those on the cable; "
        "`ethtool -K cab0 gro off`",
        f"- receiver sensor1: cab0 has MTU {MTU}, and cab0 of sender gen1 has 1500",
    ):
        assert [line for line in found if line.startswith(start)], (start, lines)
    assert len(found) == 5
    assert lines[-1] == "5 problems to fix."


def test_one_host_is_told_of_though_the_other_is_not_reached(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = said(capsys, written(machines, tmp_path, sender="refused", port="cab7"))
    assert code == 3
    assert lines[-3].startswith("- sender refused: not reached: no ssh server listens there")
    assert lines[-2] == "- receiver sensor1: there is no port cab7 (there are: cab0, mgmt)"


def test_the_port_that_ssh_goes_by_is_no_port_to_measure_on(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = said(capsys, written(machines, tmp_path, port="mgmt"))
    assert code == 3
    assert any("ssh itself goes by mgmt (10.77.1.2)" in line for line in lines), lines


@pytest.mark.parametrize("at", ["receiver", depth("sender")])
def test_a_port_that_others_go_by(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    machine: Machine = getattr(machines, at)
    add = "ip link add link cab0 name other type macvlan"
    with changed(machine, add, "ip link delete other"):
        code, lines = said(capsys, lab)
    assert code == 3
    (line,) = (line for line in lines if line.startswith("- "))
    name = "sender gen1" if at == "sender" else "receiver sensor1"
    assert line.startswith(f"- {name}: cab0 carries other, too (a VLAN, a macvlan), so others send")
    assert "burst" not in "".join(lines), "they would hear it"


SENDERS_WAY_OUT = 'chain netdev bent way { type filter hook egress device "cab0" priority 0; }'
MIRROR = 'chain netdev bent way { type filter hook ingress device "sw1" priority 0; }'
SWITCH = "chain bridge bent way { type filter hook forward priority 0; }"


@contextmanager
def ruled(machine: Machine, chain: str, rule: str) -> Iterator[None]:
    family = chain.split()[1]
    with changed(machine, f"nft add table {family} bent", f"nft delete table {family} bent"):
        machine.run("nft", f"add {chain}")
        machine.run("nft", f"add rule {family} bent way {rule}")
        yield


def of_the_cable(code: int, lines: list[str]) -> str:
    """The one thing to mend, of the way there; the way back is as it should be."""
    assert code == 3, lines
    back, none = (line for line in lines if line.startswith("cable: "))
    assert none.startswith("cable: none came to another port that is up (")
    assert "from cab0 of receiver sensor1 to cab0 of sender gen1" in back
    assert "burst" not in "".join(lines), "a cable that is none is not burdened"
    (line,) = (line for line in lines if line.startswith("- "))
    return line.removeprefix("- cable: ")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("drop", f"none of {FRAMES} marked frames came from cab0 of sender gen1 to cab0 of "),
        ("meta length > 1500 drop", "from cab0 of sender gen1 to cab0 of receiver sensor1 short "),
    ],
)
def test_a_switch_that_does_not_pass_frames_on(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str], rule: str, words: str
) -> None:
    with ruled(the_switch(), SWITCH, f'iifname "sw0" {rule}'):
        found = of_the_cable(*said(capsys, lab))
    assert found.startswith(words)
    assert ("something between has a smaller MTU" in found) == ("1500" in rule)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("drop", f"cab0 of sender gen1 sent 0 of {FRAMES} marked frames"),
        ("dup to cab0", f"and {FRAMES} were sent: others send on this cable, too"),
    ],
)
def test_a_sender_that_sends_less_or_more(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str], rule: str, words: str
) -> None:
    with ruled(machines.sender, SENDERS_WAY_OUT, rule):
        assert of_the_cable(*said(capsys, lab)).endswith(words)


@contextmanager
def third_port(machine: Machine) -> Iterator[None]:
    """`cab1` of that machine, at the same switch."""
    switch = the_switch()
    peer = f"type veth peer name cab1 netns {machine.pid}"
    with changed(switch, f"ip link add sw2 mtu {MTU} {peer}", "ip link delete sw2"):
        switch.run("ip", "link", "set", "sw2", "master", "switch", "up")
        machine.run("ip", "link", "set", "cab1", "mtu", str(MTU), "up")
        await_switch(3)
        yield


def elsewhere(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("- cable: of the marked frames ")]


def forgetting(switch: Machine, port: str) -> AbstractContextManager[None]:
    """Makes the switch flood what goes to whoever is at that port."""
    switch.run("bridge", "fdb", "flush", "dev", "switch")
    learning = f"bridge link set dev {port} learning"
    return changed(switch, f"{learning} off", f"{learning} on")


@pytest.mark.parametrize("at", ["sender", depth("receiver")])
def test_a_switch_that_floods_both_ways(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    machine: Machine = getattr(machines, at)
    switch = the_switch()
    with third_port(machine), forgetting(switch, "sw0"), forgetting(switch, "sw1"):
        code, lines = said(capsys, lab)
    assert code == 3
    place = f"{at} {machine.name}"
    assert [line.partition(": a switch floods")[0] for line in elsewhere(lines)] == [
        f"- cable: of the marked frames from cab0 of {tx}, {FRAMES} to cab1 of {place} came, too"
        for tx in ("sender gen1", "receiver sensor1")
    ], lines
    assert lines[-1] == "2 problems to fix."
    assert "burst" not in "".join(lines), "not at the full rate where others hear it"
    assert "PROMISC" not in machine.run("ip", "link", "show", "mgmt")


def test_a_mirror_port_of_one_way(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    switch = the_switch()
    known = f"{machines.receiver.run('cat', '/sys/class/net/cab0/address').strip()} dev sw1 master"
    with (
        third_port(machines.receiver),
        changed(switch, f"bridge fdb replace {known} static", f"bridge fdb del {known}"),
        ruled(switch, MIRROR, 'ether type 0x88b5 dup to "sw2"'),
    ):
        code, lines = said(capsys, lab)
    assert code == 3
    found = elsewhere(lines)
    assert len(found) == 1, lines
    assert f"from cab0 of receiver sensor1, {FRAMES} to cab1 of receiver sensor1 came" in found[0]


def test_a_slower_switch_between_two_fast_ports(
    machines: Machines, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = 'iifname "sw0" limit rate over 10 mbytes/second burst 1 mbytes drop'
    with ruled(the_switch(), SWITCH, rule):
        code, lines = said(capsys, lab)
    assert code == 3
    (line,) = (line for line in lines if line.startswith("- "))
    came = re.search(r"from cab0 of sender gen1 to .* came with ([\d,]+) of ([\d,]+) frames", line)
    assert came is not None, line
    arrived, sent = (int(number.replace(",", "")) for number in came.groups())
    assert 0 < arrived < sent / 2
    assert "both ports say 10000 Mbit/s" in line
    (back,) = (line for line in lines if line.startswith("cable: a burst"))
    assert "from cab0 of receiver sensor1" in back
    assert back.endswith("came whole")


@contextmanager
def saying(machine: Machine, folder: Path, word: str, said: str) -> Iterator[None]:
    """Its port says so of itself."""
    file = folder / word
    file.write_text(f"{said}\n")
    place = f"/sys/class/net/cab0/{word}"
    machine.run("mount", "--bind", str(file), place)
    try:
        yield
    finally:
        # umount(8) wants a /proc that knows it.
        umount = f"ctypes.CDLL(None).umount2({place.encode()!r}, 0)"
        machine.run("python3", "-c", f"import ctypes; assert {umount} == 0")


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        (
            "speed",
            "2500",
            "cab0 of sender gen1 has 10000 Mbit/s, and cab0 of receiver",
        ),
        ("duplex", "half", "cab0 of receiver sensor1 is half duplex"),
    ],
)
def test_ends_that_have_agreed_on_other_rates(
    machines: Machines,
    lab: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    word: str,
    value: str,
    words: str,
) -> None:
    with saying(machines.receiver, tmp_path, word, value):
        code, lines = said(capsys, lab)
    assert code == 3
    assert lines[-2].startswith(f"- cable: {words}")
    assert lines[-1] == "1 problem to fix."
    assert "burst" not in "".join(lines)


def test_a_port_that_does_not_say_its_rate(
    machines: Machines, lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with saying(machines.receiver, tmp_path, "speed", "-1"):
        code, lines = said(capsys, lab)
    assert (code, lines[-1]) == (0, "Ready.")
    assert "its rate is not known" in lines[-2]


def test_for_machines(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["lab", "check", str(lab), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["problems"] == []
    *hosts, cable = answer["hosts"]
    assert [host["role"] for host in hosts] == ["sender", "receiver"]
    for way in (cable["there"], cable["back"]):
        burst = way.pop("burst")
        assert way.pop("sent_packets") == way.pop("arrived_packets") == FRAMES
        assert way == {"whole": True, "elsewhere": []}
        assert burst["arrived_packets"] == burst["sent_packets"] > 0
        assert burst["lost_by_ports"] == {}
    for host in hosts:
        assert host["reached"]
        assert abs(host["mono_offset_ns"]) <= host["clock_bound_ns"], "one kernel, one clock"
        assert (host["mtu"], host["addresses"]) == (MTU, [])
