"""Hints and shipped files, by how nodrop was installed."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from nodrop import installation
from nodrop.config.lab_file import find_lab
from tools import wheel_node


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel unpacks it."""
    package = tmp_path / "lib" / "site-packages" / "nodrop"
    package.mkdir(parents=True)
    monkeypatch.setattr(installation, "PACKAGE", package)
    return package


def test_a_wheel_has_no_makefile_and_no_hint_names_it(site: Path) -> None:
    assert installation.checkout() is None
    assert installation.getting_a_node("riscv64") == "install the wheel of nodrop for riscv64"


def test_a_checkout_builds_its_node() -> None:
    assert installation.checkout() == Path(__file__).parents[2]
    assert "`make build`" in installation.getting_a_node("riscv64")


def test_shipped_files_of_a_wheel_are_package_data(site: Path) -> None:
    (site / "labs").mkdir()
    (site / "labs" / "mine.toml").write_text("")
    assert find_lab("mine") == site / "labs" / "mine.toml"


def test_an_experiment_that_a_page_names_is_found_from_anywhere(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("experiments/a.toml", "labs/b.toml"):
        (site / name).parent.mkdir()
        (site / name).write_text("")
        assert installation.brought(Path(name)) == site / name
    for name in ("a.toml", "experiments/../../a.toml", "node/a.toml", "/experiments/a.toml", ""):
        assert installation.brought(Path(name)) == Path(name)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "a.toml").write_text("")
    assert installation.brought(Path("experiments/a.toml")) == Path("experiments/a.toml")


def test_shipped_files_of_a_checkout_are_its_folders() -> None:
    assert installation.shipped("experiments") == Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    ("file", "pip", "words"),
    [
        ("pipx_metadata.json", True, "pipx inject nodrop duckdb s3fs"),
        ("pyvenv.cfg", True, f"{sys.executable} -m pip install duckdb s3fs"),
        ("pyvenv.cfg", False, f"uv pip install --python {sys.executable} duckdb s3fs"),
    ],
)
def test_packages_are_added_to_the_environment_that_nodrop_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, pip: bool, words: str
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if pip else None)
    assert installation.adding("duckdb", "s3fs") == words


def test_an_older_rust_builds_a_node_without_attach_or_says_what_it_lacks() -> None:
    assert wheel_node.features_of("rustc 1.95.0 (5f3d1b9 2026-04-14)\n") == []
    assert wheel_node.features_of("rustc 1.85.0 (x 2025-02-17)\n") == ["--no-default-features"]
    with pytest.raises(SystemExit, match=r"the Rust 1\.63\.0 of this machine is too old"):
        wheel_node.features_of("rustc 1.63.0 (x 2022-08-08)\n")


def test_every_installed_package_runs_on_the_python_of_debian_12() -> None:
    """Locks are made by a newer Python, which takes packages that an older one refuses."""
    too_new = {
        f"{found.name}=={found.version}"
        for found in metadata.distributions()
        if "Requires-Python" in found.metadata
        and not SpecifierSet(found.metadata["Requires-Python"]).contains("3.11.2")
    }
    assert not too_new
