"""JSON Schemas of what people and nodrop write: `python -m tools.schemas schema` renews them."""

from __future__ import annotations

import ast
import json
import sys
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from nodrop.audit.audit_answer import AuditAnswer
from nodrop.capacity.json_answer import CapacityAnswer
from nodrop.compare.records import History, Side, Versus
from nodrop.config.experiment import ExperimentFile
from nodrop.results.calibration import Certificate
from nodrop.results.capacity import Direct
from nodrop.results.proved import Proved
from nodrop.results.trial import trial_schema
from nodrop.results.watched import WatchedInterval
from nodrop.testbed.labs.netns import NetnsFile
from nodrop.testbed.labs.ssh import SshFile
from nodrop_fleet.file import FleetFile


class Described(GenerateJsonSchema):
    """The docstring under a field describes it. The models themselves do not read their own source
    (`use_attribute_docstrings`): that would be a good part of each start of nodrop."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        for model in reversed(schema["cls"].__mro__):
            if issubclass(model, BaseModel) and model is not BaseModel:
                for name, words in docstrings(model).items():
                    made["properties"][name]["description"] = words
        return made

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made = super().dataclass_schema(schema)
        for name, words in docstrings(schema["cls"]).items():
            made["properties"][name]["description"] = words
        return made


def docstrings(model: type[Any]) -> dict[str, str]:
    """Docstrings of the fields that have one."""
    return {
        field.target.id: cleandoc(below.value.value)
        for field, below in pairwise(_classes(sys.modules[model.__module__])[model.__name__].body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


@cache
def _classes(module: ModuleType) -> dict[str, ast.ClassDef]:
    tree = ast.parse(getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """By the NAME of schema/NAME.schema.json (draft 2020-12)."""
    return {
        "audit": _written(AuditAnswer, "audit", "audit answer"),
        "baseline": _written(Side, "baseline", "baseline"),
        "proved": _written(Proved, "proved", "answer of nodrop tune prove"),
        "capacity": _written(CapacityAnswer, "capacity", "capacity answer"),
        "certificate": _written(Certificate, "certificate", "certificate"),
        "compare": _written(Versus, "compare", "comparison"),
        "direct": _written(Direct, "direct", "direct answer"),
        "drops": _written(WatchedInterval, "drops", "interval of nodrop drops"),
        "experiment": _kinds_by_matrix(_read(ExperimentFile, "experiment")),
        "fleet": _read(FleetFile, "fleet"),
        "history": _written(History, "history", "history"),
        "lab": _lab(),
        "trial": trial_schema(Described),
    }


def _lab() -> dict[str, Any]:
    """By its kind."""
    kinds: TypeAdapter[Any] = TypeAdapter(
        Annotated[NetnsFile | SshFile, Field(discriminator="kind")]
    )
    return _titled(kinds.json_schema(schema_generator=Described), "lab", "lab file")


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


def _read(model: type[BaseModel], name: str) -> dict[str, Any]:
    return _titled(model.model_json_schema(schema_generator=Described), name, f"{name} file")


def _written(model: type[BaseModel], name: str, title: str) -> dict[str, Any]:
    """The schema of a file as a writer makes it: with all fields."""
    return _titled(
        model.model_json_schema(mode="serialization", schema_generator=Described), name, title
    )


def _titled(schema: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:nodrop:{name}:1",
        **schema,
        "title": f"nodrop {title}",
    }


def _write(folder: Path) -> None:
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (folder / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
