"""Renews docs/images/terminal-run.svg from the screen of a terminal, colours and all.

tmux capture-pane -epS - | python tools/doc-terminal.py 'nodrop capacity …'
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "terminal-run.svg"
COLUMNS = 100


def main(command: str, printed: str) -> None:
    out = Console(record=True, width=COLUMNS, file=io.StringIO())
    out.print(Text(f"$ {command}", style="bold"))
    out.print(Text.from_ansi(printed.rstrip()))
    found = out.export_svg(title="nodrop")
    # The picture needs nothing from elsewhere: its fonts are the reader's own.
    IMAGE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", found, flags=re.DOTALL))


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.read())
