"""The report's page in a real browser: no error, no loss of content, reachable by keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.depth import depth
from tests.made.rundirs import DEMO, INSTANCES, MIXED, Fake, Trouble, damage, make_run
from tests.real_inputs import made_once

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this host")

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e' + "x" * 10_000
SIXTY = tuple(
    {"setup.kind": setup, "sut.threads": threads, "load.multiplier": n}
    for setup in ("bare", "docker", "docker-macvtap", "vm")
    for threads in (1, 2, 4)
    for n in (1, 2, 4, 8, 16)
)
KINDS = {
    "losses": DEMO,
    "no_losses": Fake(capacity_pps=1e9),
    "invalid_and_damaged": MIXED,
    "all_invalid": Fake(trouble={i: Trouble(late=True) for i in range(18)}),
    "one_cell": Fake(cells=({},), repetitions=1),
    "setups": Fake(
        cells=tuple(
            {"setup.kind": setup, "load.multiplier": n}
            for setup in ("bare", "docker", "docker-macvtap", "vm")
            for n in (1, 4)
        ),
        repetitions=4,
    ),
    "few_setups": Fake(
        cells=tuple({"setup.kind": setup} for setup in ("bare", "vm")), repetitions=3
    ),
    "instances": INSTANCES,
    "sixty_cells": Fake(cells=SIXTY, repetitions=2, samples=False),
    "hostile": Fake(
        cells=tuple({"setup.kind": kind, "sut.rules": HOSTILE} for kind in (HOSTILE, "vm")),
        repetitions=4,
        question=HOSTILE,
        manifest={HOSTILE[:200]: HOSTILE, "sut": {"name": HOSTILE}, "name": HOSTILE},
    ),
}
COMPARED = {"setups", "few_setups", "instances", "sixty_cells", "hostile"}
"""Kinds with several setups."""
SHEET_PX = 980
"""Letter, landscape, between margins of 10 mm: A4 is wider."""
SECTIONS = ("answer", "cells", "ledger", "time", "trials", "trust", "manifest")


class Pages(dict[str, str]):
    """Kind → address of its page, which is made when it is asked for."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._folders = folders

    def __missing__(self, kind: str) -> str:
        with made_once(self._folders, f"pages/{kind}") as (out, is_made):
            if not is_made:
                run = make_run(out, KINDS[kind])
                if kind == "invalid_and_damaged":
                    damage(run)
                write_report(read_story([run]), out / "report")
        self[kind] = (out / "report" / "index.html").as_uri()
        return self[kind]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # --no-sandbox: as root Chromium refuses to start with it; the pages are our own.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which any console error, script error, dialog or request fails the test."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    trouble: list[str] = []
    opened.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    opened.on(
        "request",
        lambda r: trouble.append(r.url) if not r.url.startswith("file:") else None,
    )
    yield opened
    opened.close()
    assert trouble == []


