"""The [storage] table of a lab file or a fleet file: a host that keeps raw files of runs."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from nodrop.config.options import Options

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
    """Each run has a folder in it."""
