"""Two machines with two cables between them: a SUT of two ports has one at each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput, NotReady
from nodrop.results.rundir import open_run
from nodrop.testbed.hosts.api import rise
from nodrop.testbed.labs.api import Checked
from tests.depth import depth
from tests.e2e.conftest import SURICATA, closes, only, real_trace, suricata
from tests.ssh.machines import lay_direct_cable
from tests.ssh.pairs import Pair, Run, receiver_here, receiver_there, runs_on

__all__: Sequence[str] = ("real_trace", "suricata")

BOTH = ["cab0", "cab1"]
HERE, ELSEWHERE = "receiver here", "receiver elsewhere"
FROM_HERE = pytest.mark.parametrize("on", [HERE, depth(ELSEWHERE)], indirect=True)
FROM_ELSEWHERE = pytest.mark.parametrize("on", [ELSEWHERE, depth(HERE)], indirect=True)


@pytest.fixture(scope="module", params=[HERE, ELSEWHERE])
def on(
    request: pytest.FixtureRequest, programs: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    made = receiver_there if request.param == ELSEWHERE else receiver_here
    with ExitStack() as standing:
        pair = standing.enter_context(made(tmp_path_factory.mktemp("cables")))
        lay_direct_cable(pair.sender, pair.receiver, "cab1")
        yield pair


@pytest.fixture
def run(on: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with runs_on(on.with_ports(BOTH, BOTH), tmp_path) as go:
        yield go


@FROM_ELSEWHERE
def test_suricata_gets_flows_by_two_cables_and_the_books_close(
    run: Run, suricata: None, real_trace: Path
) -> None:
    outcome = run("sut.ports=2", "sut.threads=1", "sut.ring_size=110000", text=SURICATA,
                  trace=str(real_trace))  # fmt: skip
    record = only(outcome)
    assert record.valid and closes(record), record.verdict
    assert record.threads_unexplained_packets == 0
    each = {port.port: port for port in record.packets.ports}
    assert set(each) == {"cab0", "cab1"}
    assert sum(port.received_packets for port in each.values()) == record.offered.sent
    assert min(port.received_packets for port in each.values()) > 10_000
    readings = open_run(outcome.directory).detail(record.run, "readings")
    assert isinstance(readings, dict)
    for port, found in each.items():
        sent = rise(readings["before"]["tx"], readings["after"]["tx"], port, "tx_packets")
        assert found.received_packets == sent, f"what {port} sent came in at the same cable's end"
        assert found.captured_packets is not None
        assert found.captured_packets <= found.received_packets


@FROM_HERE
def test_a_loss_is_of_all_cables_together(run: Run, suricata: None, real_trace: Path) -> None:
    record = only(run("sut.ports=2", "sut.threads=1", "sut.ring_size=64", "load.speed=",
                      "load.pps=100000", text=SURICATA, trace=str(real_trace)))  # fmt: skip
    assert closes(record), record.verdict
    dropped = [port.dropped_packets or 0 for port in record.packets.ports]
    before = record.packets.lost_before_sut_packets or 0
    assert sum(dropped) > 0
    assert sum(dropped) == (record.packets.lost_packets or 0) - before


@FROM_ELSEWHERE
def test_a_sut_of_one_port_has_the_first_cable(run: Run) -> None:
    record = only(run("measure.repetitions=1"))
    assert record.valid and closes(record), record.verdict
    assert not record.packets.ports
    assert record.packets.decoded_packets == record.offered.sent


@FROM_HERE
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["sut.ports=3"], "sut.ports = 3: lab pair has a cable to each of 2 ports; set sut.ports"),
        (["sut.ports=2", "setup.splitter=copy"], 'setup.splitter = "copy": lab pair has a cable'),
        (["sut.ports=2", "load.kind=tcpreplay"], 'load.kind = "tcpreplay": lab pair has a cable'),
    ],
)
def test_what_cables_cannot_do_is_said_beforehand(
    run: Run, suricata: None, real_trace: Path, settings: list[str], words: str
) -> None:
    with pytest.raises((BadInput, NotReady), match=words):
        run(*settings, text=SURICATA, trace=str(real_trace))


@FROM_ELSEWHERE
def test_a_check_looks_at_all_ports_and_cables(on: Pair, tmp_path: Path) -> None:
    on = on.with_ports(BOTH, BOTH)
    looked = checked(on, tmp_path)
    assert not any(one.problems for one in looked)
    crossed = [words for one in looked if one.what == "cable" for words in one.seen]
    for port in ("cab0", "cab1"):
        assert (
            sum(f"frames of 60 to 9014 bytes went from {port} of" in words for words in crossed)
            == 2
        )
    on.receiver.run("ip", "link", "set", "cab1", "mtu", "1500")
    try:
        found = [words for one in checked(on, tmp_path) for words in one.problems]
    finally:
        on.receiver.run("ip", "link", "set", "cab1", "mtu", "9000")
    assert any("cab1 has MTU 1500, and cab1 of sender gen1 has 9000" in words for words in found)


@FROM_HERE
def test_cables_that_are_crossed_are_found(on: Pair, tmp_path: Path) -> None:
    looked = checked(on.with_ports(BOTH, BOTH[::-1]), tmp_path)
    found = [words for one in looked for words in one.problems]
    assert len(found) == 4, found
    assert all("none of 32 marked frames came" in words for words in found)
    (there,) = (words for words in found if "from cab0 of sender gen1 to" in words)
    assert "; the cable leads to cab0 of receiver" in there


@pytest.mark.parametrize(
    ("sender", "receiver", "words"),
    [
        ('ports = ["cab0", "cab1"]', 'port = "cab0"', "receiver.ports: 1 for 2 of the sender"),
        ('ports = ["cab0", "cab0"]', 'ports = ["cab0", "cab1"]', "must be different ports"),
        ('ports = ["a", "b"]\nport = "c"', 'ports = ["a", "b"]', "name the port at the cable, or"),
        ("", 'port = "cab0"', "name the port at the cable, or"),
        ("ports = []", 'port = "cab0"', "name the port at the cable, or"),
        (
            'ports = ["a", "b", "c", "d", "e"]',
            'ports = ["a", "b", "c", "d", "e"]',
            "must be different ports, 4 at most",
        ),
    ],
)
def test_a_lab_file_that_makes_no_sense(
    tmp_path: Path, sender: str, receiver: str, words: str
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(
        f'name = "x"\nkind = "ssh"\n[sender]\nhost = "gen1"\n{sender}\n[receiver]\n{receiver}\n'
    )
    with pytest.raises(BadInput, match=words):
        plugins.build_lab(load_lab(str(file)))


def checked(on: Pair, folder: Path) -> Sequence[Checked]:
    lab = plugins.build_lab(load_lab(on.lab(folder)))
    return lab.check()
