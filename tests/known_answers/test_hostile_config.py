"""Experiment, lab, --set and suricata.yaml that nobody would write: one line, exit code 2."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.cli import main
from nodrop.config.options import parse_setting, put
from nodrop.config.units import parse_bytes
from nodrop.errors import BadInput
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.suts.suricata.sut import Suricata

GOOD = """
name = "x"
[sut]
kind = "suricata"
[load]
kind = "replay"
trace = "make:tiny"
"""


def refused(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one line that refuses these arguments."""
    code = main.exit_code([str(word) for word in argv])
    said = capsys.readouterr().err
    assert (code, len(said.splitlines())) == (2, 1), said
    return said


@pytest.mark.parametrize(
    ("key", "digits"),
    [
        *((key, "9" * 400) for key in ("seed", "measure.seed", "limits.memory", "load.multiplier")),
        *(("measure.seed", long) for long in ("9" * 5000, "0x" + "f" * 5000, "-" + "9" * 30)),
    ],
)
def test_a_number_of_many_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, digits: str
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f"{key} = {digits}\n{GOOD}")
    assert len(refused(capsys, "plan", file)) < 600
    file.write_text(GOOD)
    assert len(refused(capsys, "plan", file, "--set", f"{key}={digits}")) < 600


@pytest.mark.parametrize("text", ["1" + "0" * 400 + "GB", "9" * 5000, "1e400", "99999TiB" * 9])
def test_a_size_that_no_memory_has(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("form", "depth"),
    [("list", 40), *((form, 30_000) for form in ("list", "table", "dotted", "header"))],
)
def test_a_deep_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, depth: int
) -> None:
    text = {
        "list": "q = " + "[" * depth + "]" * depth,
        "table": "q = " + "{a = " * depth + "1" + "}" * depth,
        "dotted": "matrix" + ".a" * depth + " = [1]",
        "header": "[matrix" + ".a" * depth + "]\nb = [1]",
    }[form]
    file = tmp_path / "x.toml"
    file.write_text(f"{text}\n{GOOD}" if form != "header" else f"{GOOD}\n{text}\n")
    refused(capsys, "plan", file)


@pytest.mark.parametrize(("depth", "end"), [(70, "=1"), (5000, "=1"), (5000, "=[1]"), (5000, "=")])
def test_a_deep_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], depth: int, end: str
) -> None:
    (tmp_path / "x.toml").write_text(GOOD)
    for table in ("matrix", "sut", "load", "a"):
        refused(capsys, "plan", tmp_path / "x.toml", "--set", table + ".a" * depth + end)
    deep = "sut.overrides=" + "[" * depth + "]" * depth
    refused(capsys, "plan", tmp_path / "x.toml", "--set", deep)


@pytest.mark.parametrize("make", ["fifo", "zero", "folder", "large"])
def test_an_experiment_that_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: str
) -> None:
    file = tmp_path / "x.toml"
    match make:
        case "fifo":
            os.mkfifo(file)
        case "zero":
            file.symlink_to("/dev/zero")
        case "folder":
            file.mkdir()
        case "large":
            file.write_bytes(b"#" * (2 << 20))
    refused(capsys, "plan", file)


