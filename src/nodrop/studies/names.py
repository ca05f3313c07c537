"""File names of the 2016 studies: what was run is written in the name of every workbook and folder.

    ENGINE,TRACE,NWORKER,SRC_NIC,DEST_NIC[.vtap],INTERVAL
        [,MEMORY,CPUSET | ,MEMORY,VCPUS,CPUSET],SWAPPINESS[,VM_NAME,VM_IP,VM_NIC]
        ,REPLAY_SPEED[,CHANNEL]

A cpuset may hold commas itself (`1,3`), so the fields behind it are taken from the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

WORKBOOK_SUFFIX = ".xlsx"
VTAP_SUFFIX = ".vtap"
FOLDER_PREFIX = "logs,"

_MEMORY = re.compile(r"(\d{1,12})([kmgt]?)b?", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
# Names of traces, NICs and guests; anything else in a file name is not one of the studies'.
_FIELD = re.compile(r"[\w.:+-]+", re.ASCII)
_CPUSET_PART = re.compile(r"\d+(-\d+)?")
_FIGURE_TRACE = re.compile(r"[\w-]+\.(pcap|log)(\.[\w.]+)?")
_MEMORY_FACTOR = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class BadNameError(ValueError):
    """This name does not follow the grammar; the text says at which field."""


class Channel(StrEnum):
    """The content of one workbook; the values are the words of the file names."""

    EVE = "eve"
    """Suricata's cumulative counters."""
    SNORT_EXIT = "snortout"
    """Snort's totals at exit: one row per sample."""
    RECEIVER = "receiver,sysstat"
    SENDER = "sender,sysstat"
    GUEST = "vm,sysstat"
    NIC_IN = "netin,netstat"
    NIC_OUT = "netout,netstat"
    GUEST_NIC = "vm,netin,netstat"
    QEMU = "psstat"
    GUEST_SURICATA = "vm,suricata,psstat"
    GUEST_SNORT = "vm,snort,psstat"

    @property
    def cumulative_counts(self) -> bool:
        """The authors floored the medians of these (`INT(MEDIAN(..))`), and of no others."""
        return self in (Channel.EVE, Channel.SNORT_EXIT)


