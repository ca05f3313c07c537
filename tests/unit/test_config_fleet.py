"""The fleet file: what it may say, and the one line for each thing that it may not."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nodrop.config.options import parse_toml
from nodrop.errors import BadInput
from nodrop_fleet.file import load_fleet

SCHEMA = json.loads((Path(__file__).parents[2] / "schema/fleet.schema.json").read_text())
GOOD = {
    "local": "",
    "scheduler": 'cluster = "scheduler"\naddress = "tls://10.0.0.1:8786"',
    "ssh": 'cluster = "ssh"\nhosts = ["control", "gen1", "gen2"]',
    "slurm": 'cluster = "slurm"\nhost_invariant = true\noptions = { queue = "bench" }',
    "kubernetes": 'cluster = "kubernetes"\noptions = { image = "ours" }',
}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nkind = "netns"\n')
    (tmp_path / "also-a.toml").write_text('name = "a"\nkind = "netns"\n')
    return tmp_path / "fleet.toml"


@pytest.mark.parametrize("cluster", GOOD)
def test_each_kind_of_cluster(fleet: Path, cluster: str) -> None:
    fleet.write_text(f'name = "two"\npairs = ["a.toml", "b.toml"]\n{GOOD[cluster]}\n')
    found = load_fleet(fleet)
    assert found.file.cluster == cluster
    assert {name: lab.path.name for name, lab in found.pairs.items()} == {
        "a": "a.toml",
        "b": "b.toml",
    }
    jsonschema.validate(parse_toml(fleet.read_text(), fleet), SCHEMA)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "pairs: "),
        ("pairs = []", r"pairs = \[\]: "),
        ('pairs = ["c.toml"]', r"pairs.0 = .c.toml.: .*/c.toml"),
        ('pairs = ["a.toml", "also-a.toml"]', r"pairs.1: .*also-a.toml .* .a., .*a.toml"),
        ('pairs = ["a.toml"]\nclster = "local"', "clster: .*cluster"),
        ('pairs = ["a.toml"]\ncluster = "cloud"', "cluster = .cloud.: .*local, scheduler"),
        ('pairs = ["a.toml"]\nhost_invariant = "maybe"', "host_invariant = .maybe.: .*yes, no"),
        ('pairs = ["a.toml"]\naddress = "tcp://x:1"', "address: .*cluster = .scheduler."),
        ('pairs = ["a.toml"]\nhosts = ["a", "b"]', "hosts: .*cluster = .ssh."),
        ('pairs = ["a.toml"]\noptions = {}', "options: .*cluster = .ssh. or .slurm. or"),
        ('pairs = ["a.toml"]\ncluster = "scheduler"', "address: .*cluster = .scheduler."),
        ('pairs = ["a.toml"]\ncluster = "ssh"', "hosts: .*cluster = .ssh."),
        ('pairs = ["a.toml"]\ncluster = "kubernetes"', "options.image: "),
        (
            'pairs = ["a.toml"]\ncluster = "kubernetes"\noptions = { image = "x", pods = {} }',
            "options.pods: .*options.pod",
        ),
        (
            'pairs = ["a.toml", "b.toml"]\ncluster = "ssh"\nhosts = ["x", "y"]',
            "hosts: .* 2, .* 3: ",
        ),
        (
            'pairs = ["a.toml"]\ncluster = "ssh"\nhosts = ["x", "y", "z"]',
            "hosts: .* 3, .* 2: ",
        ),
        (
            'pairs = ["a.toml"]\ncluster = "scheduler"\naddress = "10.0.0.1"',
            "address = .10.0.0.1.: .*tls:// or tcp://",
        ),
    ],
)
def test_one_line_for_what_is_wrong(fleet: Path, text: str, words: str) -> None:
    fleet.write_text(f'name = "two"\n{text}\n')
    with pytest.raises(BadInput, match=rf"fleet.toml: {words}") as refused:
        load_fleet(fleet)
    assert "\n" not in str(refused.value)


def test_a_bad_lab_file_is_named(fleet: Path) -> None:
    (fleet.parent / "a.toml").write_text('name = "a"\n')
    fleet.write_text('name = "two"\npairs = ["a.toml"]\n')
    with pytest.raises(BadInput, match=r"fleet.toml: .*a.toml: kind: missing"):
        load_fleet(fleet)
