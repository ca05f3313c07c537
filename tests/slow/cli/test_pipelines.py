"""The GitHub action and the GitLab job: their step, run with a nodrop that answers as asked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from nodrop.cli import main

ROOT = Path(__file__).parents[3]
ACTION: Any = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB: Any = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())[".nodrop-ab"]
STEP = ACTION["runs"]["steps"][-1]
NODROP = """#!/bin/sh
printf '%s\\n' "$@" >argv
echo '| a table |'
exit $EXIT
"""


def test_both_pipelines_have_one_script_and_its_variables() -> None:
    assert GITLAB["script"] == [STEP["run"]]
    assert STEP["env"].keys() <= GITLAB["variables"].keys()


@pytest.mark.parametrize(
    ("code", "cannot_tell", "ends", "verdict"),
    [
        (0, "fail", 0, "same"),
        (5, "pass", 1, "worse"),
        (6, "pass", 0, "cannot-tell"),
        (6, "fail", 1, "cannot-tell"),
        (3, "pass", 3, None),
    ],
)
def test_the_job_ends_by_the_verdict(
    tmp_path: Path, code: int, cannot_tell: str, ends: int, verdict: str | None
) -> None:
    program = tmp_path / "nodrop"
    program.write_text(NODROP)
    program.chmod(0o755)
    environment = {
        "PATH": "/usr/bin:/bin", "EXIT": str(code), "NODROP": str(program), "TRACE": "a b.pcap",
        "A": "old/suricata", "B": "sut.threads=2", "OPTIONS": "--rules my.rules", "BUDGET": "20m",
        "CANNOT_TELL": cannot_tell, "GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == ends, done.stderr
    argv = (tmp_path / "argv").read_text().splitlines()
    assert argv[:6] == ["ab", "a b.pcap", "--a", "old/suricata", "--b", "sut.threads=2"]
    assert argv[6:10] == ["--budget", "20m", "--rules", "my.rules"]
    command: Any = typer.main.get_command(main.app)
    parser = command.commands["ab"].make_parser(typer.Context(command.commands["ab"]))
    given, rest, _ = parser.parse_args(argv[1:])
    assert not rest and given["markdown"] and given["junit"] == "nodrop-ab.xml"
    if verdict is None:
        assert not (tmp_path / "output").exists()
        return
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert (tmp_path / "summary").read_text() == "| a table |\n"
