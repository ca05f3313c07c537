"""Files that go to a receiver with nodrop: those that a measurement is made of."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.errors import LabProblem
from nodrop.installation import REVISION, revision
from nodrop.remote import upload

OURS = "{}.{}".format(*sys.version_info)


def brought(monkeypatch: pytest.MonkeyPatch, table: str, distribution: str) -> set[str]:
    """Top folders that go there, with a plugin of that distribution."""
    entry = metadata.EntryPoint(name="theirs", value="theirs:Theirs", group=plugins.GROUPS[table])
    origin = f"{distribution} {metadata.version(distribution)}"
    theirs = plugins.Plugin(table=table, kind="theirs", origin=origin, entry=entry)
    own = [one for one in plugins.plugins() if one.built_in]
    monkeypatch.setattr(plugins, "plugins", lambda: (*own, theirs))
    return {found.name.lower() for found in upload._distributions()}


@pytest.mark.parametrize("table", ["setup", "sut", "load", "lab", "knob", "controller"])
def test_a_part_of_a_measurement_goes_along(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    assert "jinja2" in brought(monkeypatch, table, "jinja2")


@pytest.mark.parametrize("table", ["section", "figure", "command", "fleet"])
def test_what_reports_and_asks_stays(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    assert not {"jinja2", "markupsafe"} & brought(monkeypatch, table, "jinja2")


def test_the_packages_beside_nodrop_stay() -> None:
    went = {found.name.lower() for found in upload._distributions()}
    assert "pydantic" in went
    assert not [name for name in went if name.startswith(("nodrop-", "distributed", "dask"))]


def test_the_commit_goes_along() -> None:
    sent, commit = dict(upload._files(set(), OURS)), revision()
    assert sent.get(f"nodrop/{REVISION}") == (commit and commit.encode())


def test_compiled_parts_for_another_python_are_those_of_its_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    core = metadata.distribution("pydantic_core")
    folder = tmp_path / "nodrop" / "wheels" / f"{core.name}=={core.version}-python3.99"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "theirs.whl", "w") as wheel:
        wheel.writestr("pydantic_core/core.cpython-399.so", b"theirs")
    found = dict(upload._installed(core, "3.99"))
    assert found == {"pydantic_core/core.cpython-399.so": b"theirs"}
    assert dict(upload._installed(metadata.distribution("pydantic"), "3.99")) == dict(
        upload._installed(metadata.distribution("pydantic"), OURS)
    )
    assert all(isinstance(content, Path) for _, content in upload._installed(core, OURS))


def test_a_wheel_that_cannot_be_fetched_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    core = metadata.distribution("pydantic_core")
    with pytest.raises(LabProblem) as problem:
        upload._wheel(core, "3.12")
    said = str(problem.value)
    assert said.startswith(f"the receiver has python3.12, and {core.name}=={core.version} for it")
    assert "\n" not in said and "No matching distribution" in said
    assert not [*tmp_path.rglob("*.whl")]
