"""A test that failed while the machine disturbed one of its trials is done again.

nodrop itself says which trials these are: the sender was late, or others had the CPUs. Such a trial
says nothing about what the test asks, as it says nothing about a SUT. pytest-rerunfailures repeats
the test, a few times at most; a test that fails in an undisturbed run fails at once.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from nodrop.ledger.reasons import Reason

BY_THE_MACHINE = {Reason.SENDER_LATE, Reason.SENDER_BURST, Reason.SENDER_SHORT, Reason.CPU_STOLEN}
OTHERS = ("other programs", "hypervisor")


class Disturbed(Exception):
    """pyproject.toml names it: `--only-rerun`."""


class Disturbances:
    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        try:
            return (yield)
        except Exception as failure:
            folder = pyfuncitem.funcargs.get("tmp_path")
            if isinstance(folder, Path) and (said := disturbance(folder)):
                raise Disturbed(said) from failure
            raise


def disturbance(folder: Path) -> str | None:
    """What nodrop says of the first disturbed trial below this folder."""
    for file in sorted(folder.rglob("trials.jsonl")):
        for line in file.read_text(errors="replace").splitlines():
            try:
                trial = json.loads(line)
                late = BY_THE_MACHINE & set(trial["invalid_reasons"])
                if late or any(other in line for other in OTHERS):
                    return f"trial {trial['run']}: {trial['verdict']}"
            except (ValueError, LookupError, TypeError):
                continue  # the test spoils records on purpose
    return None
