"""A test that failed while the machine disturbed it is done again.

nodrop itself says which trials were disturbed: the sender was late, or others had the CPUs. Of what
no trial shows, the kernel's own sums say whether a lab's test was robbed of its CPUs. What failed
then says nothing about what the test asks, as such a trial says nothing about a SUT.
pytest-rerunfailures repeats it, a few times at most; a test that fails undisturbed fails at once.
If the kernel says that the hypervisor took CPU in the last of its tries, it is inconclusive and is
skipped; tests/conftest.py bounds how many may be. But a test that fails in the same words each time
is no test that was disturbed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodrop.ledger.outcome import Reason
from tests.turns import is_alone, is_of_a_lab

BY_THE_MACHINE = {Reason.SENDER_LATE, Reason.SENDER_BURST, Reason.SENDER_SHORT, Reason.CPU_STOLEN}
OTHERS = ("other programs", "hypervisor")
INCONCLUSIVE = "inconclusive"
WORDS = pytest.StashKey[list[str]]()
"""The words of each failure of a test so far."""
FAILED = pytest.StashKey[bool]()
STOLEN_S = 0.05
"""A ring of any test holds what arrives in a shorter time."""
OTHERS_RATIO = 0.25
"""Part of one CPU."""
ROBBED_RATIO = 0.05
"""Part of one CPU: the bound of nodrop's own trials. That may be what is tested, so that here the
kernel alone is asked."""


class Disturbed(Exception):
    """pyproject.toml names it: `--only-rerun`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU time so far, summed over CPUs."""

    mono_s: float
    stolen_s: float
    """Time that the hypervisor took."""
    busy_s: float
    """Time of all programs of this machine."""
    own_s: float
    """Time of this process and of those it has started and seen the end of."""

    @classmethod
    def now(cls) -> Spent:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split(None, 9)[1:9]]
        user, nice, system, *_, stolen = (each / os.sysconf("SC_CLK_TCK") for each in ticks)
        own = os.times()
        return cls(
            mono_s=time.monotonic(),
            stolen_s=stolen,
            busy_s=user + nice + system,
            own_s=own.user + own.system + own.children_user + own.children_system,
        )

    def disturbance_since(self, before: Spent, *, alone: bool) -> str | None:
        stolen_s = self.stolen_s - before.stolen_s
        if stolen_s >= STOLEN_S:
            return f"the hypervisor gave {stolen_s:.2f} s of the CPUs to others"
        others_s = self.busy_s - before.busy_s - (self.own_s - before.own_s)
        if alone and others_s > OTHERS_RATIO * (self.mono_s - before.mono_s):
            return f"other programs had {others_s:.2f} s of the CPUs"
        return None

    def robbery_since(self, before: Spent) -> str | None:
        stolen_s, elapsed_s = self.stolen_s - before.stolen_s, self.mono_s - before.mono_s
        if stolen_s < max(STOLEN_S, ROBBED_RATIO * elapsed_s):
            return None
        return f"the hypervisor took {stolen_s:.2f} s of the CPUs in {elapsed_s:.1f} s"


class Disturbances:
    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        before = Spent.now()
        try:
            return (yield)
        except (Exception, pytest.fail.Exception) as failure:
            disturbed(pyfuncitem, before, failure)
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """A world that a disturbed machine did not make is made again as well."""
        before = Spent.now()
        try:
            return (yield)
        except Disturbed:
            raise
        except (Exception, pytest.fail.Exception) as failure:
            disturbed(request._pyfuncitem, before, failure)
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
        if call.when == "teardown" and item.stash[FAILED]:
            item.stash[FAILED] = False
            end_worlds(item)
        return report


def end_worlds(item: pytest.Item) -> None:
    """Ends what a module shares, for a test that failed may have broken it: the next test, or the
    next try, makes it anew."""
    if isinstance(item, pytest.Function):
        # A fixture may stand over another of its name: that world is made anew as well.
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            for fixture in reversed(fixtures):
                if fixture.scope == "module":
                    with suppress(Exception):  # what a broken world says is no further failure
                        fixture.finish(item._request)


def disturbed(test: pytest.Function, before: Spent, failure: BaseException) -> None:
    """Raises if the machine disturbed it."""
    hangs = str(failure).startswith("Timeout (>")  # pytest-timeout's words
    if hangs or not (said := disturbance(test, before)):
        return
    words = test.stash.setdefault(WORDS, [])
    words.append(str(failure))
    robbed = Spent.now().robbery_since(before)
    if is_last_try(test) and len({*words}) > 1 and robbed:
        pytest.skip(f"{INCONCLUSIVE}: {robbed} in the last of its tries")
    raise Disturbed(said) from failure


def is_last_try(test: pytest.Function) -> bool:
    """pytest-rerunfailures notes the number of the try."""
    tries: int = getattr(test, "execution_count", 1)
    return tries > (test.config.getoption("reruns", None) or 0)


def disturbance(test: pytest.Function, before: Spent) -> str | None:
    folder = test.funcargs.get("tmp_path")
    runs = sorted(folder.rglob("trials.jsonl")) if isinstance(folder, Path) else []
    if said := said_by_nodrop(runs):
        return said
    if not is_of_a_lab(test):
        return None
    return Spent.now().disturbance_since(before, alone=is_alone(test))


def said_by_nodrop(runs: Sequence[Path]) -> str | None:
    """The words of the first disturbed trial in these files."""
    for file in runs:
        for line in file.read_text(errors="replace").splitlines():
            try:
                trial = json.loads(line)
                late = BY_THE_MACHINE & set(trial["invalid_reasons"])
                if late or any(other in line for other in OTHERS):
                    return f"trial {trial['run']}: {trial['verdict']}"
            except (ValueError, LookupError, TypeError):
                continue  # the test spoils records on purpose
    return None
