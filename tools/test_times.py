"""Where the time of the last `make test` went: seconds of one worker, by folder of the tests.

Usage: test_times.py FOLDER, which holds alone.xml, labs.xml and unit.xml (pytest --junitxml).
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
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
    parts = {name: seconds(folder / f"{name}.xml") for name in ("alone", "labs", "unit")}
    total: Counter[str] = Counter()
    for spent, _ in parts.values():
        total.update(spent)
    rooms = [room for room, _ in total.most_common()]
    print(f"| | {' | '.join(rooms)} | from begin to end |")
    print("|---" * (len(rooms) + 2) + "|")
    for name, (spent, took_s) in parts.items():
        print(f"| {name} | {' | '.join(f'{spent[room]:.0f}' for room in rooms)} | {took_s:.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
