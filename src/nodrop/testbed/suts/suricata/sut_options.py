"""Suricata's [sut] table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from nodrop.config.options import CpuList, InputFile, MemorySize, Options, Overrides, YesNo
from nodrop.config.units import format_cpus, parse_cpus

Runmode = Literal["workers", "autofp", "single"]
CaptureKind = Literal["af-packet", "pcap", "af-xdp", "dpdk"]
MOST_PORTS = 4
MOST_FRAMES = 1 << 24
"""More than a kernel gives room for; Suricata itself takes a number that overflows, and falls back
to another ring without a word that a user would see."""
PAGE_BYTES = 4096
MOST_BLOCK_BYTES = 1 << 30
MOST_BUFFER_BYTES = (1 << 31) - 1
"""libpcap's own limit: an int."""
OF_FAN_OUT = ("cluster_type", "ring_size", "block_size", "use_mmap", "tpacket_v3")
"""Keys of capture = "af-packet" alone, but for the ring of DPDK's driver af-packet."""


def _whole_pages(size_bytes: int) -> int:
    """The block size. ValueError for any at which Suricata warns in its log and runs with its
    default."""
    if not 0 < size_bytes <= MOST_BLOCK_BYTES or size_bytes % PAGE_BYTES:
        raise ValueError(f"must be a multiple of {PAGE_BYTES}, at most 1 GiB")
    return size_bytes


