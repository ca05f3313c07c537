"""Nothing of a page is hidden in a real browser: no two words touch, no column is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.report.charts import flow
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.browser.test_page import CHROMIUM, Pages, axe, browser, pages
from tests.depth import depth
from tests.made.outcome_runs import outcome_search, tried

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this host")
__all__ = ("browser", "pages")

CSS = Path(__file__).parents[2] / "src/nodrop/report/templates"
LOST, MERGED, HELD, UNSENT = Class.LOST, Class.MERGED, Class.HELD, Class.UNSENT
FOREIGN, NOT_FOR_US = Class.FOREIGN, Class.NOT_FOR_US
Way = Sequence[tuple[str, int | None, Sequence[tuple[Class, str, int]]]]
"""Hop, what it counts, and the classes on the way to it."""

ENDS = (("sent", 25_000_000, ()), ("tx_nic", 25_000_000, ()))
WAYS: dict[str, Way] = {
    "demo": (
        ("intended", 202_342, ()),
        ("sent", 202_342, ()),
        ("tx_nic", 202_342, ()),
        ("rx_nic", 202_342, ()),
        (
            "socket",
            199_000,
            [(MERGED, "rx_absorbed_fragments", 3_318), (HELD, "rx_held_incomplete_datagrams", 24)],
        ),
        ("decoded", 190_000, [(LOST, "rx_dropped_ring_full", 9_000)]),
    ),
    "docker": (
        ("intended", 9_876_543_210, ()),
        ("sent", 9_876_543_000, [(UNSENT, "tx_unsent_stopped_early", 210)]),
        ("tx_nic", 9_876_543_000, ()),
        ("rx_nic", 9_876_543_000, ()),
        ("socket", 9_800_000_000, [(LOST, "rx_dropped_softnet_backlog", 76_543_000)]),
        ("decoded", 4_000_000_000, [(LOST, "rx_dropped_ring_full", 5_800_000_000)]),
    ),
    "macvtap": (
        ("intended", 25_000_000, ()),
        *ENDS,
        ("rx_nic", None, ()),
        ("macvtap", 24_999_000, [(LOST, "path_lost", 1_000)]),
        ("socket", 24_998_990, [(NOT_FOR_US, "rx_other_destination_address", 10)]),
        ("decoded", 24_998_989, [(LOST, "rx_dropped_ring_full", 1)]),
    ),
    "vm": (
        ("intended", 25_000_000, ()),
        *ENDS,
        ("rx_nic", 25_000_000, ()),
        ("macvtap", 25_000_000, ()),
        ("virtio_ring", 24_000_000, [(LOST, "rx_dropped_macvtap_queue_full", 1_000_000)]),
        ("guest_nic", None, ()),
        ("guest_softnet", None, ()),
        (
            "socket",
            23_000_000,
            [(LOST, "rx_dropped_guest_softnet_backlog", 999_000), (MERGED, "rx_absorbed", 1_000)],
        ),
        ("decoded", 22_000_000, [(LOST, "rx_dropped_ring_full", 1_000_000)]),
    ),
    "four instances": (
        ("intended", 1_000, ()),
        ("sent", 1_000, ()),
        ("tx_nic", 1_000, ()),
        ("rx_nic", 1_000, ()),
        ("split", 990, [(LOST, "rx_dropped_bridge_unknown_address", 10)]),
        (
            "socket",
            700,
            [(LOST, f"rx_dropped_softnet_backlog_of_instance_{n}", 30 * n + 5) for n in range(4)]
            + [(MERGED, "rx_absorbed_fragments", 80), (HELD, "rx_held_incomplete_datagrams", 10)],
        ),
        ("decoded", 300, [(LOST, f"rx_dropped_ring_full_of_{n}", 100) for n in range(4)]),
    ),
    "foreign": (
        ("intended", 7, ()),
        ("sent", 7, ()),
        ("tx_nic", 7, ()),
        ("rx_nic", 9, [(FOREIGN, "path_foreign", 2)]),
        ("socket", 9, ()),
        ("decoded", 1, [(LOST, "w" * 40, 8)]),
    ),
}
TOUCHING = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg.plot')) {
    if (!svg.checkVisibility()) continue;
    const own = svg.closest('.pad').getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')]
      .map(text => [text.textContent, text.getBoundingClientRect()])
      .filter(([, box]) => box.width);
    boxes.forEach(([a, p], i) => {
      if (p.left < own.left - 1 || p.right > own.right + 1 || p.bottom > own.bottom + 1)
        found.push([a, 'outside']);
      for (const [b, q] of boxes.slice(0, i)) {
        const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (wide > -2 && high > 2) found.push([a, b]);
      }
    });
  }
  return found;
}"""


def drawn(way: Way) -> str:
    hops = [Hop(name=name, packets=packets, counter="c") for name, packets, _ in way]
    accounts = [
        Account(into=name, kind=kind, name=account, packets=packets, counter="c")
        for name, _, on_the_way in way
        for kind, account, packets in on_the_way
    ]
    css = "".join((CSS / name).read_text() for name in ("chart.css", "style.css"))
    picture = flow(balance(hops, accounts), "a ledger")
    marks = f"<svg width=0 height=0>{(CSS / 'marks.svg').read_text()}</svg>"
    return f"<!doctype html><style>{css}</style>{marks}<section>{picture}</section>"


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    yield page
    page.close()


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("width", [960, 1300])
def test_no_two_words_of_a_ledger_touch(opened: Any, kind: str, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 900})
    opened.set_content(drawn(WAYS[kind]))
    assert opened.locator("svg text").count() > 10
    assert opened.evaluate(TOUCHING) == []


