"""The check of a program file, where the program itself takes packets out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.calibrate.program import PACKETS, _answer
from nodrop.errors import LabProblem


class _Job:
    def __init__(self, spec: dict[str, Any]) -> None:
        assert spec["job"] == "replay"

    def start(self) -> None:
        pass

    def result(self, *, timeout_s: float) -> dict[str, int]:
        return {"sent_packets": PACKETS}

    def close(self) -> None:
        pass


@pytest.mark.parametrize("arrived", [0, PACKETS // 2])
def test_a_filter_of_the_programs_own_is_named_where_packets_do_not_come(arrived: int) -> None:
    """Seen of `tcp port 80` and of `greater 900`: "5,000 packets were sent, and 0 came"."""
    seen: Any = SimpleNamespace(arrived=arrived, dropped=0, sockets=())
    running: Any = SimpleNamespace(sockets=SimpleNamespace(look=lambda: seen))
    link: Any = SimpleNamespace(tx=SimpleNamespace(name="tx", host=SimpleNamespace(job=_Job)))
    with pytest.raises(LabProblem, match=f"and {arrived:,} came to the sockets") as error:
        _answer(running, link, Path("known.pcap"), stopped=False)
    assert error.value.hint is not None
    assert "UDP" in error.value.hint and "port 9" in error.value.hint
    assert "filter of its own" in error.value.hint
