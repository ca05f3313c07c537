"""The committed schemas and the reference page say what the models say."""

import json
import re
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from nodrop.config.experiment import ExperimentFile, LimitsTable, Measure, load_experiment
from nodrop.config.options import check
from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput
from nodrop.testbed.labs.netns import NetnsFile
from nodrop.testbed.labs.ssh import SshFile
from nodrop.testbed.suts.sink import SinkOptions
from nodrop.testbed.suts.suricata.sut_options import SuricataOptions
from tools.schemas import schemas

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/experiment-file.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_committed_schema_is_fresh(name: str) -> None:
    committed = json.loads((ROOT / f"schema/{name}.schema.json").read_text(encoding="utf-8"))
    assert committed == schemas()[name], "run `python -m tools.schemas schema`"
    Draft202012Validator.check_schema(committed)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((p, "experiment") for p in sorted((ROOT / "experiments").glob("*.toml"))),
        *((p, "lab") for p in sorted((ROOT / "labs").glob("*.toml"))),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_what_nodrop_brings_along_fits_model_and_schema(path: Path, name: str) -> None:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator(schemas()[name]).validate(table)
    models: dict[str, type[BaseModel]] = {"netns": NetnsFile, "ssh": SshFile}
    model = models[table["kind"]] if name == "lab" else ExperimentFile
    check(model, table, table="", base=path.parent)


SUT = '[sut]\nkind = "sink"\n'
LOAD = '[load]\nkind = "replay"\ntrace = "make:demo"\n'
BARE_LOAD = '[load]\ntrace = "make:demo"\n'
LOADS = '[matrix]\n"load.kind" = ["replay", "tcpreplay"]\n'


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (SUT + LOAD, True),
        (SUT + BARE_LOAD + LOADS, True),
        (SUT + BARE_LOAD + '[matrix]\nload.kind = ["replay"]\n', True),
        (LOAD + '[matrix]\n"sut.kind" = ["sink", "suricata"]\n', True),
        (SUT + BARE_LOAD, False),
        (SUT + BARE_LOAD + '[matrix]\n"load.pps" = [1, 2]\n', False),
        (BARE_LOAD + LOADS, False),
        (SUT, False),
    ],
)
def test_an_editor_asks_for_a_kind_where_nodrop_does(tmp_path: Path, text: str, fits: bool) -> None:
    table = tomllib.loads(f'name = "x"\n{text}')
    file = tmp_path / "x.toml"
    file.write_text(f'name = "x"\n{text}')
    schema = Draft202012Validator(schemas()["experiment"])
    assert schema.is_valid(table) == fits
    with nullcontext() if fits else pytest.raises(BadInput):
        load_experiment(file)


def test_the_examples_of_the_page_are_experiments(tmp_path: Path) -> None:
    whole, matrix = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    check(ExperimentFile, tomllib.loads(whole), table="", base=ROOT)
    file = tmp_path / "x.toml"
    file.write_text(re.sub(r"(?s)\[matrix\].*?\n\n", matrix + "\n", whole, count=1))
    assert len(list(load_experiment(file).matrix.cells())) == 3


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ('### kind = "suricata"', SuricataOptions),
        ('### kind = "sink"', SinkOptions),
        ("## [load]", ReplayOptions),
        ("## [limits]", LimitsTable),
        ("## [measure]", Measure),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_key_is_on_the_page_and_no_other(heading: str, model: type[BaseModel]) -> None:
    section = PAGE.split(heading, 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert documented == set(model.model_fields)


@pytest.mark.parametrize(
    ("heading", "model"),
    [("## [load]", ReplayOptions), ("## [measure]", Measure)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_defaults_on_the_page_are_the_models(heading: str, model: type[BaseModel]) -> None:
    section = PAGE.split(heading, 1)[1].split("\n#", 1)[0]
    for line in section.splitlines():
        found = re.match(r"\| `(\w+)` \| `([^`]+)` \|", line)
        if found and found[1] != "speed":  # a pace that is not given is speed = 1.0
            stated: Any = tomllib.loads(f"v = {found[2]}")["v"]
            assert model.model_fields[found[1]].default == stated, found[1]
