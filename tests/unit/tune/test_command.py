"""The commands: bad input is one line and touches nothing; trials know their knobs."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from nodrop import plugins
from nodrop.cli import main
from nodrop.cli.tune import _say_applied
from nodrop.compare.prove import _cell_names, _setting
from nodrop.config.experiment import Experiment, load_experiment
from nodrop.errors import BadInput, Interrupted, LabProblem
from nodrop.exit_codes import NO_ANSWER
from nodrop.measure.controllers.blocks import cell_slug
from nodrop.measure.plan import make_plan
from nodrop.report.story import read_story
from nodrop.report.write import page
from nodrop.tune.applying import apply, asked, parse, plan
from nodrop.tune.knobs import KNOBS, find
from tests.unit.tune.simulated_port import PORT, SimulatedPort

TRACE = "make:demo"
RINGS = Path(__file__).parents[2] / "fixtures/runs/rings-v1"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["apply", "bogus=1"], "bogus: "),
        (["plan", "--port", "nosuch0", "gro=off"], "--port nosuch0: "),
        (["apply"], "tune apply: give KNOB=VALUE"),
        (["apply", "grro=off"], "grro: "),
        (["apply", "ringsize=2"], " ringsize: "),
        (["apply", "ring-size=2"], "nodrop tune plan --config FILE ring-size=2`"),
        (["plan", "mpm=ac"], "nodrop tune prove mpm=ac TRACE`"),
        (["prove", "ringsize=2", TRACE], "tune.ringsize: "),
        (["apply", "mtu"], "mtu: give mtu=VALUE; a number"),
        (["prove", TRACE], "tune prove: give KNOB=VALUE"),
        (["prove", "rps=1"], "tune prove: "),
        (["prove", "rps=1", TRACE, "other.pcap"], "other.pcap: "),
        (["prove", "rpss=1", TRACE], "tune.rpss: "),
        (["prove", "rps=1", "--experiment", "x.toml", "--load", "2"], "--load: x.toml says it"),
        (["prove", "rps=1", "rps=1", TRACE], "rps=1: is given twice"),
        (["prove", "rps=1", TRACE, "--most", "3"], "--most 3: must be from 12 to 10,000"),
        (["prove", "sut.beauty=1", TRACE], "sut.beauty: no such key"),
        (["prove", "rps=1", TRACE, "--metric", "beauty"], "--metric"),
        (["prove", "rps=1", TRACE, "--budget", "soon"], "--budget soon"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = ["--out", str(tmp_path)] if args[0] == "prove" else []
    assert main.exit_code(["tune", *args, *more]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("s.yaml", b"", "must be a table"),
        ("s.yaml", b"\xff\xfe%\0", "UTF-16"),
        ("my.rules", b"#" * (5 << 20), "my.rules: "),
    ],
)
def test_a_file_that_is_no_yaml_is_named_by_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert main.exit_code(["tune", "plan", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nodrop: --config: ") and words in said


@pytest.mark.parametrize("command", [["tune", "plan"], ["audit"]])
def test_a_link_to_itself_is_no_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (loop := tmp_path / "s.yaml").symlink_to("s.yaml")
    assert main.exit_code([*command, "--config", str(loop)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"nodrop: --config: {loop}: ") and "leads to itself" in said


def test_a_knob_of_the_host_is_none_of_a_yaml(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (file := tmp_path / "s.yaml").write_text("%YAML 1.1\n---\naf-packet:\n  - interface: eth1\n")
    assert main.exit_code(["tune", "plan", "--config", str(file), "gro=off"]) == 2
    assert " gro: " in (said := capsys.readouterr().err) and "--config" in said


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("rps=1", "tune.rps", "1"),
        ("netdev-budget=600", "tune.netdev-budget", "600"),
        ("ring-size=20000", "sut.ring_size", 20000),
        ("block-timeout=100", "sut.overrides.af-packet.0.block-timeout", 100),
        ("mpm=ac", "sut.overrides.mpm-algo", "ac"),
        ("limits.cpus=0", "limits.cpus", 0),
    ],
)
def test_a_knob_is_a_key_of_the_experiment(word: str, key: str, value: object) -> None:
    assert _setting(word) == (word, key, value)


def test_a_knob_in_a_matrix_is_in_the_cells(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "make:demo"\n'
        '[tune]\nmtu = 9000\n[matrix]\n"tune.rps" = ["none", "1"]\n'
    )
    cells = make_plan(load_experiment(file)).cells
    assert [dict(cell.tune) for cell in cells] == [
        {"mtu": 9000, "rps": "none"},
        {"mtu": 9000, "rps": "1"},
    ]
    with pytest.raises(BadInput, match=r"tune\.rsp: .*rps\?"):
        make_plan(load_experiment(file, ["tune.rsp=1"]))


@pytest.mark.parametrize(
    ("at", "said"),
    [("proc/sys/vm/stat_interval", ""), ("proc/sys/fs/file-max", "nodrop could not put proc/sys")],
)
def test_a_package_adds_knobs_of_files_that_nodrop_puts_back(
    at: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("somebodys_knobs")
    theirs = replace(find("stat-interval", KNOBS), id="their-interval", at=at)
    module.KNOBS = (theirs,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = metadata.EntryPoint(name="theirs", value="somebodys_knobs:KNOBS", group="nodrop.knobs")
    package = SimpleNamespace(name="somebodys-knobs", version="1.0", entry_points=[entry])
    monkeypatch.setattr(metadata, "distributions", lambda: [package])
    plugins.plugins.cache_clear()
    try:
        code = main.exit_code(["tune", "plan", "their-interval=9"])
    finally:
        plugins.plugins.cache_clear()
    shown = capsys.readouterr()
    assert code == (2 if said else 0)
    assert said in shown.err if said else "host their-interval: " in shown.out


@pytest.mark.parametrize("value", ["on", "off"])
def test_what_is_known_of_a_knob_is_no_reason_for_either_value(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(["tune", "plan", "--port", "lo", f"gro={value}"]) == 0
    shown = capsys.readouterr().out
    assert "about it: on makes one packet of several" in shown and "why:" not in shown
    assert shown.splitlines()[-1] == f"do: nodrop tune apply --port lo gro={value}"


def test_a_list_of_knobs_ends_with_the_command_that_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.exit_code(["tune", "plan", "--port", "lo"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("do: nodrop tune plan ")


def test_a_value_of_a_table_is_a_text_or_a_number() -> None:
    with pytest.raises(BadInput, match=r"tune\.gro: must be a text or a number"):
        asked({"gro": True})


@pytest.mark.parametrize(
    "ended", [LabProblem("the disk is full", hint="make room"), Interrupted(2)]
)
def test_a_proof_that_was_ended_is_not_gone_on_with(
    ended: LabProblem | Interrupted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seen: "go on with --resume", an option that `tune prove` does not have."""

    def measure(*_: object, **__: object) -> None:
        ended.ended_run = "results/prove-x"
        raise ended

    monkeypatch.setattr("nodrop.remote.dispatch.measuring", lambda _: measure)
    argv = ["tune", "prove", "sut.service_rate_pps=9000", "make:demo", "--sut", "sink"]
    assert main.exit_code([*argv, "--out", str(tmp_path)]) == ended.exit_code
    said = capsys.readouterr().err.splitlines()[-1]
    assert "start it anew (its trials so far: nodrop report results/prove-x)" in said
    assert "--resume" not in said


