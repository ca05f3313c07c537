"""The keys of [setup] that every kind has, so that no setup has to know of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nodrop.config.options import CpuList, Options, YesNo, check

MOST_INSTANCES = 64
MOST_QUEUES = 64


class SharedSetup(Options):
    instances: Annotated[int, Field(ge=1, le=MOST_INSTANCES)] = 1
    """So many of the SUT share the packets."""
    splitter: Literal["nft", "copy", "trace", "bridge"] = "nft"
    """What shares them, among several of these or of `sut.ports`."""
    bridge_netfilter: YesNo = True
    """Of a bridge: it hands frames to iptables."""
    queues: Annotated[int, Field(ge=1, le=MOST_QUEUES)] = 1
    """Of each port that the lab makes."""
    rps_cpus: CpuList | None = None
    """The kernel's receive half of the port runs there; by default on the sender's CPU, as a veth
    has it."""


def shared_setup(setup: dict[str, Any]) -> SharedSetup:
    """Taken out of the table, of which the rest is its kind's."""
    given = {name: setup.pop(name) for name in SharedSetup.model_fields if name in setup}
    return check(SharedSetup, given, table="setup", base=Path())
