"""Where the SUT runs: a sequence of places. One is the ordinary case; several share the packets.

Behind a split each instance has a place and a NIC of its own, or one SUT has several ports.
`Places` is what the measurer sees of all of them: what is before the split, what each place counts,
and how to undo it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from nodrop.hosts.seam import Json, Link, Port, UndoJournal, counters_of
from nodrop.images.image_tree import Bits
from nodrop.labs.bridge import Split
from nodrop.labs.split import CopySplit, HookSplit, Splitter, split, split_to_ports
from nodrop.measure.packets.readings import Branched, Reading, Received
from nodrop.setups.seam import Env, Limits, SamplesInside, Setup

BY_CABLE = "a cable to each port, the sender shares flows among them"


class Places:
    """Provisioned places, in the order of the instances."""

    def __init__(
        self, link: Link, envs: Sequence[Env], parts: Split | None, *, ports: bool = False
    ) -> None:
        self.envs = tuple(envs)
        self.split = parts
        """The split that shares the packets; None in front of a port that gets them all."""
        self.ports: Sequence[Port] = link.rx_ports if link.further else ()
        """Ports of the one SUT, if several share the packets."""
        if parts is not None and ports:
            self.ports = parts.nics
        self.link = link if parts is None else _led(link, parts)
        """With the addresses that a sender has to write into its frames."""

    @property
    def instances(self) -> Sequence[Env]:
        """Places of several instances; () if there is but one instance."""
        return () if self.split is None or self.ports else self.envs

    @property
    def nics(self) -> Sequence[Port]:
        """The receiving NICs, ahead of any split, one for each cable; known once the SUT is
        launched."""
        if self.split is not None or self.link.further:
            return self.link.rx_ports
        return (self.envs[0].nic,)

    @property
    def capture(self) -> Sequence[Port]:
        """The last ports on the way of all packets: of several instances, the one before them."""
        if self.ports:
            return self.ports
        return (capture_port(self.envs[0]),) if self.split is None else self.nics

    @property
    def keeps_frames(self) -> bool:
        """A split hands each frame to one of several, as it came."""
        return isinstance(self.split, HookSplit) and not self.copies

    @property
    def copies(self) -> bool:
        """Each of several gets all packets: what the kernel puts together of copies, no trace
        says."""
        return isinstance(self.split, CopySplit)

    @property
    def cold(self) -> bool:
        return any(env.cold for env in self.envs)

    @property
    def delivers_at_once(self) -> bool:
        return all(env.delivers_at_once for env in self.envs)

    def read(self) -> Reading:
        tx, nic, split = counters_of(self.link.tx_ports), counters_of(self.nics), self.split
        return Reading(
            tx=tx,
            nic=nic,
            capture=nic if self.capture == self.nics else counters_of(self.capture),
            place={} if split is not None else self.envs[0].read(),
            branched=None if split is None else self._branched(split),
        )

    def _branched(self, split: Split) -> Branched:
        return Branched(split=split.read(), instances=[_received(env) for env in self.instances])

    def samples_inside(self) -> Mapping[str, SamplesInside]:
        """Samples of machines inside the places, by name; with several instances, the instance's
        number ends the name."""
        return {
            f"{name}-{i}" if self.instances else name: samples
            for i, env in enumerate(self.envs)
            for name, samples in env.samples_inside().items()
        }

    def facts(self) -> Json:
        first = self.envs[0].facts()
        shared = {"ports": len(self.ports)} if self.ports else {"instances": len(self.envs)}
        if self.link.further:
            return {**first, **shared, "split": BY_CABLE}
        return first if self.split is None else {**first, **shared, "split": self.split.words}


@contextmanager
def provision(
    setup: Setup,
    instances: int,
    link: Link,
    *,
    ports: int = 1,
    splitter: Splitter,
    bits: Bits | None,
    limits: Limits,
    work: Path,
    journal: UndoJournal,
) -> Iterator[Places]:
    """Provisions as many places as there are instances. A SUT of one port has the first cable."""
    if ports == 1:
        link = replace(link, further=())
    with ExitStack() as stack:
        if instances == 1:
            shared = None
            if link.further:
                link = replace(link, capture_ports=[port.name for port in link.rx_ports])
            elif ports > 1:
                shared = stack.enter_context(split_to_ports(link, ports, splitter))
                link = replace(link, capture_ports=[port.name for port in shared.nics])
            place = setup.provision(link, bits=bits, limits=limits, work=work, journal=journal)
            yield Places(link, [stack.enter_context(place)], shared, ports=shared is not None)
            return
        parts = stack.enter_context(split(link, instances, splitter, journal))
        envs = []
        for i, nic in enumerate(parts.nics):
            folder = work / f"instance-{i}"
            folder.mkdir(parents=True, exist_ok=True)
            place = setup.provision(
                Link(tx=link.tx, rx=nic), bits=bits, limits=limits, work=folder, journal=journal
            )
            envs.append(stack.enter_context(place))
        yield Places(link, envs, parts)


def _led(link: Link, parts: Split) -> Link:
    return replace(link, dst_macs=parts.dst_macs, dst_macs_by=parts.dst_macs_by)


def capture_port(env: Env) -> Port:
    return Port(host=env.host, name=env.capture_interfaces[0])


def _received(env: Env) -> Received:
    nic, capture = env.nic.counters(), capture_port(env)
    return Received(
        nic=nic, capture=nic if capture == env.nic else capture.counters(), place=env.read()
    )
