"""The lab file: a kind of lab, what it is given, its [storage]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, WithJsonSchema

from nodrop.config.options import Name, Options, check, read_toml, unknown_key
from nodrop.errors import BadInput
from nodrop.installation import brought, shipped

DEFAULT_LAB = "netns"


class LabHead(Options):
    """The keys that every lab file has; the other keys are those of its kind."""

    model_config = ConfigDict(extra="allow")
    name: Name
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSource:
    """A lab file, with its text for the run directory."""

    path: Path
    text: str
    name: str
    kind: str
    table: Mapping[str, Any]
    """The whole file; its kind checks it (plugins.build_lab)."""


def load_lab(lab: str | None = None) -> LabSource:
    """The lab of a file, or of a name that nodrop brings along; without either, the default."""
    if lab is not None and not lab.strip():
        raise BadInput("--lab: must name a lab or a lab file", hint="leave it out for netns")
    path = find_lab(DEFAULT_LAB if lab is None else lab)
    table, text = read_toml(path)
    try:
        head = check(LabHead, table, table="", base=path.absolute().parent)
    except BadInput as error:
        raise error.at(path) from None
    return LabSource(path=path, text=text, name=head.name, kind=head.kind, table=table)


def find_lab(lab: str) -> Path:
    """`netns` → labs/netns.toml as nodrop brings it; what has a dot or a slash is a path."""
    if "/" in lab or "." in lab:
        return brought(Path(lab))
    folder = shipped("labs")
    if (folder / f"{lab}.toml").is_file():
        return folder / f"{lab}.toml"
    found = {p.stem for p in folder.glob("*.toml")}
    known = sorted(name for name in found if "." not in name)  # others are examples, by their path
    raise BadInput(f"--lab {lab}: no such lab{unknown_key(lab, known)}")


STORAGE_PATH = r"^/[A-Za-z0-9._/+@-]+$"
FAR_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,252}$"


def _far_name(name: str) -> str:
    if not re.fullmatch(FAR_NAME, name):
        raise ValueError(
            "must be a host as `ssh` knows it (or user@host): letters, digits, dots, dashes, "
            "underscores and @"
        )
    return name


def _storage_path(path: str) -> str:
    if not re.fullmatch(STORAGE_PATH, path):
        raise ValueError(
            "must be an absolute path there, of letters, digits, dots, dashes and underscores"
        )
    return path


FarName = Annotated[
    str, AfterValidator(_far_name), WithJsonSchema({"type": "string", "pattern": FAR_NAME})
]


class StorageTable(Options):
    host: FarName
    """The host as ~/.ssh/config knows it; whoever logs in there may write to `path`."""
    path: Annotated[
        str,
        AfterValidator(_storage_path),
        WithJsonSchema({"type": "string", "pattern": STORAGE_PATH}),
    ]
    """Folder in which each run has a folder."""
