"""One side of a comparison: what a run measured, and on what. A baseline file is a stored one.

schema/baseline.schema.json is made from these models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue, ValidationError

from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.results.model import Count, Model
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.json_text import NotJson, decode_object


class Repeats(Model):
    """One figure of one cell."""

    values: list[float]
    """One per measured trial, or, of a capacity, per round."""
    starts: list[Count]
    """Numbers the start of the SUT that each value is of: values of one start count once."""
    hosts: bool = False
    """These are hosts of a fleet and no starts: several measured the cell."""


class SideCell(Model):
    factors: dict[str, JsonValue]
    label: str
    figures: dict[str, Repeats]
    """Name → what was measured; what was not measured is missing."""
    failed: Count
    """Trials in which the SUT failed: they are in no figure but `failed_pct`."""
    void: Count
    behind: Count = 0
    """Measured trials without loss whose SUT did not keep the pace of the load."""

    def behind_words(self, loss_figure: str) -> str:
        """Why its loss shows nothing, if most trials lost nothing as the rings held what the SUT
        did not serve; empty if it does."""
        loss = self.figures.get(loss_figure)
        if loss is None or 2 * self.behind <= len(loss.values):
            return ""
        return (
            f"did not keep the pace of its load in {self.behind} of "
            f"{count_of(len(loss.values), 'trial')}, and lost nothing as its rings held the rest: "
            "a longer load (load.duration_s) shows what it loses"
        )

    facts: dict[str, list[str]] = Field(default_factory=dict)
    """Facts of what this cell was measured on, beside those of the whole side; for a fleet
    alone."""


class Side(Model):
    format: Literal[1] = 1
    name: str
    identity: str
    """A name that all copies of one run share."""
    facts: dict[str, list[str]]
    """Facts of what the run was measured on: name → all values of the run, sorted."""
    cells: list[SideCell]
    unread: list[str] = Field(default_factory=list)
    """Parts of its run that could not be read, and are in no figure."""

    def to_text(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """BadInput, naming the first field at fault, if it is no baseline."""
        try:
            text = read_file(path)
            decode_object(text, most_bytes=len(text))
            found = cls.model_validate_json(text)
        except FileNotFoundError as error:
            raise BadInput(f"{path}: no such run directory or baseline file") from error
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}") from error
        except NotJson as error:
            raise BadInput(f"{path}: no baseline file: {error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "file"
            raise BadInput(f"{path}: no baseline file: {where}: {first['msg']}") from error
        for cell in found.cells:
            for name, one in cell.figures.items():
                if not one.values or len(one.values) != len(one.starts):
                    raise BadInput(f"{path}: no baseline file: {name}: each value has a start")
        return found