# The longest first: `psstat` and `eve` are also ends of longer words.
_CHANNELS = sorted(Channel, key=len, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The varied factors: one combination of the studies' matrix."""

    engine: str
    """bm, docker or vm."""
    trace: str
    workers: int
    """N of "NX": that many tcpreplay processes sent the same trace at once."""
    source_nic: str
    dest_nic: str
    vtap: bool
    interval_s: float
    swappiness: int
    replay_speed: float
    memory_bytes: int | None = None
    vcpus: int | None = None
    cpuset: str | None = None
    vm_name: str | None = None
    vm_ip: str | None = None
    vm_nic: str | None = None

    @property
    def setup(self) -> str:
        """The name of the setup in the words of this project."""
        if self.engine == "bm":
            return "bare"
        if self.engine == "docker":
            return "docker-macvtap" if self.vtap else "docker"
        # Passthrough shows in two ways: `ens9` in the xenial data, and a receiving NIC that is the
        # guest's own (the host has none left) in data_vfio.
        return "vm-vfio" if self.vm_nic == "ens9" or self.vm_nic == self.dest_nic else "vm"

    @property
    def published_setup(self) -> str:
        """The column's name in the studies' tables."""
        return PUBLISHED_SETUP[self.setup]


PUBLISHED_SETUP = {
    "bare": "BM",
    "docker": "Docker",
    "docker-macvtap": "DockerV",
    "vm": "VM",
    "vm-vfio": "VFIO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkbookName:
    condition: Condition
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureName:
    """A workbook the authors drew their figures from: derived, so never imported."""

    trace: str
    words: tuple[str, ...]


def parse_workbook_name(name: str) -> WorkbookName | FigureName:
    """Reads the name of one workbook. BadNameError if it follows no known pattern."""
    if not name.endswith(WORKBOOK_SUFFIX):
        raise BadNameError(f"not a workbook: the name does not end in {WORKBOOK_SUFFIX}")
    stem = name.removesuffix(WORKBOOK_SUFFIX)
    trace, *words = stem.split(",")
    if _FIGURE_TRACE.fullmatch(trace):
        return FigureName(trace=trace, words=tuple(words))
    for channel in _CHANNELS:
        if stem.endswith("," + channel):
            fields = stem[: -len(channel) - 1].split(",")
            return WorkbookName(condition=_condition(fields), channel=channel)
    raise BadNameError("no known channel at its end (eve, snortout, …sysstat, …netstat, …psstat)")


def parse_folder_name(name: str) -> tuple[Condition, int]:
    """Reads the name of one raw log folder: the condition and the sample's epoch second."""
    if not name.startswith(FOLDER_PREFIX):
        raise BadNameError(f"not a log folder: the name does not begin with {FOLDER_PREFIX!r}")
    engine, *fields = name.removeprefix(FOLDER_PREFIX).split(",")
    if not fields:
        raise BadNameError("no sample epoch")
    return _condition([engine, *fields[1:]]), parse_epoch(fields[0])


def parse_memory(text: str) -> int:
    """`2g`, `1536m`: bytes, so that `1024m` equals `1g`."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BadNameError(f"memory {text!r} is not a number with k, m or g")
    return int(match[1]) * _MEMORY_FACTOR[match[2].lower()]


def _condition(fields: list[str]) -> Condition:
    odd = next((field for field in fields if not _FIELD.fullmatch(field)), None)
    if odd is not None:
        raise BadNameError(f"{odd!r} is no field of a name")
    if len(fields) < 8:
        raise BadNameError(f"{len(fields)} fields, at least 8 are needed")
    engine, trace, workers, source, dest, interval, *rest = fields
    memory = vcpus = cpuset = vm_name = vm_ip = vm_nic = None
    *rest, speed = rest
    if engine == "vm":
        if len(rest) < 7:
            raise BadNameError("a VM needs memory, vcpus, cpuset, swappiness, name, IP and NIC")
        *rest, vm_name, vm_ip, vm_nic = rest
    *rest, swappiness = rest
    if engine == "bm" and rest:
        raise BadNameError(f"bare metal has no field {rest[0]!r}")
    if engine in ("docker", "vm"):
        minimum = 2 if engine == "docker" else 3
        if len(rest) < minimum:
            raise BadNameError(f"{engine} needs memory and cpuset before swappiness")
        memory, *rest = rest
        if engine == "vm":
            vcpus, *rest = rest
        cpuset = _cpuset(rest)
    elif engine != "bm":
        raise BadNameError(f"engine {engine!r} is not bm, docker or vm")
    return Condition(
        engine=engine,
        trace=trace,
        workers=_whole(workers, "load"),
        source_nic=source,
        dest_nic=dest.removesuffix(VTAP_SUFFIX),
        vtap=dest.endswith(VTAP_SUFFIX),
        interval_s=_number(interval, "interval"),
        swappiness=_whole(swappiness, "swappiness"),
        replay_speed=_number(speed, "replay speed"),
        memory_bytes=None if memory is None else parse_memory(memory),
        vcpus=None if vcpus is None else _whole(vcpus, "vcpus"),
        cpuset=cpuset,
        vm_name=vm_name,
        vm_ip=vm_ip,
        vm_nic=vm_nic,
    )


def _cpuset(parts: list[str]) -> str:
    for part in parts:
        if not _CPUSET_PART.fullmatch(part):
            raise BadNameError(f"{part!r} is not part of a cpuset")
    return ",".join(parts)


def parse_epoch(text: str) -> int:
    """The second at which a sample was started: a year between 1970 and 2286."""
    return _whole(text, "sample epoch", digits=10)


def _whole(text: str, what: str, *, digits: int = 6) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise BadNameError(f"{what} {text!r} is not a whole number of at most {digits} digits")
    return int(text)


def _number(text: str, what: str) -> float:
    if not _DECIMAL.fullmatch(text) or float(text) == 0:
        raise BadNameError(f"{what} {text!r} is not a number above 0")
    return float(text)
