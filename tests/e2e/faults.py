"""Faults put into a run that goes on, and how its parts are found from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.measure.plan import PlannedTrial
from nodrop.measure.progress import Silent

INJECTOR = Path(__file__).with_name("drop_by_xdp.py")


class Inject(Silent):
    """Runs a fault as a trial's step begins, and ends it when the run is over."""

    def __init__(self, step: str, fault: Callable[[], None]) -> None:
        self._step, self._fault = step, fault

    def trial_started(self, trial: PlannedTrial) -> None:
        pass

    def phase(self, name: str) -> None:
        if name == self._step:
            self._fault()


def label() -> str:
    """Of the run that goes on: its journal is the only one in this test's state folder."""
    (journal,) = (Path(os.environ["XDG_STATE_HOME"]) / "nodrop" / "undo").glob("*.jsonl")
    return journal.stem


def namespace(end: str) -> str:
    return f"nodrop-{label()}-{end}"


def labelled(program: str) -> list[int]:
    """PIDs of the run's own processes with this program name."""
    mark = f"NODROP_LAB={label()}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if mark in environment and name.startswith(program):
            found.append(int(folder.name))
    return found


@contextmanager
def xdp_drops(one_in: int, mode: str, *, where: str = "rcv") -> Iterator[Callable[[], None]]:
    processes: list[subprocess.Popen[str]] = []

    def attach() -> None:
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace(where), sys.executable, str(INJECTOR), "ndrx0",
             str(one_in), mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"

    try:
        yield attach
    finally:
        for process in processes:
            process.communicate(timeout=10)


def nic_gone_once() -> Callable[[], None]:
    """Deletes the sender's NIC, and with it the receiver's; later trials keep theirs."""
    gone: list[str] = []

    def delete() -> None:
        if not gone:
            gone.append("ndtx0")
            argv = ["ip", "netns", "exec", namespace("snd"), "ip", "link", "del", "ndtx0"]
            subprocess.run(argv, check=True, timeout=10)

    return delete
