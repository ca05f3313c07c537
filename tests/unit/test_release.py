"""Checks of `make release`: the locks, the changelog and the advisories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tools import audit, release

ROOT = Path(__file__).parents[2]
JINJA: dict[str, Any] = {
    "id": "PYSEC-2021-66",
    "modified": "2021-03-22T16:34:00Z",
    "affected": [
        {
            "package": {"name": "Jinja2", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.11.3"}]}],
            "versions": ["2.11.2", "3.0.0.bad"],
        }
    ],
}
TIME: dict[str, Any] = {
    "id": "RUSTSEC-2020-0071",
    "affected": [
        {
            "package": {"name": "time", "ecosystem": "crates.io"},
            "ranges": [
                {
                    "type": "SEMVER",
                    "events": [
                        {"introduced": "0.2.7-0"},
                        {"fixed": "0.2.23"},
                        {"introduced": "0.0.0-0"},
                        {"fixed": "0.2.0"},
                    ],
                }
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("version", "holds"),
    [("0.1.44", True), ("0.2.0", False), ("0.2.6", False), ("0.2.7", True), ("0.2.23", False)],
)
def test_ranges_of_an_advisory(version: str, holds: bool) -> None:
    assert audit.affected(TIME, ("crates.io", "time"), version) is holds
    assert not audit.affected(TIME, ("PyPI", "time"), version)


def test_listed_versions_of_an_advisory() -> None:
    listed = [audit.affected(JINJA, ("PyPI", "jinja2"), v) for v in ("2.11.2", "2.11.3", "3.1.6")]
    assert listed == [True, False, False]


def test_an_audit_finds_what_holds_and_refuses_half_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["audit.py", str(tmp_path)])
    (tmp_path / "a.yaml").write_text(json.dumps(JINJA))
    with pytest.raises(SystemExit, match=r"no advisory of crates\.io"):
        audit.main()
    (tmp_path / "b.json").write_text(json.dumps(TIME))
    audit.main()
    assert "1 advisories of PyPI, 1 of crates.io" in capsys.readouterr().out
    (version,) = audit.locked(ROOT)["PyPI", "jinja2"]
    (tmp_path / "a.yaml").write_text(json.dumps(JINJA).replace('"2.11.2"', f'"{version}"'))
    with pytest.raises(SystemExit, match=f"jinja2 {version}: PYSEC-2021-66"):
        audit.main()


def test_the_locks_are_whole_and_hashed(tmp_path: Path) -> None:
    for lock, extras in release.EXTRAS_OF_LOCK.items():
        release.hashed(ROOT, lock, extras)
    release.crates_hashed(ROOT)
    project = (ROOT / "pyproject.toml").read_text()
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    (tmp_path / "pyproject.toml").write_text(project.replace('"jinja2>=3.1"', '"jinja2>=99"'))
    with pytest.raises(SystemExit, match="asks jinja2>=99: make lock"):
        release.hashed(tmp_path, "requirements.lock", ())
    (tmp_path / "requirements.lock").write_text("jinja2==3.1.6\n    # via nodrop\n")
    with pytest.raises(SystemExit, match="no hash of jinja2"):
        release.hashed(tmp_path, "requirements.lock", ())


def test_notes_are_the_new_part_of_the_changelog() -> None:
    assert release.notes((ROOT / "CHANGELOG.md").read_text(), release.versions(ROOT))
    old = "## [0.1.0]\n- old\n"
    assert release.notes(f"## [Unreleased]\n- new\n{old}", "0.2.0") == "# nodrop 0.2.0\n\n- new\n"
    cut = f"## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n- new\n{old}"
    assert release.notes(cut, "0.2.0") == "# nodrop 0.2.0\n\n- new\n"
    with pytest.raises(SystemExit, match="neither in"):
        release.notes(f"## [Unreleased]\n- newer\n## [0.2.0]\n- new\n{old}", "0.2.0")
    with pytest.raises(SystemExit, match="has nothing of"):
        release.notes(old, "0.2.0")
