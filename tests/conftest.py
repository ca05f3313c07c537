"""For all tests: in CI a skip that nobody expects is a failure, so the suite cannot shrink."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: 614 ms were seen where 0.2 s is the library's bound.
settings.register_profile("nodrop", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=500)  # tools/fuzz.py
settings.load_profile("nodrop")

EXPECTED = Path(__file__).with_name("expected_skips.txt")


def expected_reasons() -> list[re.Pattern[str]]:
    """One regular expression a line; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in EXPECTED.read_text().splitlines())
    return [re.compile(line) for line in lines if line]


def unexpected(reasons: Iterable[str]) -> list[str]:
    allowed = expected_reasons()
    return sorted({r for r in reasons if not any(pattern.search(r) for pattern in allowed)})


class SkipLedger:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons.append(str(report.longrepr[2]).removeprefix("Skipped: "))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = unexpected(self.reasons)
        if found and os.environ.get("CI"):
            for reason in found:
                session.config.get_terminal_writer().line(f"unexpected skip: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipLedger(), "skip-ledger")
