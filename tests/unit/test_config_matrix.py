"""Cells with names, and combinations that are left out."""

from pathlib import Path

import pytest

from nodrop.config.experiment import Experiment, load_experiment
from nodrop.errors import BadInput
from nodrop.measure.plan import make_plan

HEAD = """\
name = "threads"
[sut]
kind = "suricata"
[load]
kind = "replay"
trace = "make:demo"
"""
NAMED = """\
[matrix]
"load.multiplier" = [1, 4]
[matrix.cells.single]
"sut.runmode" = "single"
[matrix.cells.autofp-1x2]
sut.runmode = "autofp"
sut.threads = 1
sut.detect_threads = 2
"""
PRODUCT = """\
[matrix]
"sut.runmode" = ["workers", "autofp"]
"sut.threads" = [1, 2, 4]
"""


def load(tmp_path: Path, matrix: str, *settings: str) -> Experiment:
    path = tmp_path / "f.toml"
    path.write_text(HEAD + matrix)
    return load_experiment(path, settings)


def said(tmp_path: Path, matrix: str, *settings: str) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, matrix, *settings)
    return caught.value.message.replace(str(tmp_path / "f.toml"), "F")


def test_named_cells_are_combined_with_the_dimensions(tmp_path: Path) -> None:
    found = load(tmp_path, NAMED)
    single = {"cell": "single", "sut.runmode": "single"}
    autofp = {"cell": "autofp-1x2", "sut.runmode": "autofp"}
    autofp |= {"sut.threads": 1, "sut.detect_threads": 2}
    assert list(found.matrix.cells()) == [
        {**cell, "load.multiplier": n} for cell in (single, autofp) for n in (1, 4)
    ]
    assert found.trial_count == 12


def test_a_named_cell_sets_its_tables(tmp_path: Path) -> None:
    plan = make_plan(load(tmp_path, NAMED))
    suts = [cell.sut for cell in plan.cells]
    assert suts[0] == {"kind": "suricata", "runmode": "single"}
    assert suts[2] == {"kind": "suricata", "runmode": "autofp", "threads": 1, "detect_threads": 2}


def test_named_cells_may_name_the_kinds(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(
        'name = "x"\n[load]\nkind = "replay"\ntrace = "make:demo"\n'
        '[matrix.cells.a]\nsut.kind = "sink"\n[matrix.cells.b]\nsut.kind = "suricata"\n'
    )
    plan = make_plan(load_experiment(path))
    assert [cell.sut["kind"] for cell in plan.cells] == ["sink", "suricata"]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ('[{"sut.runmode" = "workers", "sut.threads" = 4}]', ["w1", "w2", "a1", "a2", "a4"]),
        ('[{"sut.runmode" = "workers", "sut.threads" = [2, 4]}]', ["w1", "a1", "a2", "a4"]),
        ("[{sut.threads = 1}, {sut.threads = 2}]", ["w4", "a4"]),
        ('[{sut.runmode = "autofp"}]', ["w1", "w2", "w4"]),
    ],
)
def test_combinations_that_make_no_sense_are_left_out(
    tmp_path: Path, exclude: str, left: list[str]
) -> None:
    found = load(tmp_path, f"{PRODUCT}exclude = {exclude}\n")
    cells = [f"{c['sut.runmode'][0]}{c['sut.threads']}" for c in found.matrix.cells()]
    assert cells == left
    assert found.trial_count == 3 * len(left)


def test_a_named_cell_is_left_out_by_its_name(tmp_path: Path) -> None:
    matrix = 'exclude = [{cell = "single", load.multiplier = 4}]\n'
    found = load(tmp_path, NAMED.replace("[matrix]\n", f"[matrix]\n{matrix}"))
    cells = [(c["cell"], c["load.multiplier"]) for c in found.matrix.cells()]
    assert cells == [("single", 1), ("autofp-1x2", 1), ("autofp-1x2", 4)]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (PRODUCT + "exclude = 3\n", "F: matrix.exclude = 3: "),
        (PRODUCT + "exclude = [{}]\n", "F: matrix.exclude: "),
        (PRODUCT + "exclude = [{sut.thread = 1}]\n", "F: matrix.exclude: sut.thread: "),
        (PRODUCT + "exclude = [{sut.threads = 3}]\n", "F: matrix.exclude: no cell "),
        (
            PRODUCT + 'exclude = [{sut.runmode = "workers"}, {sut.runmode = "autofp"}]\n',
            "F: matrix.exclude: leaves no cell",
        ),
        ('[matrix]\nexclude = [{cell = "x"}]\n', "F: matrix.exclude: cell: "),
        (NAMED.replace("single]", "Single]"), "F: matrix.cells.Single: "),
        ("[matrix.cells]\na = 3\n", "F: matrix.cells.a = 3: "),
        (
            "[matrix.cells.a]\nsut.threads = [1, 2]\n",
            "F: matrix.cells.a.sut.threads = [1, 2]: ",
        ),
        ("[matrix.cells.a]\nsutt.threads = 1\n", "F: matrix.cells.a.sutt.threads: "),
        (
            "[matrix.cells.a]\nsut.threads = 1\n[matrix.cells.b]\nsut.threads = 1\n",
            "F: matrix.cells.b: ",
        ),
        (
            "[matrix]\nsut.threads = [1]\n[matrix.cells.a]\nsut.threads = 1\n",
            "F: matrix.sut.threads and matrix.cells.a.sut.threads ",
        ),
    ],
)
def test_each_error_line(tmp_path: Path, matrix: str, words: str) -> None:
    assert said(tmp_path, matrix).startswith(words)


