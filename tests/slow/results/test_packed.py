"""Packed values come back as they were, to the last digit."""

from __future__ import annotations

import random
import struct

from nodrop.results.rundir import pack, unpack
from tests.made.outcome_runs import trial

SEED = 20261124


def test_every_number_comes_back() -> None:
    rng = random.Random(SEED)
    for _ in range(2000):
        (number,) = struct.unpack("<d", rng.getrandbits(62).to_bytes(8, "little"))
        record = trial(
            run="a", cell={"x": number, "n": rng.getrandbits(63)}, repetition=1, index=0,
            valid=True, verdict="§ ▼", sut_cpu_s=number, activation_s=rng.lognormvariate(0, 9),
        )  # fmt: skip
        assert repr(unpack(pack(record))) == repr(record)
