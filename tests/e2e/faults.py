"""Faults put into a run that goes on: those that `nodrop calibrate` uses, and the tests' own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from nodrop.calibrate.faults import Inject, label, labelled, namespace, xdp_drops

__all__ = ("Inject", "label", "labelled", "namespace", "nic_gone_once", "xdp_drops")


def nic_gone_once() -> Callable[[], None]:
    """Deletes the sender's NIC, and with it the receiver's; later trials keep theirs."""
    gone: list[str] = []

    def delete() -> None:
        if not gone:
            gone.append("ndtx0")
            argv = ["ip", "netns", "exec", namespace("snd"), "ip", "link", "del", "ndtx0"]
            subprocess.run(argv, check=True, timeout=10)

    return delete
