"""Words and printed figures of the studies, from words.toml."""

from __future__ import annotations

import tomllib
from importlib.resources import files

WORDS = tomllib.loads(files(__package__).joinpath("words.toml").read_text())
NOTES = WORDS["notes"]
"""Section → paragraph above its tables, as HTML."""
