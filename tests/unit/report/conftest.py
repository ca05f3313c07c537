"""Run directories of every kind, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.made.rundirs import DEMO, INSTANCES, MIXED, SETUPS, make_run


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("demo"), DEMO)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("mixed"), MIXED)


@pytest.fixture(scope="session")
def isolation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("isolation"), SETUPS)


@pytest.fixture(scope="session")
def scale_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("scale-out"), INSTANCES)
