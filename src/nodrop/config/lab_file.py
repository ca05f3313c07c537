"""The lab file: which hosts and ports there are, and the link between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from nodrop.config.options import Name, Options, check, unknown_key
from nodrop.config.toml_file import read_toml
from nodrop.errors import BadInput

DEFAULT_LAB = "netns"

PortName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]
"""15 characters: IFNAMSIZ less the final zero."""


class LabEnd(Options):
    host: Name
    port: PortName


class LabFile(Options):
    name: Name
    kind: Literal["netns"]
    """netns: two network namespaces of this machine and a veth pair between them."""
    mtu: Annotated[int, Field(ge=68, le=65535)] = 9000
    """Of both ports. 9000 carries what offloads glued together when a trace was captured."""
    sender: LabEnd = LabEnd(host="tx", port="ndtx0")
    receiver: LabEnd = LabEnd(host="rx", port="ndrx0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSource:
    """A checked lab file, with its text for the run directory."""

    path: Path
    text: str
    file: LabFile


def load_lab(lab: str | None = None) -> LabSource:
    """The lab of a file, or of a name that nodrop brings along; without either, the default."""
    path = find_lab(lab or DEFAULT_LAB)
    table, text = read_toml(path)
    try:
        file = check(LabFile, table, table="", base=path.absolute().parent)
        if file.sender.host == file.receiver.host:
            raise BadInput(
                f'receiver.host = "{file.receiver.host}": must not be the sender\'s host'
            )
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}", hint=error.hint) from None
    return LabSource(path=path, text=text, file=file)


def find_lab(lab: str, folders: Sequence[Path] | None = None) -> Path:
    """`netns` → labs/netns.toml as nodrop brings it; what has a dot or a slash is a path."""
    if "/" in lab or "." in lab:
        return Path(lab)
    for folder in folders or lab_folders():
        if (folder / f"{lab}.toml").is_file():
            return folder / f"{lab}.toml"
    known = sorted({p.stem for folder in folders or lab_folders() for p in folder.glob("*.toml")})
    raise BadInput(f"--lab {lab}: no such lab{unknown_key(lab, known)}")


def lab_folders() -> tuple[Path, ...]:
    """Package data of an installed nodrop, then the checkout."""
    package = Path(__file__).parents[1]
    return (package / "labs", package.parents[1] / "labs")
