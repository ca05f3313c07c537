"""The lab file (a kind of lab, what it is given, its [storage]) and the fleet file (pairs with one
plan, and the cluster of dask whose workers measure them)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from nodrop.config.options import (
    InputFile,
    Name,
    Options,
    YesNo,
    check,
    read_toml,
    shown,
    unknown_key,
)
from nodrop.errors import BadInput
from nodrop.installation import shipped

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
        raise BadInput(f"{path}: {error.message}", hint=error.hint) from None
    return LabSource(path=path, text=text, name=head.name, kind=head.kind, table=table)


def find_lab(lab: str) -> Path:
    """`netns` → labs/netns.toml as nodrop brings it; what has a dot or a slash is a path."""
    if "/" in lab or "." in lab:
        return Path(lab)
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
    """Each run has a folder in it."""


Cluster = Literal["local", "scheduler", "ssh", "slurm", "kubernetes"]
MOST_PAIRS = 256
LONGEST_WAIT_S = 604_800.0
ONLY_OF: Mapping[str, tuple[Cluster, ...]] = {
    "address": ("scheduler",),
    "hosts": ("ssh",),
    "options": ("ssh", "slurm", "kubernetes"),
}
"""Key → the clusters that it belongs to."""
NEEDED: Mapping[str, str] = {"scheduler": "address", "ssh": "hosts"}


ADDRESS_PATTERN = r"^(tcp|tls)://[^\s/]+:\d+$"


def _address(given: str) -> str:
    if not re.fullmatch(ADDRESS_PATTERN, given):
        raise ValueError("must be tls:// or tcp://, a host and a port: tls://10.0.0.1:8786")
    return given


Address = Annotated[
    str,
    AfterValidator(_address),
    WithJsonSchema({"type": "string", "pattern": ADDRESS_PATTERN}),
]


class FleetFile(Options):
    name: Name
    cluster: Cluster = "local"
    """local: a process of this machine for each pair. scheduler: a dask scheduler that runs
    already, and workers that you started. ssh, slurm, kubernetes: dask starts them there."""
    pairs: Annotated[tuple[InputFile, ...], Field(min_length=1, max_length=MOST_PAIRS)]
    """Lab files; a pair is called as its lab is."""
    host_invariant: YesNo = False
    """true: any pair may measure any trial. false: a cell stays on the pair that began it."""
    address: Address | None = None
    """Address of the running scheduler."""
    hosts: Annotated[tuple[str, ...], Field(min_length=2)] | None = None
    """Hosts as ssh knows them: the scheduler's, then one for each worker."""
    options: dict[str, Any] | None = None
    """For dask's own SSHCluster or SLURMCluster, as they are. Of pods: `KubernetesOptions`."""
    wait_s: Annotated[float, Field(ge=1, le=LONGEST_WAIT_S)] = 60.0
    """So long a run waits for a worker, if not one pair has any."""
    storage: StorageTable | None = None
    """Keeps what samplers wrote, and large files of the SUT, of all pairs. Left out: they stay in
    the run directory."""
    ssh_config: InputFile | None = None
    """For `storage`, instead of ~/.ssh/config."""


class KubernetesOptions(Options):
    image: Annotated[str, Field(min_length=1)]
    """With this nodrop."""
    namespace: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict)
    pod: dict[str, Any] = Field(default_factory=dict)
    """Fields of a worker's PodSpec, as Kubernetes has them."""
    container: dict[str, Any] = Field(default_factory=dict)
    """Fields of a worker's Container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSource:
    """A fleet file, with its text for the run directory."""

    path: Path
    text: str
    file: FleetFile
    pairs: Mapping[str, LabSource]
    """By name, in the order of the file."""


def load_fleet(path: Path) -> FleetSource:
    table, text = read_toml(path)
    try:
        file = check(FleetFile, table, table="", base=path.absolute().parent)
        _must_fit(file)
        return FleetSource(path=path, text=text, file=file, pairs=_pairs(file))
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}", hint=error.hint) from None


def _must_fit(file: FleetFile) -> None:
    for key, clusters in ONLY_OF.items():
        if getattr(file, key) is not None and file.cluster not in clusters:
            raise BadInput(
                f"{key}: goes with cluster = {' or '.join(map(shown, clusters))}, and this is "
                f"{shown(file.cluster)}"
            )
    needed = NEEDED.get(file.cluster)
    if needed and getattr(file, needed) is None:
        raise BadInput(f"{needed}: missing; cluster = {shown(file.cluster)} needs it")
    if file.cluster == "kubernetes":
        kubernetes_options(file)
    if file.ssh_config is not None and file.storage is None:
        raise BadInput("ssh_config: goes with [storage]; a pair has one in its lab file")
    if file.hosts is not None and len(file.hosts) - 1 != len(file.pairs):
        raise BadInput(
            f"hosts: names {len(file.hosts)}, and must name {len(file.pairs) + 1}: the scheduler's "
            "first, then one for each pair"
        )


def kubernetes_options(file: FleetFile) -> KubernetesOptions:
    return check(KubernetesOptions, file.options or {}, table="options", base=Path())


def _pairs(file: FleetFile) -> Mapping[str, LabSource]:
    found: dict[str, LabSource] = {}
    for number, path in enumerate(file.pairs):
        lab = load_lab(str(path))
        if lab.name in found:
            raise BadInput(
                f"pairs.{number}: {path} is called {shown(lab.name)}, as {found[lab.name].path} "
                "is; a pair is known by the name of its lab, so each needs its own"
            )
        found[lab.name] = lab
    return found
