"""Each step of the GitHub action, of the GitLab job and of the example workflow, as a runner takes
it: its shell, its environment with the expressions filled in, files between the steps. pip reaches
no registry: the wheel that it installs names the packages of the tests."""

from __future__ import annotations

import hashlib
import os
import re
import site
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from nodrop import __version__
from tests.depth import depth

ROOT = Path(__file__).parents[2]
ACTION: Any = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB: Any = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())[".nodrop-ab"]
EXAMPLE: Any = yaml.safe_load((ROOT / "ci/example-workflow.yml").read_text())
SOURCES = (ROOT / "src", *(ROOT / "packages").glob("*/src"))
INPUTS = {
    "trace": "make:demo",
    "a": "sut.service_rate_pps=8000",
    "b": "sut.service_rate_pps=500",
    "options": "--sut sink --set sut.ring_frames=64 --metric loss_pct --load 1X --window 2.0..2.3",
}
"""B loses most of what is sent: worse at the first look, after 12 trials of each."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nodrop as a wheel that finds itself and what it needs where the tests do."""
    folder: Path = tmp_path_factory.mktemp("wheel")
    path = folder / f"nodrop-{__version__}-py3-none-any.whl"
    info = f"nodrop-{__version__}.dist-info"
    texts = {
        "nodrop-of-tests.pth": "\n".join([*map(str, SOURCES), *site.getsitepackages(), ""]),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: nodrop\nVersion: {__version__}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nnodrop = nodrop.cli.main:main\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


class Runner:
    """A job in a folder: steps run one after the other, outputs and summary as files."""

    def __init__(self, folder: Path, known: Mapping[str, str]) -> None:
        self.folder = folder
        self.known = dict(known)
        (folder / "bin").mkdir()
        sudo = folder / "bin/sudo"
        sudo.write_text('#!/bin/sh\nexec "$@"\n')
        sudo.chmod(0o755)
        self.base = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "RUNNER_TEMP": str(folder / "temp"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        } | {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
        (folder / "temp").mkdir()

    def filled(self, text: str) -> str:
        """Text with `${{ inputs.a }}` replaced. KeyError if an expression is not known."""
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: self.known[found[1]], text)

    def step(self, step: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        given = {name: self.filled(str(value)) for name, value in step.get("env", {}).items()}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.filled(step["run"])],
            cwd=self.folder / step.get("working-directory", "."),
            env=self.base | given,
            capture_output=True,
            text=True,
        )


ENDS = pytest.mark.parametrize(
    ("budget", "code", "verdict", "not_passed"),
    [("6s", 0, "cannot-tell", "skipped"), depth("120s", 1, "worse", "failure")],
)


def written(folder: Path, not_passed: str) -> None:
    """Table and JUnit file of the one metric."""
    assert "loss_pct" in (folder / "nodrop-ab.md").read_text()
    suite = ElementTree.parse(folder / "nodrop-ab.xml").getroot()
    assert len([*suite.iter(not_passed)]) == 1


@ENDS
def test_the_steps_of_the_action(
    wheel: Path, tmp_path: Path, budget: str, code: int, verdict: str, not_passed: str
) -> None:
    defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
    given = defaults | INPUTS | {"nodrop": str(wheel), "budget": budget}
    known = {f"inputs.{name}": value for name, value in given.items()}
    runner = Runner(tmp_path, known | {"runner.temp": str(tmp_path / "temp")})
    install, measure = ACTION["runs"]["steps"]
    done = runner.step(install)
    assert done.returncode == 0, done.stdout + done.stderr
    done = runner.step(measure)
    assert done.returncode == code, done.stdout + done.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert (tmp_path / "summary").read_text() == (tmp_path / "nodrop-ab.md").read_text()
    written(tmp_path, not_passed)


@pytest.mark.depth
@ENDS
def test_the_scripts_of_the_gitlab_job(
    wheel: Path, tmp_path: Path, budget: str, code: int, verdict: str, not_passed: str
) -> None:
    runner = Runner(tmp_path, {})
    given = {key.upper(): value for key, value in INPUTS.items()}
    given |= {"NODROP_WHEEL": str(wheel), "BUDGET": budget}
    runner.base = {
        name: value for name, value in runner.base.items() if not name.startswith("GITHUB_")
    }
    assert given.keys() <= GITLAB["variables"].keys()
    (before,), (script,) = GITLAB["before_script"], GITLAB["script"]
    env = GITLAB["variables"] | given
    done = runner.step({"run": f"{before}\n{script}", "env": env})
    assert done.returncode == code, done.stdout + done.stderr
    assert f"\nverdict={verdict}\n" in done.stdout
    written(tmp_path, not_passed)
    kept = [*GITLAB["artifacts"]["paths"], GITLAB["artifacts"]["reports"]["junit"]]
    assert all((tmp_path / name).is_file() for name in kept)


def test_the_example_workflow_pins_its_inputs_and_posts_the_table(tmp_path: Path) -> None:
    (job,) = EXAMPLE["jobs"].values()
    steps = {step.get("id", step.get("uses", "")): step for step in job["steps"]}
    action = next(step for name, step in steps.items() if step.get("uses", "").startswith("OWNER/"))
    assert action["with"].keys() <= ACTION["inputs"].keys()
    required = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert required <= action["with"].keys()
    speed = tmp_path / "new/tests/speed"
    speed.mkdir(parents=True)
    for name in ("my.pcap", "my.rules"):
        assert name in action["with"]["trace"] + action["with"]["options"]
        (speed / name).write_text(name)
    sums = [f"{hashlib.sha256(n.encode()).hexdigest()}  {n}\n" for n in ("my.pcap", "my.rules")]
    (speed / "SHA256SUMS").write_text("".join(sums))
    runner = Runner(
        tmp_path,
        {"github.token": "t", "github.repository": "o/r", "github.event.pull_request.number": "7"},
    )
    assert runner.step(steps["pinned"]).returncode == 0
    (speed / "my.rules").write_text("another")
    assert runner.step(steps["pinned"]).returncode == 1
    (tmp_path / "nodrop-ab.md").write_text("| a |\n")
    gh = tmp_path / "bin/gh"
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$GH_TOKEN" "$@" >said\n')
    gh.chmod(0o755)
    assert runner.step(steps["comment"]).returncode == 0
    said = (tmp_path / "said").read_text().splitlines()
    assert said[:4] == ["t", "pr", "comment", "7"] and said[-1] == "nodrop-ab.md"
    for step in steps.values():
        if "run" in step:
            words = step["run"]
            subprocess.run(["bash", "-n"], input=words, text=True, check=True)
