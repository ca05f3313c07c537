"""What "sent minus decoded" says of the trials of a search, beside what their closed books say.

python tools/naive_loss.py DIR…: prints the table of docs/methodology.md from run directories, and
the highest load that each kind of loss calls carried. Void trials are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

GOALS = (0.0, 0.005)


def rows(lines: Iterable[str]) -> Iterator[tuple[float, int, int, int, int]]:
    """Load; packets sent, decoded, merged or held, and lost. A ramp is no load."""
    for record in map(json.loads, lines):
        searched, body = record.get("searched"), record.get("body") or {}
        if not searched or searched.get("ramp") or record["outcome"] != "measured":
            continue
        if body.get("decoded_packets") is None or body.get("lost_packets") is None:
            continue
        sent = record["offered"]["sent"]
        yield (
            searched["value"],
            sent,
            body["decoded_packets"],
            body["merged_packets"] or 0,
            body["lost_packets"],
        )


def carried(loss: Mapping[float, list[float]], goal: float) -> float | None:
    """The highest load below the first of which some trial lost more."""
    best = None
    for load in sorted(loss):
        if max(loss[load]) > goal:
            break
        best = load
    return best


def main() -> None:
    naive: dict[float, list[float]] = {}
    books: dict[float, list[float]] = {}
    print("| load | sent | decoded | merged, held | lost | sent − decoded | loss |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for folder in sys.argv[1:]:
        with (Path(folder) / "trials.jsonl").open() as lines:
            for load, sent, decoded, merged, lost in sorted(rows(lines)):
                naive.setdefault(load, []).append((sent - decoded) / sent)
                books.setdefault(load, []).append(lost / sent)
                counts = " | ".join(f"{n:,}" for n in (sent, decoded, merged, lost))
                shares = f"{naive[load][-1]:.3%} | {books[load][-1]:.3%}"
                print(f"| {load:,.0f} | {counts} | {shares} |")
    for goal in GOALS:
        said: dict[str, Any] = {"naive": carried(naive, goal), "books": carried(books, goal)}
        print(f"at most {goal:.1%} lost: {said}")


if __name__ == "__main__":
    main()
