"""A fresh machine gets every program the lab asks for (seen missing on a bare Debian 13)."""

from __future__ import annotations

import re
from pathlib import Path

from nodrop.testbed.labs.netns import PACKAGES

SCRIPT = Path(__file__).parents[3] / "tools" / "system-packages"


def test_make_demo_installs_what_the_lab_runs() -> None:
    demo = SCRIPT.read_text().partition("demo | test)")[2].partition(";;&")[0]
    installed = dict(re.findall(r"^  need (\S+) (\S+)$", demo, re.MULTILINE))
    assert PACKAGES.items() <= installed.items()
