"""How a Suricata ended or stopped, from its status, its log and its stderr."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from nodrop.errors import TrialFailed
from nodrop.setups.seam import Process
from nodrop.suts.suricata import log
from nodrop.untrusted.folder import read_end

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_HINTS: Sequence[tuple[str, str]] = (
    ("Operation not permitted", "capturing needs CAP_NET_RAW in this network namespace"),
    ("No such device", "the capture interface does not exist where Suricata runs"),
    ("Cannot allocate memory", "the ring or the rules do not fit into the memory limit"),
    ("Failed to parse configuration", "see sut.config and sut.overrides"),
)


def died(process: Process, lines: Sequence[log.Line], status: int, *, during: str) -> TrialFailed:
    """Why it ended, in its own words, and what to do about it."""
    how = f"exit status {status}" if status >= 0 else f"signal {_signal_name(-status)}"
    words = "; ".join(_last_words(process, lines))
    hint = next((hint for sign, hint in _HINTS if sign in words), None)
    if cause := process.cause_of_death():
        words, hint = cause, "raise limits.memory, or load fewer rules"
    elif hint is None and status in KILLED:
        hint = "if no one killed it, the kernel did, for lack of memory: see dmesg"
    return TrialFailed(
        f"Suricata ended {during} ({how})" + (f": {words}" if words else ""), hint=hint
    )


def _last_words(process: Process, lines: Sequence[log.Line]) -> Sequence[str]:
    said = log.errors(lines)
    if not said:
        # Before its log is open, and if the loader fails, stderr is all there is.
        said = [
            line
            for line in _tail(process.stderr)
            if "rror" in line or line.startswith("nodrop-node ")
        ]
    return [short(words) for words in said[-3:]]


def stopped() -> TrialFailed:
    return TrialFailed(
        "Suricata stands still (SIGSTOP): its counters cannot be read",
        hint="send SIGCONT before the end of the trial",
    )


def short(words: str) -> str:
    return words if len(words) <= 200 else words[:197] + "..."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _tail(path: Path) -> list[str]:
    return read_end(path, bytes_from_end=4096).decode(errors="replace").splitlines()
