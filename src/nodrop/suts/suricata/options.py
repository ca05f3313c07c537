"""The `[sut]` table of an experiment that measures Suricata."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from nodrop.config.options import InputFile, MemorySize, Options, Overrides, YesNo
from nodrop.config.units import parse_cpus

Runmode = Literal["workers", "autofp", "single"]


def _cpus(text: str) -> str:
    parse_cpus(text)
    return text


class SuricataOptions(Options):
    binary: InputFile | None = None
    """This Suricata instead of the image's."""
    image: str | None = None
    """Name or path of the image to run it from."""
    rules: tuple[InputFile, ...] = ()
    """Rule files; `.xz` is unpacked to the cache folder."""
    rules_errors: Literal["error", "warn"] = "error"
    """What a rule that does not load is: the end of the trial, or a count in its facts."""
    classification: InputFile | None = None
    """classification.config of the rules, instead of the one beside the binary."""
    config: InputFile | None = None
    """The user's own suricata.yaml as the base, instead of our template."""
    runmode: Runmode = "workers"
    threads: PositiveInt | Literal["auto"] = "auto"
    """Capture threads per interface."""
    cluster_type: Literal["cluster_flow", "cluster_cpu", "cluster_qm"] = "cluster_flow"
    defrag: YesNo = True
    """The kernel reassembles IPv4 fragments before the ring (PACKET_FANOUT_FLAG_DEFRAG)."""
    ring_size: PositiveInt | None = None
    """Frames per thread; None leaves it to Suricata, as most users do."""
    block_size: Annotated[MemorySize, Field(gt=0)] | None = None
    use_mmap: YesNo | None = None
    tpacket_v3: YesNo | None = None
    overrides: Overrides = Field(default_factory=dict)
    """Dotted path → value in the yaml, list entries by index: `outputs.1.eve-log.enabled`."""
    cpus: Annotated[str, AfterValidator(_cpus)] | None = None
    """CPUs to pin the process to, as in cpuset(7)."""
