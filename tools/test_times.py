"""Where the time of the last `make test` went: seconds of one worker, by folder of the tests.

Usage: test_times.py FOLDER, which holds alone.xml and beside.xml (pytest --junitxml).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree


def seconds(file: Path) -> tuple[dict[str, float], float]:
    """By folder, and from begin to end."""
    suite = ElementTree.parse(file).getroot()[0]
    spent: dict[str, float] = defaultdict(float)
    for case in suite.iter("testcase"):
        spent[case.attrib["classname"].split(".")[1]] += float(case.attrib["time"])
    return spent, float(suite.attrib["time"])


def main(folder: Path) -> None:
    alone, alone_s = seconds(folder / "alone.xml")
    beside, beside_s = seconds(folder / "beside.xml")
    rooms = sorted({*alone, *beside}, key=lambda room: -alone[room] - beside[room])
    print(f"| | {' | '.join(rooms)} | from begin to end |")
    print("|---" * (len(rooms) + 2) + "|")
    for name, spent, took_s in (
        ("`alone`", alone, alone_s),
        ("all others", beside, beside_s),
    ):
        print(f"| {name} | {' | '.join(f'{spent[room]:.0f}' for room in rooms)} | {took_s:.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
