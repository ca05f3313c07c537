"""Limits that this host cannot keep, found before a trial believes in them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nodrop.config.units import parse_cpus
from nodrop.setups.seam import Limits


def cpu_problems(limits: Limits) -> Sequence[str]:
    if limits.cpus is None:
        return []
    here = os.sched_getaffinity(0)
    missing = [cpu for cpu in parse_cpus(limits.cpus) if cpu not in here]
    if not missing:
        return []
    names = ", ".join(map(str, missing))
    return [f'limits.cpus = "{limits.cpus}": this host has no CPU {names}']


def out_of_memory_words(memory_bytes: int | None) -> str:
    limit = "" if memory_bytes is None else f" (limits.memory = {memory_bytes / (1 << 20):g} MiB)"
    return f"the kernel killed it for lack of memory{limit}"
