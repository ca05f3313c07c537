"""The lab of two machines, each reached over the user's own ssh, and a cable between them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from nodrop.config.options import InputFile, Name, Options, check
from nodrop.errors import BadInput, LabProblem
from nodrop.hosts.journal import new_label
from nodrop.hosts.seam import Json, Link, UndoJournal
from nodrop.hosts.ssh import SshHost
from nodrop.labs.far_hosts import FarEnd, check_ends
from nodrop.labs.netns import PortName
from nodrop.labs.seam import Checked

NO_MEASURING = (
    "nodrop does not measure on hosts over ssh yet: `nodrop lab check` looks at them, and labs of "
    'kind "netns" measure'
)
FAR_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,252}$"


def _far_name(name: str) -> str:
    if not re.fullmatch(FAR_NAME, name):
        raise ValueError(
            "must be a host as `ssh` knows it (or user@host): letters, digits, dots, dashes, "
            "underscores and @"
        )
    return name


def _not_yet(_given: object) -> None:
    raise ValueError("is not supported yet; leave it out, and samples come to this machine")


FarName = Annotated[
    str, AfterValidator(_far_name), WithJsonSchema({"type": "string", "pattern": FAR_NAME})
]


class SshEnd(Options):
    host: FarName
    """As ~/.ssh/config knows it."""
    port: PortName
    become: Literal["sudo"] | None = None
    """How the user who logs in becomes root; left out: root logs in."""


class SshFile(Options):
    name: Name
    kind: Literal["ssh"]
    """ssh: two machines and a cable between them."""
    sender: SshEnd
    receiver: SshEnd
    ssh_config: InputFile | None = None
    """Instead of ~/.ssh/config."""
    storage: Annotated[None, BeforeValidator(_not_yet), WithJsonSchema({"type": "null"})] = None


def from_file(table: Mapping[str, Any], *, base: Path) -> SshLab:
    file = check(SshFile, table, table="", base=base)
    if file.sender.host == file.receiver.host:
        raise BadInput(f'receiver.host = "{file.receiver.host}": must not be the sender\'s host')
    return SshLab(file)


class SshLab:
    """A Lab (labs/seam.py) that can be checked, and cannot yet come up."""

    def __init__(self, file: SshFile) -> None:
        self.name = file.name
        self.ports = (file.sender.port, file.receiver.port)
        self._file = file

    def carrying(self, frame_bytes: int) -> SshLab:
        del frame_bytes  # the MTU is the cable's, and not ours to change
        return self

    def problems(self) -> Sequence[str]:
        return [NO_MEASURING]

    def up(self, journal: UndoJournal) -> AbstractContextManager[Link]:
        del journal
        raise LabProblem(NO_MEASURING)

    def facts(self) -> Json:
        ends = {"sender": self._file.sender, "receiver": self._file.receiver}
        return {
            "kind": "ssh",
            "name": self.name,
            "hosts": {role: end.model_dump(exclude_none=True) for role, end in ends.items()},
        }

    def check(self) -> Sequence[Checked]:
        """Both hosts at once. Changes nothing there, but the node is copied."""
        if shutil.which("ssh") is None:
            words = "program ssh is missing here; install the package openssh-client"
            return [Checked(what="this machine", problems=(words,))]
        label = f"check-{new_label()}"
        return check_ends(
            [
                FarEnd(role=role, host=self._host(role, end, label), port=end.port)
                for role, end in (("sender", self._file.sender), ("receiver", self._file.receiver))
            ]
        )

    def _host(self, role: str, end: SshEnd, label: str) -> SshHost:
        return SshHost(
            end.host,
            name=f"{role} {end.host}",
            label=label,
            become=end.become,
            config=self._file.ssh_config,
        )