@pytest.mark.parametrize("kind", ["losses", "instances", depth("setups")])
def test_no_two_words_of_the_page_s_ledgers_touch(opened: Any, pages: Pages, kind: str) -> None:
    opened.goto(pages[kind])
    opened.evaluate(
        "document.querySelectorAll('svg.plot').forEach(s => s.closest('#ledger') || s.remove())"
    )
    assert opened.locator("#ledger svg").count() > 0
    assert opened.evaluate(TOUCHING) == []


SETUPS = (("bare", 61.25), ("docker", 48.5), ("docker-macvtap", 0.75), ("vm", 12.0))


def one_search(out: Path) -> Path:
    loads = [tried(n, [0.0] * 3) for n in (1, 2, 4, 8, 16, 32)]
    loads += [tried(n, [0.004, 0.02, "died"], pps=1686.0) for n in (34, 40, 64)]
    return outcome_search(out, loads)


def search_of_setups(out: Path) -> Path:
    loads = [
        tried(most * part, [loss] * 2, cell={"setup.kind": kind}, pps=1686.0)
        for kind, most in SETUPS
        for part, loss in ((0.5, 0.0), (1.0, 0.0), (1.05, 0.01), (2.0, 0.4))
    ]
    return outcome_search(out, loads)


def search_that_found_nothing(out: Path) -> Path:
    return outcome_search(out, [tried(1, [0.1]), tried(2, [0.1]), tried(4, ["late"] * 3)])


def search_with_a_curve(out: Path) -> Path:
    """A search with void, failed and lone trials as well, in three rounds that began far from the
    answer."""
    loads = [tried(8 * x, [max(0.0, 1 - 1 / x)] * 3) for x in (0.9, 0.98, 1.01, 1.02, 1.04)]
    loads += [tried(8.2, [0.4]), tried(64, ["late"] * 3), tried(512, ["late", "died"])]
    return outcome_search(out, loads)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Path]], str]:
    """The address of a search's page, which is made once."""

    @cache
    def address(made: Callable[[Path], Path]) -> str:
        return write_report(read_story([made(tmp_path_factory.mktemp("search"))])).as_uri()

    return address


@pytest.mark.parametrize(
    ("made", "width"),
    [
        (one_search, 320),
        (search_of_setups, 1300),
        (search_that_found_nothing, 400),
        (search_with_a_curve, 400),
        (search_with_a_curve, 1300),
        depth(one_search, 1300),
        depth(search_of_setups, 400),
        depth(search_that_found_nothing, 1300),
    ],
)
def test_no_two_words_of_a_capacity_report_touch(
    opened: Any, report: Any, made: Callable[[Path], Path], width: int
) -> None:
    trouble: list[str] = []
    opened.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.set_viewport_size({"width": width, "height": 900})
    opened.goto(report(made))
    assert opened.locator("#knee h2, #capacity h2").is_visible()
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    opened.evaluate(
        "document.querySelectorAll('svg.plot').forEach("
        "s => s.closest('#answer, #knee, #capacity') || s.remove())"
    )
    assert opened.evaluate(TOUCHING) == []
    assert trouble == []


@pytest.mark.parametrize(
    ("made", "scheme"),
    [
        (search_of_setups, "light"),
        (search_with_a_curve, "dark"),
        depth(one_search, "light"),
        depth(one_search, "dark"),
        depth(search_of_setups, "dark"),
        depth(search_with_a_curve, "light"),
    ],
)
def test_axe_finds_nothing_in_a_capacity_section(
    opened: Any, report: Any, made: Callable[[Path], Path], scheme: str
) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.goto(report(made))
    opened.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = axe.Axe().run(opened, context="#answer, #knee, #capacity").response["violations"]
    assert [(v["id"], [node["target"] for node in v["nodes"][:3]]) for v in found] == []
    opened.locator("#knee .knee .points, #capacity .points").first.focus()
    opened.keyboard.press("ArrowRight")
    assert "packets/s" in opened.locator(".tip").text_content()


LAST = "document.querySelector('#cells-table thead tr').lastElementChild"
FIRST = "document.querySelector('#cells-table tbody tr').firstElementChild"
SEEN = """e => {
  const box = e.getBoundingClientRect(), frame = e.closest('.scroll').getBoundingClientRect();
  return box.left >= frame.left - 1 && box.right <= frame.right + 2;
}"""


@pytest.mark.parametrize("kind", ["setups", "no_losses", depth("losses")])
def test_the_table_of_cells_fits_a_screen_of_1300(opened: Any, pages: Pages, kind: str) -> None:
    opened.goto(pages[kind])
    assert opened.evaluate(f"({SEEN})({LAST}) && ({SEEN})({FIRST})")
    assert not opened.locator('.tools[data-for="cells-table"] .beyond').is_visible()


@pytest.mark.parametrize("kind", ["sixty_cells", *map(depth, ("losses", "setups", "instances"))])
def test_columns_beyond_the_edge_of_a_phone_are_said_and_reached(
    opened: Any, pages: Pages, kind: str
) -> None:
    opened.set_viewport_size({"width": 400, "height": 800})
    opened.goto(pages[kind])
    button = opened.locator('.tools[data-for="cells-table"] .beyond')
    assert "more columns" in button.text_content()
    assert not opened.evaluate(f"({SEEN})({LAST})")
    for _ in range(20):
        if opened.evaluate(f"({SEEN})({LAST})"):
            break
        button.click()
    assert opened.evaluate(f"({SEEN})({LAST})")
    assert opened.evaluate(f"({SEEN})({FIRST})"), "which cell it is stays in sight"
    # The page's policy refuses what wait_for_function evaluates, unless it is true at once.
    opened.locator('.tools[data-for="cells-table"] .beyond', has_text="←").wait_for()