def test_a_cell_of_a_proof_is_called_by_its_knob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: reports of "k0" and "k1", and nowhere which of them has the knob."""
    seen: list[Experiment] = []

    def measure(asked: Experiment, *_: object, **__: object) -> None:
        seen.append(asked)
        raise LabProblem("stop")

    monkeypatch.setattr("nodrop.remote.dispatch.measuring", lambda _: measure)
    argv = ["tune", "prove", "make:demo", "--sut", "sink", "--out", str(tmp_path)]
    main.exit_code([*argv, "sut.ring_frames=512", "rps=1"])
    (asked,) = seen
    assert [*asked.matrix.named] == ["without", "sut-ring-frames=512", "rps=1"]
    (file := tmp_path / "x.toml").write_text(asked.text)
    again = load_experiment(file, ["cell=rps=1"])
    assert again.matrix.named == {"rps=1": {"tune.rps": "1"}}
    assert cell_slug({"cell": "rps=1", "tune.rps": "1"}) == "rps-1"
    assert [*_cell_names(["a.b=1", "a-b=1"]).values()] == ["a-b=1", "a-b=1-1"]


def test_a_proof_beside_other_programs_says_so_and_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: the terminal said how many runs are lacking, and the page what disturbed them."""
    run = shutil.copytree(RINGS, tmp_path / "rings-v1")
    names = {64: "without", 20_000: "rps=1"}
    records = [
        one.model_copy(update={"cell": {"cell": names[one.cell["sut.ring_size"]]}})
        for one in read_story([run]).sources[0].run.trials.records
    ]
    outcome = SimpleNamespace(directory=run, records=records)
    monkeypatch.setattr("nodrop.remote.dispatch.measuring", lambda _: lambda *_, **__: outcome)
    argv = ["tune", "prove", "make:demo", "--sut", "sink", "--out", str(tmp_path), "rps=1"]
    assert main.exit_code(argv) == NO_ANSWER
    said = capsys.readouterr().out
    assert "4 of 4 trials more than 25 %" in said
    html = page(read_story([run]))
    assert "more than 25 % of the SUT" in html and "at least 8 more runs" in html


@pytest.mark.parametrize(("word", "changes"), [("mtu=1500", False), ("mtu=9000", True)])
def test_a_value_that_was_there_already_is_no_change(
    word: str, changes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: "1500, as it was", then "`nodrop tune restore` puts it back"."""
    device = SimulatedPort()
    _say_applied(apply(device, plan(device, parse([word], KNOBS), [PORT])))
    said = capsys.readouterr().out
    assert ("already 1500; nothing changed" in said) is not changes
    assert ("puts it back" in said) is changes
