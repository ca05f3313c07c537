"""A watch as a run directory that a report opens, and as OpenMetrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nodrop.drops.openmetrics import Metrics, exposition
from nodrop.drops.recording import RecordedWatch, joined
from nodrop.drops.watching import Watch
from nodrop.errors import BadInput
from nodrop.report.story import read_story
from nodrop.report.write import report_json, write_report
from nodrop.results.watched import BlindPort, WatchedForecast, WatchedInterval, WatchedLevel
from tests.unit.drops.test_capture_books import fill, look, port, program, sock

DASHBOARD = Path(__file__).parents[3] / "docs" / "drops-dashboard.json"
LEVEL = WatchedLevel(
    ratio=0.25,
    real_ns=5,
    highest_ratio=0.5,
    highest_real_ns=3,
    forecast=WatchedForecast(
        times=2.1,
        bound="about",
        slots=2058,
        larger_slots=65_536,
        larger_times=2.6,
        spells=3,
        busiest_real_ns=2,
    ),
    withheld=None,
)


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
            yield found.answer


def recorded(folder: Path, intervals: Iterator[WatchedInterval]) -> Path:
    argv = ["nodrop", "drops", "--record", "x"]
    with closing(RecordedWatch(folder, host={"hostname": "sensor1"}, command=argv)) as record:
        for one in intervals:
            record.add(one)
    return folder


@pytest.mark.parametrize(
    ("drops", "headline", "says"),
    [
        (
            (0, 7, 3, 0), "10 packets lost: socket ring<",
            "10 packets of 400 (2.50 %) lost in 1 period",
        ),
        (
            (1, 0, 40, 0, 0, 2), "43 packets lost: socket ring<",
            "43 packets of 600 (7.17 %) lost in 3 periods",
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


def ends_blind() -> Iterator[WatchedInterval]:
    *_, last = watch((0, 0))
    blind = BlindPort(port="eth1", why="down", since_real_ns=10**18)
    yield last.model_copy(update={"blind": [blind]})


def test_a_page_of_a_watch_that_ends_blind(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "watch", ends_blind())
    answer = report_json(read_story([folder]))["answer"]
    assert "eth1: blind since" in answer["sentences"][0]["text"]
    assert "blind since" in write_report(read_story([folder])).read_text()


def test_a_page_draws_the_level_and_has_the_forecast(tmp_path: Path) -> None:
    each = [*watch((0, 0, 0))]
    full = [
        one.model_copy(update={"captures": [one.captures[0].model_copy(update={"level": LEVEL})]})
        for one in each
    ]
    page = write_report(read_story([recorded(tmp_path / "watch", iter(full))])).read_text()
    assert "Fullest ring, at most" in page and "a forecast: about" in page and "2.1" in page


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


def test_programs_are_counted_by_port_and_a_port_without_one_is_zero() -> None:
    *_, last = watch((4,))
    now = BlindPort(port="eth9", why="no_program", since_real_ns=1)
    before = BlindPort(port="eth8", why="no_program", since_real_ns=1, until_real_ns=2)
    other = last.captures[0].model_copy(update={"pid": 8})

    def counted(**changed: object) -> dict[str, float]:
        found = samples(exposition(last.model_copy(update=changed)))
        return {name: value for name, value in found.items() if "drops_captures" in name}

    assert counted(blind=[now, before], captures=[*last.captures, other]) == {
        'nodrop_drops_captures{port="eth1"}': 2,
        'nodrop_drops_captures{port="eth9"}': 0,
    }
    assert counted(captures=[]) == {"nodrop_drops_captures": 0}


def test_the_parser_of_prometheus_takes_it() -> None:
    """... also of a program with two threads of one name; half a file it refuses."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    *_, last = watch((4, 0, 6))
    [capture] = last.captures
    twice = capture.model_copy(update={"threads": capture.threads * 2, "level": LEVEL})
    last = last.model_copy(update={"captures": [twice]})
    text = exposition(last)
    found = {
        sample.name for one in parser.text_string_to_metric_families(text) for sample in one.samples
    }
    assert found == {name.split("{")[0] for name in samples(text)}
    assert {"nodrop_drops_level_ratio", "nodrop_drops_fits_times"} <= found
    with pytest.raises(ValueError, match="EOF"):
        [*parser.text_string_to_metric_families(text.removesuffix("# EOF\n"))]


def test_the_dashboard_asks_for_series_that_are_written() -> None:
    *_, last = watch((4, 0, 6))
    [capture] = last.captures
    full = capture.model_copy(update={"level": LEVEL, "overflow_ms": 5, "oldest_ms": 5})
    written_ones = {
        name.split("{")[0]
        for name in samples(exposition(last.model_copy(update={"captures": [full]})))
    }
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) >= 5
    for expression in asked:
        names = set(re.findall(r"nodrop_drops_\w+", expression))
        assert names and names <= written_ones, expression
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len({*ids}) and dashboard["uid"] and dashboard["schemaVersion"]


def test_a_day_at_one_interval_a_second_is_bounded(tmp_path: Path) -> None:
    """... with the totals and the highest level of all of it."""
    [interval] = watch((3,))
    [capture] = interval.captures
    argv, bound = ["nodrop"], 200_000
    most, peak_s = 0, 61_234
    with closing(RecordedWatch(tmp_path / "d", host={}, command=argv, most_bytes=bound)) as record:
        file = tmp_path / "d" / "drops.jsonl"
        for second in range(0, 86_400, 40):
            ratio = 0.9 if second <= peak_s < second + 40 else 0.1
            level = LEVEL.model_copy(update={"ratio": ratio, "real_ns": second})
            one = capture.model_copy(update={"level": level, "dropped_now_packets": 2})
            record.add(
                interval.model_copy(
                    update={"interval_s": 40.0, "captures": [one], "real_ns": (second + 40) * 10**9}
                )
            )
            most = max(most, file.stat().st_size)
    assert most < bound + 20_000
    lines = [WatchedInterval.model_validate_json(line) for line in file.read_bytes().splitlines()]
    assert sum(one.interval_s for one in lines) == 86_400
    assert sum(one.captures[0].dropped_now_packets or 0 for one in lines) == 2 * 86_400 // 40
    highest = [one.captures[0].level for one in lines]
    peaks = [level.real_ns for level in highest if level and level.ratio == 0.9]
    assert peaks == [peak_s // 40 * 40], "no peak is lost, and it is where it was"
    assert lines[-1].real_ns == 86_400 * 10**9 and len(lines) < 86_400 / 40


def test_intervals_that_are_joined_keep_the_worst_rate() -> None:
    each = [*watch((4, 0, 6, 1))]
    found = joined(each)
    assert [place.rate_pps for place in found.places] == [6.0]
    assert found.places[0].total == 11 and found.captures[0].dropped_now_packets == 11


def test_metrics_in_a_file_that_is_always_whole(tmp_path: Path) -> None:
    place = tmp_path / "drops.prom"
    with closing(Metrics(place)) as metrics:
        assert place.read_text() == "# EOF\n"
        for one in watch((0, 3)):
            metrics.add(one)
            assert place.read_text() == exposition(one)
    assert [path.name for path in tmp_path.iterdir()] == ["drops.prom"]


def test_a_file_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadInput, match="--metrics /no/such/folder/s"):
        Metrics(Path("/no/such/folder/s"))


def test_what_is_there_is_not_recorded_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    facts: dict[str, Any] = {"hostname": "sensor1"}
    with pytest.raises(BadInput, match="not an empty folder"):
        RecordedWatch(tmp_path, host=facts, command=[])


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
