"""Renews docs/images from a run directory: the report on a desk, a phone, in the dark and on paper;
or, of a run with several setups, the part that lays them side by side.

python tools/doc-images.py RUNDIR        (needs chromium, pngquant and the extra `browser`)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from nodrop.report.setups import conditions
from nodrop.report.story import read_story
from nodrop.report.write import write_report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SHOTS: dict[str, dict[str, Any]] = {
    "report-desktop": {"width": 1200, "height": 900},
    "report-dark": {"width": 1200, "height": 900, "scheme": "dark", "at": "#ledger"},
    "report-phone": {"width": 390, "height": 844, "scale": 2},
    "report-print": {"width": 1123, "height": 794, "media": "print"},
}
SETUPS_SHOTS: dict[str, dict[str, Any]] = {
    "report-setups": {"width": 1200, "height": 1100, "at": "#cells .fold[open]"},
}


def main(run: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    shots = SETUPS_SHOTS if conditions(read_story([run])) else SHOTS
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        page = write_report(read_story([run]), Path(folder)).as_uri()
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        # --no-sandbox: as root Chromium refuses to start with it; the page is our own.
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, how in shots.items():
            tab = browser.new_page(
                viewport={"width": how["width"], "height": how["height"]},
                color_scheme=how.get("scheme", "light"),
                device_scale_factor=how.get("scale", 1),
                bypass_csp=True,  # for the paper's margin
            )
            tab.goto(page)
            if "media" in how:
                tab.emulate_media(media=how["media"])
                tab.add_style_tag(content="body { padding: 40px; }")  # the paper's margin
            if "at" in how:
                place = tab.locator(how["at"]).first
                place.evaluate("e => { e.open = true; e.scrollIntoView(); }")
            image = IMAGES / f"{name}.png"
            tab.screenshot(path=image)
            tab.close()
            subprocess.run(["pngquant", "--force", "--output", image, "64", image], check=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