OVERRIDES: list[dict[str, Any]] = [
    {"af-packet": 1},
    {"af-packet": [1]},
    {"af-packet": {}},
    {"af-packet.0": 7},
    {"af-packet.0.block-timeout": "9" * 5000},
    {"af-packet." + "9" * 5000: 1},
    {"af-packet.-1.x": 1},
    {"outputs.²": 1},
    {"outputs": 1},
    {"": 1},
    {"a..b": 1},
    {"a" + ".a" * 5000: 1},
    {"vars.x": [[[[1]]]]},
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_overrides_that_make_no_configuration(tmp_path: Path, overrides: dict[str, Any]) -> None:
    try:
        Suricata({"overrides": overrides}, base=tmp_path)
    except BadInput as error:
        assert "sut.overrides" in str(error) and len(str(error)) < 600


YAML = {
    "itself-twice": "include: [x.yaml, x.yaml]\n",
    "a-number": "include: 7\n",
    "a-list-of-lists": "include: [[x]]\n",
    "zero": "include: /dev/zero\n",
    "fifo": "include: fifo\n",
    "folder": "include: .\n",
    "tag-itself": "a: !include x.yaml\n",
    "tag-zero": "a: !include /dev/zero\n",
    "deep": "a: " + "[" * 5000 + "]" * 5000 + "\n",
    "deep-block": "".join(" " * n + "a:\n" for n in range(1500)),
    "aliases": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "alias-to-itself": "a: &a [*a]\n",
    "merge": "a: &a {<<: *a}\n",
    "unhashable": "? [a]\n: b\n",
    "python": "a: !!python/object/apply:os.system [id]\n",
    "null": "",
    "list": "- a\n",
    "binary": "\x00\x01",
    "af-packet-list": "af-packet: [7]\n",
    "outputs": "outputs: {a: b}\n",
}


@pytest.mark.parametrize("name", YAML)
def test_a_suricata_yaml_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.yaml").write_text(f"%YAML 1.1\n---\n{YAML[name]}")
    os.mkfifo(tmp_path / "fifo")
    try:
        Suricata({"config": "x.yaml"}, base=tmp_path)
    except BadInput as error:
        assert "sut.config" in str(error) and len(str(error)) < 600


def test_a_configuration_that_is_no_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "x.yaml"))
    for name in ("x.yaml", "/dev/zero", "."):
        with pytest.raises(BadInput):
            Suricata({"config": name}, base=tmp_path)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *(("rules", no) for no in ("~nosuchuser/x", "x" * 5000, "a\0b", "/dev/zero", "\x1b[2J")),
        ("config", "/dev/stdin"),
        ("classification", "/dev/stdin"),
    ],
)
def test_a_path_that_leads_to_no_file(tmp_path: Path, key: str, name: str) -> None:
    with pytest.raises(BadInput, match=f"sut.{key}") as caught:
        Suricata({key: [name] if key == "rules" else name}, base=tmp_path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["a:b.rules", "12:30:00.rules", ":", "ü*?.rules", "-x.rules"])
def test_rules_of_any_name_have_a_plain_one_inside(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    options = {"rules": [name], "classification": name}
    files = Suricata(options, base=tmp_path).files()
    assert len(files) == 2 and all(":" not in inside and "/" not in inside for inside in files)


def capture(path: Path, *times_s: int) -> Path:
    frame = bytes(60)
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = [struct.pack("<IIII", at, 0, len(frame), len(frame)) + frame for at in times_s]
    path.write_bytes(head + b"".join(records))
    return path


YEAR_2106 = 2**32 - 1


@pytest.mark.parametrize(
    ("times_s", "load", "said"),
    [
        ([5, 7205], "", ("2 h 0 min", "packet 1")),
        ([0, *range(3000, 90_000, 3000), 90_001], "", ("25 h 50 min",)),
        ([1, 2], "pps = 0.00001", ("55 h 33 min",)),
        ([1, 2, YEAR_2106], "speed = 1000", ("packet 2",)),
        (
            [5, 99_000, 6, 7],
            "",
            ("x.pcap: ", "36 h 39 min", "27 h 29 min", "packet 4", "load.longest_gap_s=1"),
        ),
        ([1, 2, YEAR_2106], "pps = 10", ()),
        ([1, 2, 3], "", ()),
    ],
)
def test_a_trial_of_years_is_named_and_asked_about(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    times_s: list[int],
    load: str,
    said: tuple[str, ...],
) -> None:
    trace = capture(tmp_path / "x.pcap", *times_s)
    file = tmp_path / "x.toml"
    table = f'[load]\nkind = "replay"\ntrace = "{trace}"\n{load}\n'
    file.write_text('name = "x"\n[sut]\nkind = "sink"\n' + table)
    assert main.exit_code(["plan", str(file)]) in (0, 3)  # 3: this host lacks something
    out = " ".join(capsys.readouterr().out.split())
    assert all(one in out for one in said) if said else ("implausible" not in out)
    if said:
        line = refused(capsys, "run", file, "--out", tmp_path / "out")
        assert all(one in line for one in said)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("gap_s", "hours"), [(3600, 1), (YEAR_2106 - 9, 1_193_046)])
def test_trace_info_names_the_gap(tmp_path: Path, gap_s: int, hours: int) -> None:
    trace = capture(tmp_path / "x.pcap", 1, 2, 3, 3 + gap_s, 4 + gap_s)
    said = subprocess.run(
        [find_node_binary(), "trace", "info", trace], capture_output=True, text=True, check=True
    ).stdout
    assert f"{hours} h " in said and "packet 3" in said


@given(st.text(max_size=40))
def test_any_setting_is_read_or_refused(text: str) -> None:
    try:
        setting = parse_setting(text)
        put({}, setting.path, setting.value)
    except BadInput:
        pass
