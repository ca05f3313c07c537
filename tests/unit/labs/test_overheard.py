"""The check's own frames among those that other ports heard."""

from __future__ import annotations

from typing import Any

from nodrop.testbed.labs.cable import CableEnd, Overhearing


class Job:
    def __init__(self, interfaces: list[str], said: dict[str, Any]) -> None:
        self.ready = {"interfaces": interfaces}
        self._said = said

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def result(self, *, timeout_s: float) -> dict[str, Any]:
        return self._said


class Host:
    def __init__(self, name: str, *heard: tuple[str, str, int], lost: int = 0) -> None:
        self.name = name
        keys = ("interface", "source", "packets")
        rows = [dict(zip(keys, one, strict=True)) for one in heard]
        self._said = {"heard": rows, "lost_packets": lost}

    def job(self, spec: dict[str, Any]) -> Job:
        return Job([name for name in spec["interfaces"] if name != "gone"], self._said)


TX, RX, OTHERS = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"


def ends(sender: Any, receiver: Any) -> tuple[CableEnd, CableEnd]:
    others = ["gone", *(f"eth{number}" for number in range(1, 7))]
    return (
        CableEnd(host=sender, port="a0", mac=TX, mtu=1500, others=["gone"]),
        CableEnd(host=receiver, port="b0", mac=RX.upper(), mtu=1500, others=others),
    )


def test_what_came_at_the_other_end_or_from_others_is_no_finding() -> None:
    tx, rx = ends(Host("a", ("a0", RX, 32)), Host("b", ("b0", TX, 32), ("eth1", OTHERS, 7)))
    with Overhearing(tx, rx) as overhearing:
        overhearing.end()
        assert not [*overhearing.of(tx), *overhearing.of(rx)]
        assert not overhearing.lost()
        assert (overhearing.arrived(tx), overhearing.arrived(rx)) == (32, 32)
        assert overhearing.words() == "none of a; eth1, eth2, eth3, eth4 and 2 more of b"


def test_what_came_elsewhere_or_back_is_one() -> None:
    tx, rx = ends(Host("a", ("a0", TX, 31)), Host("b", ("eth3", TX, 9), ("eth3", RX, 5), lost=1))
    with Overhearing(tx, rx) as overhearing:
        overhearing.end()
        assert [one.words for one in overhearing.of(tx)] == ["31 to a0 of a", "9 to eth3 of b"]
        assert [one.words for one in overhearing.of(rx)] == ["5 to eth3 of b"]
        assert overhearing.lost()
        assert (overhearing.arrived(tx), overhearing.arrived(rx)) == (0, 0)