@pytest.mark.parametrize("kind", [depth(k) if k == "few_setups" else k for k in KINDS])
def test_every_section_stands_and_nothing_fails(page: Any, pages: Pages, kind: str) -> None:
    page.goto(pages[kind])
    for section in (*SECTIONS, *(["setups"] if kind in COMPARED else [])):
        assert page.locator(f"section#{section} h1, section#{section} h2").first.is_visible()
    assert page.locator(".sentence").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        ("one_cell", "dark"),
        ("few_setups", "light"),  # of all setups it takes 20 s of CPU time
        depth("setups", "light"),
        depth("invalid_and_damaged", "dark"),
        depth("losses", "dark"),
        depth("losses", "light"),
        depth("invalid_and_damaged", "light"),
        depth("hostile", "dark"),
        depth("hostile", "light"),
        depth("setups", "dark"),
    ],
)
def test_axe_finds_nothing_serious(page: Any, pages: Pages, kind: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(pages[kind])
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = axe.Axe().run(page).response["violations"]
    serious = [
        (v["id"], [node["target"] for node in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


@pytest.mark.parametrize("kind", ["sixty_cells", "hostile", depth("losses"), depth("setups")])
def test_a_phone_needs_no_sideways_scrolling_of_the_page(
    browser: Any, pages: Pages, kind: str
) -> None:
    phone = browser.new_page(viewport={"width": 360, "height": 740})
    phone.goto(pages[kind])
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    phone.close()


@pytest.mark.parametrize("kind", ["losses", depth("setups")])
def test_the_keyboard_reaches_everything(page: Any, pages: Pages, kind: str) -> None:
    page.goto(pages[kind])
    wanted = page.evaluate(
        """() => [...document.querySelectorAll('a, button, input, select, summary, [tabindex="0"]')]
            .filter(e => e.checkVisibility()).length"""
    )
    reached = 0
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached += 1
    assert reached == wanted


def test_focus_tells_the_counter_of_a_branch(page: Any, pages: Pages) -> None:
    page.goto(pages["losses"])
    page.locator("#ledger .cell > details.trial > .chart .points").last.focus()
    said = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        said.append(page.locator(".tip").text_content())
    (lost,) = {words for words in said if words.startswith("rx_dropped_ring_full")}
    assert "stats.capture.kernel_drops" in lost
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()


def test_focus_tells_how_the_runs_of_a_setup_scatter(page: Any, pages: Pages) -> None:
    page.goto(pages["setups"])
    page.locator("#cells .chart.panels .points").last.focus()
    page.keyboard.press("End")
    said = page.locator(".tip").text_content()
    assert said.startswith("Activation of vm · tcg (emulated) · ")
    assert " s, 4 runs between −" in said and "is not known from fewer than" in said


def test_a_link_opens_its_trial(page: Any, pages: Pages) -> None:
    page.goto(pages["losses"])
    run = page.locator(".others details.trial").first.get_attribute("id")
    page.goto(f"{pages['losses']}#{run}")
    page.reload()
    assert page.locator(f'[id="{run}"] .sender').is_visible()


def test_tables_sort_filter_and_know_numbers_from_words(page: Any, pages: Pages) -> None:
    page.goto(pages["losses"])
    head = page.locator("#trials-table th button", has_text="Lost").first
    column = (
        "[...document.querySelectorAll('#trials-table tbody tr')].map(r => +r.cells[9].dataset.v)"
    )
    names = "[...document.querySelectorAll('#trials-table th')].map(h => h.textContent)"
    assert page.evaluate(names)[9] == "Lost"
    head.click()
    assert page.evaluate(column) == sorted(page.evaluate(column))
    head.click()
    assert page.evaluate(column) == sorted(page.evaluate(column), reverse=True)
    page.locator('.tools[data-for="trials-table"] input').fill("8x r03")
    assert page.locator("#trials-table tbody tr:visible").count() == 1


def test_another_base_changes_the_differences(page: Any, pages: Pages) -> None:
    page.goto(pages["losses"])
    rows = page.locator("#differences tbody tr")
    assert rows.nth(0).locator("td").first.text_content() == "base"
    page.locator("#base").select_option("2")
    assert rows.nth(2).locator("td").first.text_content() == "base"
    assert rows.nth(0).locator("td").first.text_content().startswith("−")


def test_the_theme_button_turns_the_lights(page: Any, pages: Pages) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(pages["losses"])
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("kind", ["losses", depth("setups")])
def test_it_prints(page: Any, pages: Pages, tmp_path: Path, kind: str) -> None:
    page.goto(pages[kind])
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


@pytest.mark.parametrize("kind", ["sixty_cells", depth("losses"), depth("setups")])
def test_a_printed_table_has_its_header_and_its_last_column(
    browser: Any, pages: Pages, kind: str
) -> None:
    """The header's words are buttons, which sort; with the other buttons they were not printed. A
    head that holds a button with a box is not repeated on the next sheet."""
    page = browser.new_page(viewport={"width": SHEET_PX, "height": 1000})
    page.goto(pages[kind])
    page.wait_for_selector("#trials-table th button")
    page.emulate_media(media="print")
    heads = page.evaluate(
        """[...document.querySelectorAll('thead th')].filter((e) => e.checkVisibility()).map((th) =>
           {
             const words = document.createRange(), button = th.querySelector('button');
             words.selectNodeContents(button ?? th);
             return [words.getBoundingClientRect().height, th.getBoundingClientRect().right,
                     button ? getComputedStyle(button).display : 'contents'];
           })"""
    )
    assert len(heads) > 20
    assert all(height > 0 for height, _, _ in heads)
    assert {display for _, _, display in heads} == {"contents"}
    assert max(right for _, right, _ in heads) <= SHEET_PX + 1
    assert not page.locator("button.copy").first.is_visible()
    page.close()
