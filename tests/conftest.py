"""The machine that all tests run on, the tests that run beside them, and the skips allowed in CI.

In CI an unexpected skip is a failure, so the suite cannot shrink.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import subprocess
import threading
from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from pytest_rerunfailures import StatusDB  # type: ignore[import-untyped]

from nodrop.errors import NodropError
from nodrop.testbed.hosts.rights import (
    ensure_privileges,
    in_user_namespace,
    is_root_of_the_host,
)
from tests.depth import is_left_out
from tests.disturbed import INCONCLUSIVE, Disturbances
from tests.scopes import Scopes
from tests.turns import LEFT_OUT, is_alone, rank

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# As `nodrop` itself does: a normal user's PATH on Debian lacks them, and ethtool and tc are there.
os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

# A busy machine is no failure: 614 ms were seen; the library's bound is 0.2 s.
settings.register_profile("nodrop", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=500)  # tools/fuzz.py
settings.load_profile("nodrop")

EXPECTED = Path(__file__).with_name("expected_skips.txt")
STDERR = pytest.StashKey[int]()
"""Standard error as it is while nothing is captured."""
UNWINDING_S = 60
"""Time for a test that was interrupted by its timeout to end what it began."""
MOST_INCONCLUSIVE = 12
"""Tests of one session: of some 4,400, about a fourth of those that are `alone`."""


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
        inconclusive = [reason for reason in self.reasons if reason.startswith(INCONCLUSIVE)]
        if len(inconclusive) > MOST_INCONCLUSIVE:
            found += inconclusive
        if found and os.environ.get("CI"):
            for reason in found:
                session.config.get_terminal_writer().line(f"unexpected skip: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def hear_ctrl_c() -> None:
    """A shell's background job ignores it, and so would the programs that tests press it for."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A normal user's tests run in the namespaces in which nodrop itself runs."""
    if is_worker(config) or config.option.collectonly:
        return
    try:
        ensure_privileges()
    except NodropError:
        return  # the tests that need a lab are skipped, and say so
    if in_user_namespace():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@pytest.hookimpl(trylast=True)  # after pytest-rerunfailures
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Disturbances(), "disturbances")
    if is_worker(config):
        count_tries_here(config)
    else:
        config.pluginmanager.register(SkipLedger(), "skip-ledger")
    hear_ctrl_c()
    config.stash[STDERR] = os.dup(2)


def count_tries_here(config: pytest.Config) -> None:
    """A worker counts the tries of its tests itself. By default it asks the controller over TCP
    about each test, and Nagle's algorithm holds each question back for 40 ms. The answers would
    matter after the crash of a worker alone, and then by-scope scheduling repeats no test."""
    config.failures_db.sock.close()  # type: ignore[attr-defined]
    config.failures_db = StatusDB()  # type: ignore[attr-defined]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if left_out := [item for item in items if is_left_out(item)]:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted((item for item in items if not is_left_out(item)), key=rank)
    if is_worker(config):
        items[:] = [item for item in items if not is_alone(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that outlives its timeout ends its process, with the stacks of all threads.

    pytest-timeout raises once in the main thread: a `with` or a teardown may then wait for what
    hangs. CI would end without the name of the test.
    """
    given = item.get_closest_marker("timeout")
    limit_s = float(given.args[0] if given else item.config.getini("timeout"))
    end_here = partial(_end_here, item.nodeid, item.config.stash[STDERR])
    watching = threading.Timer(limit_s + UNWINDING_S, end_here)
    watching.daemon = True
    watching.start()
    try:
        return (yield)
    finally:
        watching.cancel()


def _end_here(nodeid: str, stderr: int) -> None:
    os.write(stderr, f"\n{nodeid} hangs:\n".encode())
    faulthandler.dump_traceback(stderr)
    os._exit(70)


def pytest_collection_finish() -> None:
    """Collected tests stay until the end: no collection of garbage need look through them."""
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_report_header(config: pytest.Config) -> str | None:
    return LEFT_OUT if getattr(config.option, "numprocesses", None) else None


@pytest.fixture(scope="session")
def real_root() -> None:
    if not is_root_of_the_host():
        pytest.skip("needs root of the host: a user namespace has no such rights")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # the order is ours
    return Scopes(config, log)
