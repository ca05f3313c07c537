"""The names in a run directory. No other room knows a file name of it.

<name>-<utc>/
    manifest.json  experiment.toml  lab.toml  trials.jsonl  lock  [findings.json  imported.json
    drops.jsonl]
    runs/<run>/    trial.json ledger.json offered.json counters.json samples-<host>.jsonl live.jsonl
                   sut/ [profile.json] [elsewhere.json]
"""

from __future__ import annotations

MANIFEST = "manifest.json"
EXPERIMENT = "experiment.toml"
LAB = "lab.toml"
TRIALS = "trials.jsonl"
RUNS = "runs"
LOCK = "lock"
STORED = "stored.jsonl"
"""In the copy here of what lies in a store: of what, and which files are the same there."""
WRITING = "writing.json"
"""In a store, while a run is written there: by whom."""
TRIAL = "trial.json"
LIVE = "live.jsonl"
DROPS = "drops.jsonl"
"""Intervals that `nodrop drops --record` saw, in a run directory without trials."""
SUT = "sut"
"""The folder of files that a SUT wrote; no report relies on them."""
ELSEWHERE = "elsewhere.json"
"""The file of a trial whose raw files lie on the storage of its lab: which, and where."""
PROFILE = "profile"
"""The profile of a trial with `measure.profile`."""
_SAMPLES = "samples-"
_ROWS = ".jsonl"


def samples_of(host: str) -> str:
    """The rows of one host's sampler."""
    return f"{_SAMPLES}{safe_name(host)}{_ROWS}"


def sampled_host(file: str) -> str | None:
    """The host whose samples a file holds; None if it holds none."""
    if file.startswith(_SAMPLES) and file.endswith(_ROWS):
        return file.removeprefix(_SAMPLES).removesuffix(_ROWS)
    return None


def safe_name(name: str) -> str:
    """A name from an experiment or lab file as one path component that cannot leave its folder."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    return safe.lstrip(".")[:100] or "_"
