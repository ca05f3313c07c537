"""Settings that several receivers cannot share are refused; who gets which trace is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodrop.config.search import Search
from nodrop.errors import BadInput
from nodrop.measure.cells import Cell, must_share, port_traces_words
from nodrop.testbed.labs.split import Splitter
from nodrop.testbed.setups.api import Limits, Setup

TWO = {"trace": ["a.pcap", "b.pcap"]}


def share(
    load: dict[str, Any], splitter: Any = "nft", *, by: str = "", several: bool = True, **shape: int
) -> None:
    cell = Cell(
        factors={}, setup={}, sut={}, load=load, limits=Limits(), splitter=Splitter(kind=splitter),
        **cast(Any, shape),
    )  # fmt: skip
    setup = cast(Setup, SimpleNamespace(name="oci", several_ports=several, alone=""))
    searched = cast(Search, SimpleNamespace(by=by)) if by else None
    must_share(cell, setup, searched=searched)


@pytest.mark.parametrize(
    ("load", "shape"),
    [
        (TWO, {"splitter": "trace", "ports": 2}),
        ({"trace": "a.pcap"}, {"ports": 4}),
        ({"trace": "a.pcap"}, {"splitter": "copy", "instances": 2}),
        (
            {"trace": "a.pcap", "multiplier": 2},
            {"splitter": "trace", "instances": 2},
        ),
        ({"trace": "a.pcap"}, {"splitter": "trace", "ports": 2, "by": "multiplier"}),
    ],
)
def test_what_can_be(load: dict[str, Any], shape: dict[str, Any]) -> None:
    share(load, **shape)


@pytest.mark.parametrize(
    ("load", "shape", "words"),
    [
        (TWO, {"splitter": "trace", "ports": 3}, "2 for sut.ports = 3; set sut.p"),
        (TWO, {"splitter": "trace"}, "2 for sut.ports = 1; set sut.ports = 2"),
        (TWO, {"splitter": "trace", "instances": 2}, "2 for sut.ports = 1"),
        (TWO, {"ports": 2}, '"nft" shares them otherwise; set setup.splitter ='),
        (TWO, {"splitter": "copy", "ports": 2}, '"copy" shares them otherwise'),
        (TWO, {"splitter": "bridge", "ports": 2}, "for it leads to instances"),
        (
            {"trace": "a.pcap"},
            {"splitter": "trace", "ports": 2},
            "set load.multiplier = 2 or more, or load.trace to a list",
        ),
        ({"trace": "a.pcap"}, {"ports": 2, "several": False}, 'kind = "oci", whi'),
        ({"trace": "a.pcap"}, {"ports": 2, "instances": 3}, "instances = 3, each"),
    ],
)
def test_what_cannot_be(load: dict[str, Any], shape: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        share(load, **shape)
    assert words in refused.value.message and "\n" not in refused.value.message


def test_who_gets_which_trace() -> None:
    one: dict[str, Any] = {"trace": "a.pcap"}
    assert port_traces_words([one, one]) == ""
    other = {"trace": ["x/b.pcap", "a.pcap"]}
    said = port_traces_words([one, TWO, other, TWO])
    assert said.endswith(": port 1 a.pcap, port 2 b.pcap; or port 1 b.pcap, port 2 a.pcap")