class SuricataOptions(Options):
    binary: InputFile | None = None
    """Program instead of the image's Suricata."""
    image: str | None = None
    """Name or path of the image to run it from."""
    rules: tuple[InputFile, ...] = ()
    """Rule files; `.xz` is unpacked to the cache folder. Without any, those of `config`."""
    rules_errors: Literal["error", "warn"] = "warn"
    """Treatment of rules that do not load: an error that is found before the first trial, or
    counted and named in the report. It is always an error if none loads."""
    classification: InputFile | None = None
    """classification.config of the rules, instead of that of `config`, or the one beside the
    binary."""
    config: InputFile | None = None
    """The user's own suricata.yaml as the base, instead of our template. It keeps its rules,
    classes, references and thresholds: the files that it names on this host are shown to Suricata
    wherever it runs."""
    capture: CaptureKind = "af-packet"
    """How Suricata captures. Without fan-out (pcap, af-xdp, dpdk), one thread has all packets.
    dpdk: by DPDK's driver af-packet, from the image suricata-dpdk."""
    runmode: Runmode = "workers"
    threads: Annotated[int, Field(gt=0, le=1024)] | Literal["auto"] = "auto"
    """Capture threads per port; auto: for all ports together one for each CPU that Suricata may
    use."""
    ports: Annotated[int, Field(ge=1, le=MOST_PORTS)] = 1
    """NIC ports that it captures on; the flows of the load are shared among them."""
    detect_threads: Annotated[int, Field(gt=0, le=1024)] | None = None
    """Detect threads of autofp, behind the capture threads, for all ports together. Without it, one
    for each CPU that Suricata may use."""
    autofp_scheduler: Literal["hash", "ippair"] | None = None
    """The rule by which autofp gives a flow to a detect thread."""
    cluster_type: Literal["cluster_flow", "cluster_cpu", "cluster_qm"] = "cluster_flow"
    defrag: YesNo = True
    """The kernel reassembles IPv4 fragments before the ring (PACKET_FANOUT_FLAG_DEFRAG)."""
    ring_size: Annotated[int, Field(gt=0, le=MOST_FRAMES)] | None = None
    """Frames per thread; None leaves it to Suricata, as most users do."""
    block_size: Annotated[MemorySize, AfterValidator(_whole_pages)] | None = None
    buffer_bytes: Annotated[MemorySize, Field(ge=PAGE_BYTES, le=MOST_BUFFER_BYTES)] | None = None
    """Size of libpcap's ring (buffer-size), for capture = "pcap"; None leaves it to libpcap, which
    takes 2 MiB."""
    use_mmap: YesNo | None = None
    tpacket_v3: YesNo | None = None
    overrides: Overrides = Field(default_factory=dict)
    """Dotted path → value in the yaml, list entries by index: `outputs.1.eve-log.enabled`."""
    cpus: CpuList | None = None
    """CPUs to pin the process to, as in cpuset(7)."""
    capture_cpus: CpuList | None = None
    """CPUs for the receive threads of autofp, one after the other."""
    worker_cpus: CpuList | None = None
    """CPUs of the threads that decode and detect, dealt one after the other."""
    management_cpus: CpuList | None = None
    """CPUs of all other threads. A role without CPUs of its own gets those of all roles."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for words in self._faults():
            raise ValueError(words)
        return self

    def _faults(self) -> Iterator[str]:
        """Keys that contradict each other, in words."""
        if self.binary is not None and self.image is not None:
            yield "binary and image both say which Suricata runs: leave one out"
        if self.capture != "pcap" and self.buffer_bytes is not None:
            yield 'buffer_bytes is of capture = "pcap": leave it out, or set ring_size'
        if self.capture == "dpdk" and self.runmode != "workers":
            yield (
                f'runmode = "{self.runmode}": Suricata captures by DPDK with runmode = "workers" '
                "alone: leave it out"
            )
        if self.capture != "af-packet":
            yield from self._faults_without_fan_out(f'capture = "{self.capture}"')
        if self.runmode == "single" and self.threads not in ("auto", 1):
            yield (
                f'runmode = "single" runs one thread, not threads = {self.threads}: leave threads '
                'out, or set runmode = "workers"'
            )
        if self.runmode == "single" and self.ports > 1:
            yield (
                f'ports = {self.ports}: Suricata captures on one port with runmode = "single"; set '
                'runmode = "workers" or "autofp"'
            )
        for name in ("detect_threads", "autofp_scheduler", "capture_cpus"):
            if self.runmode != "autofp" and getattr(self, name) is not None:
                yield (
                    f'{name} is of runmode = "autofp", where detect threads work behind the '
                    f'capture threads, and not of "{self.runmode}": leave it out'
                )
        for key, cpus in self.role_cpus.items():
            beyond = set(parse_cpus(cpus)) - set(parse_cpus(self.cpus or cpus))
            if beyond:
                yield f'{key} = "{cpus}": CPU {format_cpus(beyond)} is not in cpus'

    def _faults_without_fan_out(self, by: str) -> Iterator[str]:
        polled = self.capture == "dpdk"
        for name in OF_FAN_OUT:
            if name in self.model_fields_set and not (polled and name == "ring_size"):
                yield f'{name} is of capture = "af-packet": leave it out with {by}'
        if polled and not self.defrag:
            yield (
                f"defrag: with {by} its driver always has the kernel put fragments together "
                "(PACKET_FANOUT_FLAG_DEFRAG): leave it out"
            )
        if not polled and "defrag" in self.model_fields_set and self.defrag:
            yield (
                f"defrag: {by} joins no fan-out group, which would put fragments "
                'together: set defrag = "no", or leave it out'
            )
        if self.threads not in ("auto", 1) or self.ports > 1:
            yield (
                f"threads, ports: with {by} each thread would capture every packet: one thread on "
                "one port"
            )

    @property
    def merges(self) -> bool:
        """Suricata asks the kernel to reassemble fragments before the ring."""
        return self.defrag and self.capture in ("af-packet", "dpdk")

    @property
    def role_cpus(self) -> dict[str, str]:
        """Key → CPU list of those that are given."""
        names = ("capture_cpus", "worker_cpus", "management_cpus")
        return {name: cpus for name in names if (cpus := getattr(self, name)) is not None}

    @property
    def pinned_to(self) -> str | None:
        """CPUs that it may use; None leaves it to the limits."""
        sets = [parse_cpus(cpus) for cpus in self.role_cpus.values()]
        return self.cpus or (format_cpus({c for cpus in sets for c in cpus}) if sets else None)
