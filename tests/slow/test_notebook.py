"""The notebook, run with a real run directory: three figures through `nodrop.open`."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs/notebook/runs.ipynb"
EXECUTE = """
import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=sys.argv[2])
nbformat.write(book, sys.stdout)
"""


def test_the_notebook_draws_three_figures(tmp_path: Path) -> None:
    for needed in ("ipykernel", "matplotlib", "nbclient"):
        pytest.importorskip(needed, reason=f"{needed} is not installed (the extra `dev`)")
    kept = json.loads(NOTEBOOK.read_text())
    assert [cell["outputs"] for cell in kept["cells"] if cell["cell_type"] == "code"] == [[]] * 4
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(NOTEBOOK.parent)],
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    outputs: list[Any] = [one for cell in cells for one in cell.get("outputs", ())]
    drawn = [one["data"]["image/png"] for one in outputs if "data" in one]
    assert len({base64.b64decode(png) for png in drawn}) == 3
    said = "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")
    assert "4 trials of 2 cells" in said
    assert "sut.ring_size = 20000 ['0.00 %', '0.00 %']" in said
    assert [one for one in outputs if one["output_type"] == "error"] == []
