"""Commands and options that packages beside nodrop bring, where those are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import plugins
from nodrop.cli.main import exit_code
from nodrop.errors import NotReady


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """nodrop is installed alone."""
    own = tuple(one for one in plugins.plugins() if one.built_in)
    monkeypatch.setattr(plugins, "plugins", lambda: own)


@pytest.mark.parametrize(
    ("argv", "package"),
    [
        (["import", "cs590", "folder", "--out", "x"], "nodrop-studies"),
        (["plan", "experiments/demo.toml", "--fleet", "four.toml"], "nodrop-fleet"),
        (["run", "experiments/demo.toml", "--fleet", "four.toml"], "nodrop-fleet"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_its_package_is_named(
    argv: list[str], package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(argv) == NotReady.exit_code
    said = capsys.readouterr().err
    assert f"comes with the package {package}, which is not installed" in said
    assert str(Path("packages", package)) in said


@pytest.mark.usefixtures("alone")
def test_help_lists_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["--help"]) == 0
    assert "published data" not in capsys.readouterr().out


def test_help_lists_the_commands_of_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["--help"]) == 0
    assert "published data" in capsys.readouterr().out
