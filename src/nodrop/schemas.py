"""JSON Schemas of the files people write: `python -m nodrop.schemas schema` writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nodrop.config.experiment import ExperimentFile
from nodrop.labs.netns import NetnsFile


def schemas() -> dict[str, dict[str, Any]]:
    """File name in schema/ → schema (draft 2020-12)."""
    return {
        "experiment.schema.json": _schema(ExperimentFile, "experiment"),
        "lab.schema.json": _schema(NetnsFile, "lab"),
    }


def _schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:nodrop:{name}:1",
        **model.model_json_schema(),
        "title": f"nodrop {name} file",
    }


def _write(folder: Path) -> None:
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
