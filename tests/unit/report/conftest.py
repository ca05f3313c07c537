"""Run directories of every kind, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.testing.rundirs import DEMO, MIXED, make_run


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("demo"), DEMO)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("mixed"), MIXED)
