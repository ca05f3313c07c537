"""JSON Schemas of the files people write: `python -m nodrop.schemas schema` writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from nodrop.config.experiment import ExperimentFile
from nodrop.config.fleet_file import FleetFile
from nodrop.labs.netns import NetnsFile
from nodrop.labs.ssh import SshFile


def schemas() -> dict[str, dict[str, Any]]:
    """File name in schema/ → schema (draft 2020-12)."""
    return {
        "experiment.schema.json": _kinds_by_matrix(_schema(ExperimentFile, "experiment")),
        "fleet.schema.json": _schema(FleetFile, "fleet"),
        "lab.schema.json": _lab(),
    }


def _lab() -> dict[str, Any]:
    """By its kind."""
    kinds: TypeAdapter[Any] = TypeAdapter(
        Annotated[NetnsFile | SshFile, Field(discriminator="kind")]
    )
    return _titled(kinds.json_schema(), "lab")


def _kinds_by_matrix(schema: dict[str, Any]) -> dict[str, Any]:
    """A kind that the matrix varies need not stand in its table, nor the table in the file."""
    del schema["$defs"]["PluginTable"]["required"]
    schema["required"] = [name for name in schema["required"] if name not in ("sut", "load")]
    schema["allOf"] = [
        {
            "anyOf": [
                _having("matrix", {"required": [f"{name}.kind"]}),
                _having("matrix", _having(name, {"required": ["kind"]})),
                _having(name, {"required": ["kind"]}),
            ]
        }
        for name in ("sut", "load")
    ]
    return schema


def _having(name: str, what: dict[str, Any]) -> dict[str, Any]:
    return {"required": [name], "properties": {name: what}}


def _schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    return _titled(model.model_json_schema(), name)


def _titled(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:nodrop:{name}:1",
        **schema,
        "title": f"nodrop {name} file",
    }


def _write(folder: Path) -> None:
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
