"""The crates: who may depend on whom, and where `unsafe` may stand."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

CRATES = Path(__file__).parents[2] / "crates"
NAMES = sorted(path.name for path in CRATES.iterdir())
WITH_UNSAFE = {"sys", "io", "counters"}
"""Everywhere else the workspace's lints forbid it."""
ALLOWED: dict[str, set[str]] = {
    "proto": set(),
    "wire": set(),
    "counters": set(),
    "sys": set(),
    "io": {"wire", "sys"},
    "replay": {"io", "wire", "sys"},
    "trace": {"io", "wire", "sys"},
}
"""DESIGN: the other crates of ours that each may depend on; `node` may depend on all."""


def manifest(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "Cargo.toml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_crate_depends_only_on_those_below_it(name: str) -> None:
    ours = {key for key in manifest(CRATES / name)["dependencies"] if key.startswith("nodrop-")}
    allowed = ALLOWED.get(name, set(NAMES) - {"node"})
    assert ours <= {f"nodrop-{other}" for other in allowed}


@pytest.mark.parametrize("name", NAMES)
def test_unsafe_is_forbidden_but_in_three_crates(name: str) -> None:
    rules = manifest(CRATES.parent)["workspace"]["lints"]
    lints = manifest(CRATES / name)["lints"]
    assert rules["rust"].pop("unsafe_code") == "forbid"
    assert rules["clippy"]["undocumented_unsafe_blocks"] == "deny"
    assert lints == (rules if name in WITH_UNSAFE else {"workspace": True})
