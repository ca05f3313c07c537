"""A watch as a run directory that a report opens, and as OpenMetrics."""

from __future__ import annotations

import csv
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from nodrop.drops.outlets import Metrics, Record, exposition
from nodrop.drops.watching import Watch, written
from nodrop.errors import BadInput
from nodrop.report.story import read_story
from nodrop.report.write import report_json, write_report
from nodrop.results.other_records import WatchedInterval
from tests.unit.drops.test_capture_books import fill, look, port, program, sock


def watch(drops: tuple[int, ...], hidden: str = "") -> Iterator[WatchedInterval]:
    """100 packets an interval; so many of them dropped."""
    watched, lost = Watch(), 0
    for n, more in enumerate((0, *drops)):
        lost += more
        found = watched.look(
            look(
                n,
                sockets=[sock(41, n * 100 - lost, lost, waiting=[fill(9, 1, 13)] * 2)],
                ports=[port((n * 100, n * 100))],
                programs={"7": program('sno"rt')},
                missing=[{"what": hidden, "needs": "root", "why": "no"}] if hidden else [],
            )
        )
        if found is not None:
            yield written(found)


def recorded(folder: Path, intervals: Iterator[WatchedInterval]) -> Path:
    argv = ["nodrop", "drops", "--record", "x"]
    with closing(Record(folder, host={"hostname": "sensor1"}, command=argv)) as record:
        for one in intervals:
            record.add(one)
    return folder


@pytest.mark.parametrize(
    ("drops", "headline", "says"),
    [
        (
            (0, 7, 3, 0), "10 packets lost: socket ring<",
            "10 packets of 400 (2.50 %) lost in 1 burst",
        ),
        (
            (1, 0, 40, 0, 0, 2), "43 packets lost: socket ring<",
            "43 packets of 600 (7.17 %) lost in 3 bursts",
        ),
        (
            (0, 0), "Nothing was lost in 2.000 s.<",
            "Nothing was lost at any place that is visible on sensor1 in 2.000 s",
        ),
    ],
)  # fmt: skip
def test_a_report_opens_a_recorded_watch(
    tmp_path: Path, drops: tuple[int, ...], headline: str, says: str
) -> None:
    folder = recorded(tmp_path / "watch", watch(drops, hidden="what waits"))
    answer = report_json(read_story([folder]))["answer"]
    assert says in answer["sentences"][0]["text"].replace("\u202f", ",")
    (basis,) = answer["rests_on"]
    closed = f"the books closed in {len(drops)} of {len(drops)}"
    assert basis["text"].startswith("sensor1, ") and closed in basis["text"]
    assert any("what waits (needs root" in one["text"] for one in answer["cannot_say"])
    page = write_report(read_story([folder])).read_text()
    assert says.split(" (")[0] in page.replace("\u202f", ",")
    card, _, _ = page.partition("All sentences of the answer")
    assert f'class="verdict">{headline}' in card.replace("\u202f", ",")
    assert 'id="watched"' in page and 'id="cells"' not in page and "<svg" in page
    assert json.loads((folder / "manifest.json").read_text())["finished_utc"]


def test_a_watch_that_was_killed_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "watch", watch((0, 5, 0)))
    with (folder / "drops.jsonl").open("ab") as file:
        file.write(b'{"real_ns": "x"}\n{"real_ns": 9')
    answer = report_json(read_story([folder]))["answer"]
    assert "5 packets" in answer["sentences"][0]["text"]
    assert answer["cannot_say"][0]["text"] == "1 line of drops.jsonl cannot be read"


def samples(text: str) -> dict[str, float]:
    assert text.endswith("# EOF\n")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_an_interval_in_openmetrics() -> None:
    *_, last = watch((4, 0, 6))
    found = samples(exposition(last))
    where = 'place="socket ring",where="sno\\"rt 7 on eth1",counter="tp_drops"'
    assert found[f"nodrop_drops_lost_total{{{where}}}"] == 10
    assert found[f"nodrop_drops_lost_per_second{{{where}}}"] == 6
    named = 'program="sno\\"rt",pid="7",port="eth1"'
    assert found[f'nodrop_drops_arrived_packets{{{named},bound="high"}}'] == 300
    assert found[f"nodrop_drops_closed{{{named}}}"] == 1
    assert not any("oldest" in name for name in found), "not visible is left out, and no 0"
    families = [line for line in exposition(last).splitlines() if line.startswith("# TYPE")]
    assert len(families) == len({*families}), "samples of a family stand together"
    assert exposition(None) == "# EOF\n"


def asked(connection: HTTPConnection, path: str, **headers: str) -> tuple[int, str]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_metrics_on_loopback_for_its_own_name_alone() -> None:
    with closing(Metrics("0")) as metrics:
        metrics.add([*watch((0, 3))][-1])
        address = metrics.address.removeprefix("http://").removesuffix("/metrics")
        assert address.startswith("127.0.0.1:")
        status, text = asked(HTTPConnection(address, timeout=5), "/metrics")
        assert status == 200 and samples(text)
        assert asked(HTTPConnection(address, timeout=5), "/other")[0] == 404
        assert asked(HTTPConnection(address, timeout=5), "/metrics", Host="evil.example")[0] == 403


def test_metrics_on_a_socket_that_is_gone_afterwards(tmp_path: Path) -> None:
    place = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))  # by a watch that was killed
    with closing(Metrics(str(place))) as metrics:
        metrics.add([*watch((0, 3))][-1])
        connection = HTTPConnection("localhost", timeout=5)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(place))
        assert asked(connection, "/metrics")[0] == 200
    assert not place.exists()


@pytest.mark.parametrize("place", ["host:9", "99999", "x.sock", "/no/such/folder/s"])
def test_a_place_that_cannot_be_served_is_refused(place: str) -> None:
    with pytest.raises(BadInput, match=f"--metrics {place}"):
        Metrics(place)


def test_what_is_there_is_not_recorded_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    facts: dict[str, Any] = {"hostname": "sensor1"}
    with pytest.raises(BadInput, match="not an empty folder"):
        Record(tmp_path, host=facts, command=[])


def test_the_files_of_a_report_on_several_watches_have_each_of_them(tmp_path: Path) -> None:
    lost = {"monday": (0, 7, 3), "tuesday": (1, 40, 2)}
    runs = [recorded(tmp_path / name, watch(drops)) for name, drops in lost.items()]
    folder = write_report(read_story(runs), tmp_path / "report").parent

    def only_row(of: str) -> dict[str, str]:
        [row] = csv.DictReader((folder / f"{of}.csv").read_text().splitlines())
        return row

    for name, drops in lost.items():
        assert only_row(f"watched-places-{name}")["lost"] == str(sum(drops))
        assert only_row(f"watched-books-{name}")["dropped_packets"] == str(sum(drops))
        assert (folder / "figures" / f"watched-{name}.svg").is_file()
