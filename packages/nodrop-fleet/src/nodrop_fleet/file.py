"""The fleet file: pairs that share a plan, and the cluster of dask whose workers measure them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from nodrop.config.lab_file import LabSource, StorageTable, load_lab
from nodrop.config.options import InputFile, Name, Options, YesNo, check, read_toml, shown
from nodrop.errors import BadInput

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
    """Options of dask's own SSHCluster or SLURMCluster, unchanged; of pods, `KubernetesOptions`."""
    wait_s: Annotated[float, Field(ge=1, le=LONGEST_WAIT_S)] = 60.0
    """Longest time that a run waits for a worker while no pair has one."""
    storage: StorageTable | None = None
    """Keeps what samplers wrote, and large files of the SUT, of all pairs. Left out: they stay in
    the run directory."""
    ssh_config: InputFile | None = None
    """File that `storage` is reached by, instead of ~/.ssh/config."""


class KubernetesOptions(Options):
    image: Annotated[str, Field(min_length=1)]
    """Container image that holds this nodrop."""
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
    """Lab of each pair by its name, in the order of the file."""


def load_fleet(path: Path) -> FleetSource:
    table, text = read_toml(path)
    try:
        file = check(FleetFile, table, table="", base=path.absolute().parent)
        _must_fit(file)
        return FleetSource(path=path, text=text, file=file, pairs=_pairs(file))
    except BadInput as error:
        raise error.at(path) from None


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
