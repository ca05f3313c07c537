"""A kind in the matrix is enough: the table beside it need not name one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.errors import BadInput
from nodrop.measure.plan import make_plan
from nodrop.testbed.hosts import node
from nodrop.testbed.load.tcpreplay import Tcpreplay

LOADS = '"load.kind" = ["replay", "tcpreplay"]'
SUTS = '"sut.kind" = ["sink"]'
SETUPS = '"setup.kind" = ["bare", "oci"]'


def experiment(folder: Path, matrix: str, tables: str) -> Path:
    (folder / "t.pcap").write_bytes(b"whatever")
    file = folder / "x.toml"
    file.write_text(f'name = "x"\n[matrix]\n{matrix}\n{tables}')
    return file


@pytest.mark.parametrize(
    ("matrix", "tables", "cells"),
    [
        (LOADS, '[sut]\nkind = "sink"\n[load]\ntrace = "t.pcap"\n', 2),
        (SUTS, '[load]\nkind = "replay"\ntrace = "t.pcap"\n', 1),
        (SETUPS, '[setup]\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "t.pcap"\n', 2),
        (f"{LOADS}\n{SUTS}\n{SETUPS}", '[load]\ntrace = "t.pcap"\nmultiplier = 4\n', 4),
    ],
)
def test_kinds_in_the_matrix_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matrix: str, tables: str, cells: int
) -> None:
    monkeypatch.setenv(node.ENVIRONMENT, "/nope")  # a plan can do without the node
    plan = make_plan(load_experiment(experiment(tmp_path, matrix, tables)))
    assert len(plan.cells) == cells
    for cell in plan.cells:
        for key, value in cell.factors.items():
            assert getattr(cell, key.partition(".")[0])["kind"] == value


@pytest.mark.parametrize("values", ["[]", "[7]", '"replay"'])
def test_a_matrix_that_names_no_kind(tmp_path: Path, values: str) -> None:
    file = experiment(
        tmp_path, f'"load.kind" = {values}', '[sut]\nkind = "sink"\n[load]\ntrace = "t.pcap"\n'
    )
    with pytest.raises(BadInput, match=r"load\.kind"):
        make_plan(load_experiment(file))


@pytest.mark.parametrize("times", [2, 4, 8])
def test_tcpreplay_sends_the_same_flows_unless_others_are_asked_for(
    tmp_path: Path, times: int
) -> None:
    (tmp_path / "t.pcap").write_bytes(b"whatever")
    options = {"kind": "tcpreplay", "trace": "t.pcap", "multiplier": times}
    assert Tcpreplay(options, base=tmp_path).options.flows == "same"
    with pytest.raises(BadInput, match=r'load\.flows = "distinct"'):
        Tcpreplay({**options, "flows": "distinct"}, base=tmp_path)


def test_the_files_of_a_trial_are_those_of_the_docs() -> None:
    here = Path(__file__).parents[2]
    written = re.findall(
        r'folder\.write\("(\w+)"', (here / "src/nodrop/measure/trial_record.py").read_text()
    )
    assert len(written) >= 4
    docs = (here / "docs/results-format.md").read_text()
    for name in written:
        # One that not every trial has stands below the tree.
        assert re.search(rf"(?m)^    {name}\.json |^A trial with .* `{name}\.json`", docs), name
