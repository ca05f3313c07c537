"""The command: plain lines for a pipe, a table of 80 columns on a terminal, exit codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodrop.audit import reading
from nodrop.audit.audit_answer import AuditAnswer
from nodrop.cli import main
from nodrop.sensor.snapshot import Snapshot
from nodrop.terminal import console as cli_terminal
from nodrop.terminal.console import Plain
from tests.unit.audit.made_changes import listener, rings, statistic
from tests.unit.audit.made_host import MadeHost, texts

Given = pytest.CaptureFixture[str]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> MadeHost:
    made = MadeHost()

    def look(host: object, *, ports: object, files: Sequence[str]) -> Snapshot:
        made.files = {file: texts(None, file) for file in files}
        return Snapshot.of(made.look())

    monkeypatch.setattr(reading, "look", look)
    return made


def test_a_pipe_gets_a_line_per_finding(host: MadeHost, capsys: Given) -> None:
    assert main.exit_code(["audit"]) == 0
    listener()(host)
    statistic("rx_dropped", 340)(host)
    capsys.readouterr()
    assert main.exit_code(["audit"]) == 1
    first, second, note = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith("sensor, eth1: 1 finding in 0.")
    assert second.startswith("1. second-listener: eth1: tcpdump (pid 512) takes each packet")
    assert "(packet_diag (ss -0 -e)). Change: end it (kill 512), or" in second
    assert note.startswith("note. rx-dropped: eth1: rx_dropped 340 is no loss")


def test_a_host_without_a_sensor_gets_the_command_that_goes_on(
    host: MadeHost, capsys: Given
) -> None:
    host.sockets.clear()
    main.exit_code(["audit"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sensor, no port that anybody captures on: 1 finding in 0.")
    assert lines[1].startswith("1. blind-sensor: this host: no program captures packets")
    assert lines[-1].startswith("do: nodrop audit --port ")


def test_a_terminal_gets_a_table_of_80_columns(
    host: MadeHost, capsys: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow() -> Plain:
        return Plain(force_terminal=True, width=80, color_system=None, highlight=False)

    monkeypatch.setattr(cli_terminal, "console", narrow)
    rings(blocks=13)(host)
    assert main.exit_code(["audit"]) == 1
    lines = capsys.readouterr().out.split("Shown, not judged")[0].splitlines()
    assert max(map(len, lines)) <= 80
    begins = [line[:10].strip() for line in lines if line[:3] == "   " and line[:10].strip()]
    assert begins == ["read", "why", "change", "unless"]


def test_json_keeps_its_schema_and_sarif_is_written(
    host: MadeHost, capsys: Given, tmp_path: Path
) -> None:
    listener()(host)
    written = tmp_path / "x.sarif"
    assert main.exit_code(["audit", "--json", "--sarif", str(written)]) == 1
    said = AuditAnswer.model_validate_json(capsys.readouterr().out)
    assert said.exit_code == 1 and [one.id for one in said.findings] == ["second-listener"]
    assert json.loads(written.read_text())["version"] == "2.1.0"
    assert main.exit_code(["audit", "--sarif", str(written)]) == 1  # written anew
    (other := tmp_path / "mine.txt").write_text("mine")
    assert main.exit_code(["audit", "--sarif", str(other)]) == 2
    assert other.read_text() == "mine"


def test_a_port_of_another_namespace_is_named_with_the_command_that_judges_it(
    host: MadeHost, capsys: Given
) -> None:
    host.other_ports.append({**host.port, "name": "eth5", "index": 9, "space": 1, "pid": 812})
    assert main.exit_code(["audit", "--port", "eth5"]) == 2
    said = capsys.readouterr().err
    assert "eth5: no such port here" in said
    assert "nsenter -t 812 -n nodrop audit --port eth5" in said


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--port", "eth7"], "--port: eth7: no such port here; there are: eth1, lo"),
        (["--config", "/nope"], "--config: /nope: No such file or directory"),
        (["--role", "router"], "'--role': 'router' is not one of 'sensor', 'generator'"),
        (["--role", "sensr"], "'--role': 'sensr' is not one of 'sensor', 'generator'"),
    ],
)
def test_bad_input_is_one_line(host: MadeHost, capsys: Given, argv: list[str], words: str) -> None:
    assert main.exit_code(["audit", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and words in said.err
