"""Runs for scripts: each example of the page, run with a real run directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nodrop
from nodrop.errors import BadInput

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/python.md"
RUNS = sorted(path for path in (ROOT / "tests/fixtures/runs").iterdir() if path.is_dir())


@pytest.mark.parametrize("directory", RUNS, ids=lambda path: path.name)
def test_the_examples_of_the_page_run(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"DIR": str(directory)}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    run = nodrop.open(directory)
    assert f"{len(run.trials)} trials of {len(run.cells)} cells" in said
    assert len(run.rows()) == len(run.trials) > 0
    assert sum(trial.run in said for trial in run.trials) == len(run.trials)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        nodrop.open(tmp_path)
    with pytest.raises(AttributeError, match="has no attribute clsoe"):
        nodrop.clsoe  # type: ignore[attr-defined]  # noqa: B018
