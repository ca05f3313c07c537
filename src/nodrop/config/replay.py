"""The [load] table of a generator that replays a trace: `replay` and `tcpreplay` share it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from nodrop.config.options import Options, existing_file
from nodrop.config.units import parse_cpus

MADE_TRACE = "make:"
ANY_CPU = "any"

MOST_PPS = 1e9
"""Six times the frames of a full 100 Gb/s; beyond it "as fast as the host can" is what is meant."""
MOST_SPEED = 1e6
"""A trace of a day in 90 ms."""
MOST_REPLICAS = 1_000_000
MOST_LOOPS = (1 << 32) - 1
MOST_DURATION_S = 1e7
"""Four months."""


def _trace(text: str, info: ValidationInfo) -> str:
    if text.startswith(MADE_TRACE):
        if not text.removeprefix(MADE_TRACE).isidentifier():
            raise ValueError("must name what to make, such as make:demo")
        return text
    return str(existing_file(Path(text), info))


def _one_or_several(trace: Any) -> str:
    """Form of the value that was meant, so that an error is about that form."""
    return "several" if isinstance(trace, list | tuple) else "one"


Trace = Annotated[str, AfterValidator(_trace)]


def _cpu(cpu: int | str) -> int | str:
    if cpu != ANY_CPU:
        parse_cpus(str(cpu))
    return cpu


Cpu = Annotated[int | str, AfterValidator(_cpu)]


def _whole(multiplier: float) -> int | float:
    """2.0 is 2: one load has one name."""
    return int(multiplier) if multiplier == int(multiplier) else multiplier


MOST_COPIES = 1 << 16
"""Passes of all replicas that have addresses of their own unless more are asked for: each takes 80
bytes of the sender."""
REPLAYING = ("replay", "tcpreplay")
"""Kinds of load that have this table."""
BUSIEST, WHOLE = "busiest", "whole"
FOUND_BY_LENGTH = (BUSIEST, "first")
WINDOW_S = 5.0
_SECONDS = r"\d{1,9}(?:\.\d{1,9})?"
_SPAN = re.compile(rf"({_SECONDS})\.\.({_SECONDS})", re.ASCII)


def _window(window: str) -> str:
    span = _SPAN.fullmatch(window)
    if span is None and window not in (*FOUND_BY_LENGTH, WHOLE):
        raise ValueError(
            f"{window!r}: must be busiest, first, whole, or seconds of the trace such as 12.0..17.0"
        )
    if span is not None and float(span[1]) >= float(span[2]):
        raise ValueError(f"{window!r}: must end after it begins")
    return window


_END = r"[0-9a-f.:\[\]]+:\d{1,5}"
_FLOW = re.compile(rf"([a-z0-9]+) {_END} {_END}", re.ASCII)


def _flow(flow: str) -> str:
    if _FLOW.fullmatch(flow) is None:
        raise ValueError("must be a flow such as tcp 10.0.0.1:80 10.0.0.2:51312")
    return flow


class GrowingRate(Options):
    """A rate that grows by equal factors in equal times: how a search begins."""

    from_pps: Annotated[float, Field(gt=0, le=MOST_PPS)]
    to_pps: Annotated[float, Field(gt=0, le=MOST_PPS)]
    over_s: Annotated[float, Field(gt=0, le=MOST_DURATION_S)]

    def pps(self, at_s: float) -> float:
        return float(self.from_pps * (self.to_pps / self.from_pps) ** (at_s / self.over_s))


class Withhold(Options):
    """Packets of the trace that are not sent, on purpose: a part by chance, so that what a SUT
    cannot have seen is known, or some flows, as if the SUT bypassed them."""

    ratio: Annotated[float, Field(gt=0, lt=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 1
    flows: tuple[Annotated[str, AfterValidator(_flow)], ...] = ()
    """Protocol and both ends of each, as nodrop names them: `tcp 10.0.0.1:80 10.0.0.2:51312`."""

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if (self.ratio is None) == (not self.flows):
            raise ValueError("give either ratio or flows")
        return self


class ReplayOptions(Options):
    """Exactly one of `speed`, `pps`, `top_speed`, `ramp` paces the replay; none means
    `speed = 1.0`."""

    trace: Annotated[
        Annotated[Trace, Tag("one")]
        | Annotated[tuple[Trace, ...], Field(min_length=2), Tag("several")],
        Discriminator(_one_or_several),
    ]
    """Path of a capture file (absolute once checked), or `make:NAME` for a synthetic one. A list
    has one for each port of the SUT, or the pieces of one capture."""
    joined: bool = False
    """True: the list of `trace` holds pieces of one capture (tcpdump -C, -G), which are sent in the
    order of their times."""
    window: Annotated[str, AfterValidator(_window)] | None = None
    """The stretch of the trace that is sent, as if it were all of it: the "busiest" (most packets),
    the "first", the "whole" trace, or "12.0..17.0", seconds after its first packet. Without it the
    trace is sent from its beginning; a search sends the busiest stretch."""
    window_s: Annotated[float, Field(gt=0, le=MOST_DURATION_S)] | None = None
    """How much of the trace's time the busiest or the first stretch is: 5 s if it is left out, or
    as much as a search's `final_trial_s` sends."""
    speed: Annotated[float, Field(gt=0, le=MOST_SPEED)] | None = None
    """Factor on the trace's own timing."""
    pps: Annotated[float, Field(gt=0, le=MOST_PPS)] | None = None
    """Constant packets per second."""
    top_speed: bool = False
    """True: the load is sent as fast as the host can."""
    ramp: GrowingRate | None = None
    """Packets per second that grow; all gaps are even, as with `pps`."""
    multiplier: Annotated[int | float, Field(gt=0, le=MOST_REPLICAS), AfterValidator(_whole)] = 1
    """NX: N replicas of the trace at once; 3.4 = three, and one with 40 % of the flows."""
    flow_seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 1
    """Chooses the flows of a replica that is not whole. The same for all loads that are compared:
    each larger fraction then has the flows of the smaller ones."""
    flows: Literal["distinct", "same"] = "distinct"
    """Whether replicas are flows of their own, or identical copies as in the 2016 studies."""
    loops: Annotated[int, Field(gt=0, le=MOST_LOOPS)] = 1
    loop_flows: Literal["distinct", "same"] = "same"
    """Whether each pass has flows of its own, as another replica has, if replicas do: as many
    passes as there are addresses for, then those of the first ones again."""
    duration_s: Annotated[float, Field(gt=0, le=MOST_DURATION_S)] | None = None
    """End after this time; without it the whole trace is sent."""
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 0
    cpu: Cpu | None = None
    """Pin the sender to this CPU (copies of tcpreplay to this list of them); "any" leaves it to the
    kernel. Without it, measure/cells.py chooses, unless something says where the SUT runs."""
    offloaded: Literal["split", "as-is"] = "split"
    """Frames longer than a wire carries (TSO, GRO, loopback): as the segments and fragments that it
    would carry, or as they were captured."""
    cut: Literal["pad", "pad-ip", "as-is"] = "pad"
    """Frames that the capture cut (snaplen): filled with zeros to the length they had on the wire,
    also to the length in their IP header, or as they were captured."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Packets equal, from the network header on, to one at most 2 ms before, as a mirror port or
    `any` on a bond makes them: sent, or left out."""
    order: Literal["time", "file"] = "time"
    """Packets in the order of their time, or as they stand in the file: then one of an earlier time
    leaves with the one before it."""
    skip_link_types: tuple[Annotated[int, Field(ge=0, lt=1 << 16)], ...] = ()
    """LINKTYPE_ numbers whose frames are left out; without it, a capture with frames that no
    Ethernet port can carry is refused."""
    longest_gap_s: Annotated[float, Field(gt=0, le=MOST_DURATION_S)] | None = None
    """Length of the longest time between two packets; a longer one is cut to it: for captures whose
    clock was set."""
    nanoseconds: bool = False
    """Take the fractions of a second in a pcap file for nanoseconds, though its header says
    microseconds."""
    withhold: Withhold | None = None
    """Leave out a part of the packets, chosen by a seed: `{ratio = 0.01, seed = 7}`; or flows:
    `{flows = ["tcp 10.0.0.1:80 10.0.0.2:51312"]}`."""
    tolerate_truncated: bool = False
    """Use what is whole of a capture file that ends in the middle of a packet."""

    @model_validator(mode="after")
    def _one_pace(self) -> Self:
        given = [name for name in ("speed", "pps", "top_speed", "ramp") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other: give one of them")
        return self

    @model_validator(mode="after")
    def _pieces_are_captures(self) -> Self:
        if self.joined and (
            isinstance(self.trace, str) or any(one.startswith(MADE_TRACE) for one in self.trace)
        ):
            raise ValueError("joined: is for a list of capture files in load.trace: leave it out")
        return self

    @model_validator(mode="after")
    def _window_has_a_length(self) -> Self:
        if self.window_s is not None and self.window not in FOUND_BY_LENGTH:
            raise ValueError('window_s: is how long a window "busiest" or "first" is: leave it out')
        return self

    @property
    def traces(self) -> tuple[str, ...]:
        """Traces: one for each port, or the pieces of a single one, whatever shares it."""
        return (self.trace,) if isinstance(self.trace, str) else self.trace

    @property
    def is_for_ports(self) -> bool:
        return len(self.traces) > 1 and not self.joined

    @property
    def cpus(self) -> tuple[int, ...]:
        """CPUs that the generator is pinned to; () = anywhere."""
        return () if self.cpu in (None, ANY_CPU) else parse_cpus(str(self.cpu))

    @property
    def pace(self) -> dict[str, float | bool]:
        """The one pacing key, as the node's replay job wants it (ramps: testbed/load/trace.py)."""
        if self.top_speed:
            return {"top_speed": True}
        return {"pps": self.pps} if self.pps is not None else {"speed": self.speed or 1.0}
