"""Whatever a module shares is made anew for the next try of a disturbed test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import tests.disturbed
tests.disturbed.disturbance = lambda test, before: "a busy machine"
def pytest_configure(config):
    config.pluginmanager.register(tests.disturbed.Disturbances())
"""
SHARED = """
import pytest
WORLDS = []
@pytest.fixture(scope="module")
def world():
    WORLDS.append("made")
    assert len(WORLDS) != 1, "the first is not made whole"
    yield (world := {"broken": False})
    WORLDS.append("ended")
    assert not world["broken"]
def test_breaks_it(world):
    assert not world["broken"]
    world["broken"] = True
    assert WORLDS == ["made", "made", "ended", "made"]
def test_shares_it(world):
    assert world["broken"]
    world["broken"] = False
"""


def test_a_world_that_a_module_shares_is_made_anew_for_each_try(tmp_path: Path) -> None:
    """It is not after a test that passed."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shared.py").write_text(SHARED)
    asked = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked, "--reruns=3", "--only-rerun=Disturbed"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "2 passed, 2 rerun" in done.stdout, done.stdout
