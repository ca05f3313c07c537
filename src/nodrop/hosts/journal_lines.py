"""The lines of an undo journal: its run, what that changed, what it started. Each may be bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.hosts.processes import (
    ProcessId,
)
from nodrop.hosts.seam import Json
from nodrop.untrusted import json_text
from nodrop.untrusted.json_text import NotJson

MOST_PID = 1 << 22
"""PID_MAX_LIMIT of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Whose journal it is."""

    controller: ProcessId
    boot_id: str
    user_namespace: int
    pid_namespace: int | None
    """None in journals of versions that did not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    what: str
    action: str
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A process that must not outlive the run."""

    what: str
    process: ProcessId


def read_head(line: bytes) -> Head:
    try:
        said = json_text.decode_object(line)
        return Head(
            controller=_process(json_text.member(said, "controller", dict)),
            boot_id=json_text.member(said, "boot_id", str),
            user_namespace=json_text.counted(said, "user_namespace"),
            pid_namespace=json_text.optional(said, "pid_namespace", int),
        )
    except NotJson as error:
        raise NotJson(f"its first line {error}, so whose it is is not known") from None


def read_entry(line: bytes) -> Change | Begun:
    said = json_text.decode_object(line)
    what = json_text.member(said, "what", str)
    if "process" in said:
        return Begun(what=what, process=_process(json_text.member(said, "process", dict)))
    if "argv" in said:
        raise NotJson(f"{what}: a command, as older versions of nodrop wrote: undo it by hand")
    arguments = json_text.member(said, "arguments", list)
    if not all(isinstance(argument, str) and _passes(argument) for argument in arguments):
        raise NotJson("arguments: must be texts that a program can be given")
    return Change(
        what=what, action=json_text.member(said, "action", str), arguments=tuple(arguments)
    )


def _passes(argument: str) -> bool:
    """No NUL and no half of a surrogate pair: execve(2) takes neither."""
    return "\0" not in argument and not any("\ud800" <= sign <= "\udfff" for sign in argument)


def _process(said: Json) -> ProcessId:
    pid = json_text.counted(said, "pid")
    if not 0 < pid <= MOST_PID:
        raise NotJson(f"pid: {pid} is not one that Linux gives")
    return ProcessId(pid, json_text.counted(said, "start_ticks"))
