"""Files that go to a receiver with nodrop: those that a measurement is made of."""

from __future__ import annotations

from importlib import metadata

import pytest

from nodrop import plugins
from nodrop.installation import REVISION, revision
from nodrop.remote import upload


def brought(monkeypatch: pytest.MonkeyPatch, table: str, distribution: str) -> set[str]:
    """Top folders that go there, with a plugin of that distribution."""
    entry = metadata.EntryPoint(name="theirs", value="theirs:Theirs", group=plugins.GROUPS[table])
    origin = f"{distribution} {metadata.version(distribution)}"
    theirs = plugins.Plugin(table=table, kind="theirs", origin=origin, entry=entry)
    own = [one for one in plugins.plugins() if one.built_in]
    monkeypatch.setattr(plugins, "plugins", lambda: (*own, theirs))
    return {name.split("/")[0] for name, _ in upload._distributions()}


@pytest.mark.parametrize("table", ["setup", "sut", "load", "lab", "knob", "controller"])
def test_a_part_of_a_measurement_goes_along(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    assert "jinja2" in brought(monkeypatch, table, "jinja2")


@pytest.mark.parametrize("table", ["section", "figure", "command", "fleet"])
def test_what_reports_and_asks_stays(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    assert not {"jinja2", "markupsafe"} & brought(monkeypatch, table, "jinja2")


def test_the_packages_beside_nodrop_stay() -> None:
    went = {name.split("/")[0] for name, _ in upload._distributions()}
    assert "pydantic" in went
    assert not [name for name in went if name.startswith(("nodrop_", "distributed", "dask"))]


def test_the_commit_goes_along() -> None:
    sent, commit = dict(upload._files(set())), revision()
    assert sent.get(f"nodrop/{REVISION}") == (commit and commit.encode())
