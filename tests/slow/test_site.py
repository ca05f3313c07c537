"""The documentation as a site: whole, without a word from another host, the same bytes twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^ >]*"""
)


def build(to: Path) -> Mapping[str, bytes]:
    """The files of the site; a broken link or a page in no menu is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (the extra `dev`)")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(to)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(p.relative_to(to)): p.read_bytes() for p in to.rglob("*") if p.is_file()}


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    files = build(tmp_path)
    texts = {name: data.decode() for name, data in files.items() if name.endswith(".html")}
    assert {name: LOADED.findall(text) for name, text in texts.items() if LOADED.search(text)} == {}
    assert "nodrop replays a <em>trace</em>" in texts["index.html"]
    assert "--goal-detections" in texts["reference/options.html"]
    assert "ISO 8601" in texts["reference/schemas/trial.html"]
    assert files["schema/trial.schema.json"] == (ROOT / "schema/trial.schema.json").read_bytes()
    for decision in ROOT.glob("docs/adr/*.md"):
        assert f'href="{decision.stem}.html"' in texts["adr/index.html"]


@pytest.mark.depth
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    assert build(tmp_path / "a") == build(tmp_path / "b")
