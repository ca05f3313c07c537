"""The page of `nodrop watch --serve` in a real browser, while a run goes on and when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.results.writer import RunWriter
from nodrop.watch.follow import RunFollower
from nodrop.watch.serve import ServedPage, serve_page
from tests.browser.test_page import CHROMIUM, axe, browser
from tests.depth import depth
from tests.made.outcome_runs import trial

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this host")
__all__ = ("browser",)

HOSTILE = '<img src=x onerror=alert(1)>"><script>alert(1)</script>\u202e'
ORDER = ["0001-4x-r01", "0002-1x-r01", "0003-4x-r02"]


@pytest.fixture
def to(tmp_path: Path) -> Iterator[RunWriter]:
    manifest = {"question": f"How much? {HOSTILE}", "order": ORDER}
    with RunWriter.create(
        tmp_path, "demo", experiment="", lab="", plan_sha256="p", manifest=manifest
    ) as found:
        finish(found, ORDER[0], lost_packets=3, offered_packets=9, loss_ratio=0.3)
        folder = found.trial(ORDER[1])
        folder.append_live({"mono_ns": time.monotonic_ns(), "phase": "offer"})
        for n in range(1, 3):
            folder.append_live(reading(n))
        yield found


def finish(to: RunWriter, run: str, **fields: Any) -> None:
    given = {"cell": {}, "repetition": 1, "index": 1, "run": run, "valid": True, "verdict": "x"}
    to.trial(run)
    to.finish(trial(**given | fields), {"timings_s": {"offer": 4.0}})


def reading(n: int) -> dict[str, Any]:
    return {
        "mono_ns": n,
        "phase": "offer",
        "offering_s": 0.5 * n,
        "intended_s": 4.0,
        "intended_packets": 99_000,
        "sent_packets": 12_000 * n,
        "sent_pps": 24_000.0,
        "captured_pps": 23_000.0,
        "captured_packets": 11_500 * n,
        "dropped_packets": 70 * n,
        "dropped_pps": 140.0,
        "busiest_thread": {"name": HOSTILE, "cpu_ratio": 0.98},
    }


@pytest.fixture
def served(to: RunWriter) -> Iterator[ServedPage]:
    with serve_page(RunFollower.of(to.path)) as found:
        looking = threading.Thread(target=found.until_over)
        looking.start()
        yield found
        to.close()  # the lock is given back: the run is over
        looking.join(20)
        assert not looking.is_alive()


@pytest.fixture
def page(browser: Any, served: ServedPage) -> Iterator[Any]:
    trouble: list[str] = []
    opened = browser.new_page(viewport={"width": 900, "height": 1000})
    opened.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    opened.on(
        "request",
        lambda r: None if r.url.startswith(served.address) else trouble.append(r.url),
    )
    opened.goto(served.address)
    yield opened
    opened.close()
    assert trouble == []


def wait_for(page: Any, place: str, words: str) -> None:
    page.locator(place, has_text=words).wait_for(timeout=60_000)


def test_it_shows_the_trial_under_way_and_follows_it(page: Any, to: RunWriter) -> None:
    wait_for(page, "#done", "1 of 3 trials")
    wait_for(page, "#trial", ORDER[1])
    wait_for(page, "#phase", "offer, 1.0 of 4.0 s")
    wait_for(page, "#sent", "24,000/s")
    wait_for(page, "#dropped", "140/s")
    assert not page.locator("#next").is_visible()
    wait_for(page, "#busiest", "98 %")
    assert "<img src=x" in page.locator("#busiest").text_content()
    assert page.locator("img, main script").count() == 0
    assert not page.locator("#rates").is_visible()  # one reading makes no line
    to.trial(ORDER[1]).append_live(reading(3))
    page.locator("#rates").wait_for(timeout=60_000)
    colour = "e => getComputedStyle(e).color"
    shown = "e => { e.classList.remove('none'); return getComputedStyle(e).color; }"
    blue = page.locator("#carried").evaluate(shown)
    assert page.locator("#offered-line").evaluate(colour) != blue  # which means carried
    finish(to, ORDER[1], valid=False, invalid_reasons=["sender_late"], verdict=HOSTILE)
    wait_for(page, "#done", "2 of 3 trials")
    wait_for(page, "#marks", "● 0 without loss · ▼ 1 with loss · ✗ 0 failed · ◇ 1 void")
    assert page.locator("#ended tr").first.get_attribute("class") == "m-void"


def test_it_tells_the_end(page: Any, to: RunWriter) -> None:
    for run in ORDER[1:]:
        finish(to, run, offered_packets=9, lost_packets=0, loss_ratio=0.0)
    to.update_manifest({"finished_utc": "2026-11-21T22:00:00+00:00"})
    wait_for(page, "#state", "finished")
    assert page.locator("#ended tr").count() == 3
    assert page.title() == "3 of 3 trials · demo · nodrop"
    wait_for(page, "#next-step", f"nodrop report {to.path}")
    assert not page.locator("#now").is_visible()


@pytest.mark.parametrize("scheme", ["light", depth("dark")])
def test_axe_finds_nothing_serious_and_a_phone_is_wide_enough(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    wait_for(page, "#sent", "24,000/s")
    found = axe.Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