def test_a_set_key_is_pinned_in_named_cells_and_in_what_is_left_out(tmp_path: Path) -> None:
    exclude = 'exclude = [{sut.runmode = "workers", sut.threads = 4}]\n'
    workers = load(tmp_path, PRODUCT + exclude, "sut.runmode=workers")
    assert [c["sut.threads"] for c in workers.matrix.cells()] == [1, 2]
    autofp = load(tmp_path, PRODUCT + exclude, "sut.runmode=autofp")
    assert [c["sut.threads"] for c in autofp.matrix.cells()] == [1, 2, 4]
    named = load(tmp_path, NAMED, "sut.detect_threads=4")
    assert all("sut.detect_threads" not in cell for cell in named.matrix.cells())
    changed = load(tmp_path, NAMED, "matrix.cells.autofp-1x2.sut.threads=2")
    assert [c.get("sut.threads") for c in changed.matrix.cells()] == [None, None, 2, 2]


def test_a_named_cell_is_pinned_by_its_name(tmp_path: Path) -> None:
    for name, modes in (("single", ["single"] * 2), ("autofp-1x2", ["autofp"] * 2)):
        found = load(tmp_path, NAMED, f"cell={name}")
        assert [c["cell"] for c in found.matrix.cells()] == [name] * 2
        assert [c["sut.runmode"] for c in found.matrix.cells()] == modes
    both = load(tmp_path, NAMED, "load.multiplier=7", "cell=single")
    assert [c["cell"] for c in both.matrix.cells()] == ["single"]
    for wrong in ("autofp", "3", "autofp-1x2.sut.threads"):
        line = said(tmp_path, NAMED, f"cell={wrong}")
        assert line.startswith(f"--set cell={wrong}: ") and line.endswith(" autofp-1x2, single")
    assert said(tmp_path, PRODUCT, "cell=single").startswith("--set cell=single: ")


@pytest.mark.parametrize("given", ["cell=single,autofp-1x2", 'cell=["autofp-1x2", "single"]'])
def test_several_named_cells_are_kept(tmp_path: Path, given: str) -> None:
    text = NAMED + '\n[matrix.cells.third]\n"sut.runmode" = "workers"\n'
    found = load(tmp_path, text, given)
    assert {c["cell"] for c in found.matrix.cells()} == {"single", "autofp-1x2"}
    for wrong in ("cell=single,", "cell=single,fourth", "cell=[]"):
        assert said(tmp_path, text, wrong).endswith(" autofp-1x2, single, third")


def test_levels_may_be_measured_in_some_cells(tmp_path: Path) -> None:
    text = PRODUCT.replace("[matrix]", '[matrix]\n"measure.level_interval_ms" = [4, 0]', 1)
    plan = make_plan(load(tmp_path, text))
    assert {c.level_interval_ms for c in plan.cells} == {4, 0}
    assert {c.level_interval_ms for c in make_plan(load(tmp_path, PRODUCT)).cells} == {4}
    wrong = load(tmp_path, text.replace("[4, 0]", "[4, 1001]"))
    with pytest.raises(BadInput, match=r"measure\.level_interval_ms = 1001: "):
        make_plan(wrong)


def test_a_profile_may_be_made_in_some_cells(tmp_path: Path) -> None:
    text = PRODUCT.replace("[matrix]", '[matrix]\n"measure.profile" = [false, true]', 1)
    plan = make_plan(load(tmp_path, text))
    assert {(c.factors["measure.profile"], c.profile) for c in plan.cells} == {
        (False, False),
        (True, True),
    }
    pinned = make_plan(load(tmp_path, text, "measure.profile=true"))
    assert len(pinned.cells) * 2 == len(plan.cells) and all(c.profile for c in pinned.cells)
    wrong = load(tmp_path, text.replace("[false, true]", "[1]"))
    with pytest.raises(BadInput, match=r"measure\.profile = 1: "):
        make_plan(wrong)


def test_what_is_left_out_is_not_asked_about_a_million_times(tmp_path: Path) -> None:
    many = ", ".join(map(str, range(1, 1025)))
    matrix = f"[matrix]\nsut.threads = [{many}]\nload.loops = [{many}]\n"
    words = said(tmp_path, matrix + "exclude = [{sut.threads = 1}]\n")
    assert words.startswith("F: matrix.exclude: 1,048,576 ") and "100,000" in words
