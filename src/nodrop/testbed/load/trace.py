"""Facts of a trace, and of what the kernel will do to it: asked of the node once per load."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from math import inf
from pathlib import Path
from threading import get_ident
from time import monotonic

from nodrop.config.options import check
from nodrop.config.replay import FOUND_BY_LENGTH, MADE_TRACE, WINDOW_S, GrowingRate, ReplayOptions
from nodrop.errors import BadInput, BadKey, LabProblem, NodeRefused
from nodrop.ledger.balance import SHORTEST_FRAME_BYTES, Lengths
from nodrop.ledger.imbalance import FlowShares
from nodrop.ledger.sent_flows import Flow, SentFlows
from nodrop.protocol import ReassemblyForecast, TracePlanned, TraceResult
from nodrop.results.load_window import LoadWindow
from nodrop.testbed.hosts.api import Json, TraceJob
from nodrop.testbed.hosts.folders import cache_folder, put_in_place, traces_folder
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import file_sha256, find_node_binary
from nodrop.testbed.hosts.rights import READER, limited
from nodrop.testbed.labs.split import addresses
from nodrop.testbed.load.api import (
    AtTap,
    Captured,
    Fragments,
    LoadGenerator,
    PeakDemand,
    Planned,
    TraceFacts,
    WindowSource,
    lasting,
)
from nodrop.testbed.load.prepared import Prepared, prepared, read_by, reading
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.json_text import decode_object, making_sense, member

TRACE_READ_TIMEOUT_S = 600.0
MEMINFO = Path("/proc/meminfo")
PREPARING = (
    "offloaded", "cut", "duplicates", "order", "skip_link_types", "longest_gap_s", "nanoseconds",
    "tolerate_truncated",
)  # fmt: skip
"""Keys of [load] that say what is sent of a capture."""


def find_trace(options: ReplayOptions) -> Path:
    """The capture file that is sent: the window of what `load.trace` names, or is made of
    several."""
    return _sent(options)[0]


def _sent(options: ReplayOptions) -> tuple[Path, WindowSource | None]:
    whole, source = _chosen(options)
    if options.withhold is None:
        return whole, source
    asked = options.withhold
    chosen = [word for flow in asked.flows for word in ("--flow", flow)]
    if asked.ratio is not None:
        chosen = ["--ratio", repr(asked.ratio), "--seed", str(asked.seed)]
    stamp = ".".join(map(str, (*_stamp(whole), _node_sha256()[:12])))
    named = hashlib.sha256(f"{whole} {stamp} {chosen}".encode()).hexdigest()[:16]
    cut = ["--tolerate-truncated"] if options.tolerate_truncated else []
    made = _made(
        f"withheld-{named}.pcap",
        lambda out: ["withhold", str(whole), str(out), *chosen, *cut],
        key="load.withhold",
    )
    return made, source


def _withheld(options: ReplayOptions, made: Path) -> Sequence[int]:
    if options.withhold is None:
        return ()
    with making_sense("what the node withheld"):
        text = read_file(made.with_name(f"{made.name}.json"), most_bytes=MOST_LISTED_BYTES)
        return [int(number) for number in json.loads(text)["withheld"]]


def _chosen(options: ReplayOptions) -> tuple[Path, WindowSource | None]:
    parts = _parts(options)
    whole = _side_by_side(parts) if parts else _named(options)
    if options.window is None:
        return whole, None
    length = f":{options.window_s or WINDOW_S:.9f}" if options.window in FOUND_BY_LENGTH else ""
    return _cut(whole, _stamp(whole), f"{options.window}{length}", options.tolerate_truncated)


@functools.lru_cache(maxsize=256)
def _cut(
    trace: Path, stamp: tuple[int, ...], window: str, tolerate_truncated: bool
) -> tuple[Path, WindowSource]:
    """A window as a file in the cache folder, named by what it holds: a sender keeps no more than
    this in memory. The trace itself if the window is all of it."""
    del stamp  # another file is cut anew
    folder = traces_folder()
    partial = folder / f"window-{os.getpid()}-{get_ident()}.partial"
    argv = ["window", str(trace), f"--window={window}", "--out", str(partial)]
    command = [str(find_node_binary()), "trace", *argv]
    command += ["--tolerate-truncated"] if tolerate_truncated else []
    done = read_by(command, trace, timeout_s=TRACE_READ_TIMEOUT_S)
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        why = " ".join(done.stderr.split()).removeprefix("nodrop-node trace: ")
        of_file = why.startswith(str(trace))
        raise BadKey("load.trace", why) if of_file else BadKey("load.window", f"{trace}: {why}")
    with making_sense("what the node says of a window"):
        said = decode_object(done.stdout)
        source = WindowSource(path=trace, sha256=member(said, "sha256", str), window=_window(said))
    if source.window.is_whole:
        return trace, source
    part = f"{source.sha256[:12]}-{source.window.span}"
    made = folder / f"{trace.name.partition('.')[0][:LONGEST_NAMES]}-{part}.pcap"
    partial.rename(made)
    return made, source


def _window(said: Json) -> LoadWindow:
    whole, peak = said["whole"], said["whole"]["peak_second"]
    packets, bytes_ = said["packets"], said["frame_bytes"]
    trace_s = lasting(whole["duration_ns"] / 1e9, whole["packets"])
    window_s = (said["to_ns"] - said["from_ns"]) / 1e9
    lasts_s = max(lasting(said["lasts_ns"] / 1e9, packets), window_s)
    if not said["lasts_ns"] and window_s < ONE_MOMENT_S:
        lasts_s = 0.0
    of_flows, begun = said["of_flows"], said["of_begun"]

    def rate(number: float, seconds: float) -> float | None:
        return number / seconds if seconds else None

    return LoadWindow(
        span=said["window"],
        from_s=said["from_ns"] / 1e9,
        to_s=said["to_ns"] / 1e9,
        packets=packets,
        frame_bytes=bytes_,
        pps=rate(packets, lasts_s),
        bps=rate(8.0 * bytes_, lasts_s),
        trace_packets=whole["packets"],
        trace_bytes=whole["frame_bytes"],
        trace_s=trace_s,
        mean_pps=rate(whole["packets"], trace_s),
        mean_bps=rate(8.0 * whole["frame_bytes"], trace_s),
        peak_pps=float(peak["packets"]),
        peak_bps=8.0 * peak["frame_bytes"],
        begun_packet_ratio=rate(begun["packets"], of_flows["packets"]),
        begun_byte_ratio=rate(begun["frame_bytes"], of_flows["frame_bytes"]),
    )


ONE_MOMENT_S = 0.001
"""A shorter window whose packets have one time has no rate: the whole of such a trace is a window
of 1 ns."""


def _named(options: ReplayOptions) -> Path:
    """`make:PROFILE` is made by the node; a capture is made into what a port can send."""
    trace = options.traces[0]
    profile = trace.removeprefix(MADE_TRACE)
    if profile == trace:
        return prepared_trace(options).path
    return _made(
        f"{profile}-{_node_sha256()[:12]}.pcap",
        lambda out: ["make", profile, str(out)],
        given=f'"{trace}"',
    )


def prepared_trace(options: ReplayOptions) -> Prepared:
    """The capture that `load.trace` names, in the form in which it is sent."""
    path = _joined(options) if options.joined else Path(*options.traces)
    if path.is_file():  # the node reads it into memory
        _must_fit_into_memory(path, path.stat().st_size)
    _speaks(find_node_binary())
    return prepared(path, options)


def _speaks(node: Path) -> None:
    """LabProblem if it is no node: another program might answer a command without end."""
    now = node.stat()
    _asked(node, now.st_ino, now.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _asked(node: Path, *_stamp: int) -> None:
    del node
    try:
        _job(_this_host(), {"job": "trace", "trace": os.devnull}).close()
    except NodeRefused as refused:
        if refused.kind == "protocol":
            raise


def _parts(options: ReplayOptions) -> tuple[TraceFacts, ...]:
    """Facts of each of several traces alone, at its own timing; () if there is one trace."""
    if not options.is_for_ports:
        return ()
    shared = {key: getattr(options, key) for key in PREPARING}
    return tuple(
        facts_of(check(ReplayOptions, {"trace": trace, **shared}, table="load", base=Path()))
        for trace in options.traces
    )


def _joined(options: ReplayOptions) -> Path:
    """The capture whose pieces these are."""
    pieces = [Path(piece) for piece in options.traces]
    for piece in pieces:
        _speaks(find_node_binary())
        _must_fit_into_memory(piece, sum(each.stat().st_size for each in pieces))
    cut = ["--tolerate-truncated"] if options.tolerate_truncated else []
    named = repr([(str(piece), _stamp(piece)) for piece in pieces] + [_node_sha256(), cut])
    names = re.sub(r"[^A-Za-z0-9+.-]+", "-", f"{pieces[0].name}+{len(pieces) - 1}")
    return _made(
        f"{names[:LONGEST_NAMES]}-{hashlib.sha256(named.encode()).hexdigest()[:12]}.pcap",
        lambda out: [
            *("merge", *map(str, pieces), "--out", str(out), "--own-times"),
            *cut,
        ],
    )


def _side_by_side(parts: Sequence[TraceFacts]) -> Path:
    """One trace of several, each from its own beginning, as a sender for each port would send them.
    The frames of each have the address that leads to its port (labs/split.py)."""
    contents = " ".join([_node_sha256(), *(part.sha256 for part in parts)])
    names = re.sub(r"[^A-Za-z0-9+.-]+", "-", "+".join(part.path.stem for part in parts))
    name = f"{names[:LONGEST_NAMES]}-{hashlib.sha256(contents.encode()).hexdigest()[:12]}.pcap"
    _must_fit_into_memory(Path(name), sum(part.memory_bytes for part in parts))
    macs = ",".join(addresses(len(parts)))
    return _made(
        name,
        lambda out: [
            *("merge", *(str(part.path) for part in parts)),
            *("--out", str(out), "--dst-macs", macs),
        ],
    )


LONGEST_NAMES = 80
MOST_LISTED_BYTES = 256 << 20
MOST_TOLD_PACKETS = 1 << 20
"""Packets of a trial up to which the flow of each is asked for: two numbers of four bytes each."""
MOST_FLOW_BYTES = 64 << 20
FLOWS_TIMEOUT_S = 30.0


def sent_flows(trace: Path, words: Json) -> SentFlows | None:
    """Flows of what a replay sends of a trace; None if it is too much, or the node refuses.
    `words`: the part that is sent and its timing, as the replay job wants them."""
    out = traces_folder() / f"flows-{os.getpid()}-{get_ident()}.partial"
    node, given = find_node_binary(), {k: v for k, v in words.items() if v not in (None, False)}
    flags = [f"--{k.replace('_', '-')}" + ("" if v is True else f"={v}") for k, v in given.items()]
    most = ["--out", str(out), "--most-packets", str(MOST_TOLD_PACKETS)]
    argv = [str(node), "trace", "flows", str(trace), *flags, *most]
    try:
        limits = limited(node, READER, argv)
        done = _this_host().run(limits, timeout_s=FLOWS_TIMEOUT_S, check=False)
        if done.returncode != 0:
            return None
        head, _, numbers = read_file(out, most_bytes=MOST_FLOW_BYTES).partition(b"\n")
    except (LabProblem, OSError):
        return None
    finally:
        out.unlink(missing_ok=True)
    with making_sense("what the node says of flows"):
        every = array("I", numbers)
        if sys.byteorder == "big":
            every.byteswap()
        flows = [
            Flow(name=str(one["name"]), protocol=int(one["protocol"]), port=int(one["port"]))
            for one in decode_object(head, most_bytes=MOST_FLOW_BYTES)["flows"]
        ]
        if every and max(every[::2]) > len(flows):
            raise ValueError("it has a flow without a name")
        return SentFlows(flows=flows, of_packet=every[::2], copy_of_packet=every[1::2])


def _made(
    name: str, argv: Callable[[Path], Sequence[str]], *, key: str = "load.trace", given: str = ""
) -> Path:
    """A trace that the node makes once: it is kept in the cache folder."""
    made = traces_folder() / name
    if not made.is_file():
        node = find_node_binary()
        with put_in_place(made) as partial:
            done = _this_host().run(
                limited(node, READER, [str(node), "trace", *argv(partial)]),
                timeout_s=TRACE_READ_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                said = " ".join(done.stderr.removeprefix("error: ").split())
                raise BadKey(key, said, given=given)
            beside = partial.with_name(f"{partial.name}.json")
            if beside.is_file():
                beside.rename(made.with_name(f"{made.name}.json"))
    return made


def pace_of(options: ReplayOptions) -> Json:
    """The pace of a replay, as the node's replay job wants it."""
    if options.ramp is None:
        return dict(options.pace)
    return {"profile": str(_profile(options.ramp)), "ramp": True}


RAMP_POINTS = 64
"""Points of a ramp; from one to the next the rate grows in a straight line."""


def _profile(ramp: GrowingRate) -> Path:
    """The node reads a rate over time from a file."""
    name = f"ramp-{ramp.from_pps:.17g}-{ramp.to_pps:.17g}-{ramp.over_s:.17g}.csv"
    made = cache_folder() / "profiles" / name
    if not made.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        times = (ramp.over_s * n / RAMP_POINTS for n in range(RAMP_POINTS + 1))
        rows = "".join(f"{at_s:.9f},{ramp.pps(at_s):.9f}\n" for at_s in times)
        with put_in_place(made) as partial:
            partial.write_text(rows, encoding="ascii")
    return made


def _node_sha256() -> str:
    node = find_node_binary()
    now = node.stat()
    return _sha256(node, now.st_ino, now.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _sha256(node: Path, *_stamp: int) -> str:
    """sha256 of a node, read once and not for each cell of a plan: it is some megabytes."""
    return file_sha256(node)


def facts_of(options: ReplayOptions) -> TraceFacts:
    """Facts about the trace, and about what becomes of its fragments as these options will send
    it."""
    path, source = _sent(options)
    facts, parts = read_trace(path, options, pass_s=_pass_s(source)), _parts(options)
    captured = _captured(options)
    if (pass_s := _pass_s(source)) is not None:
        took_s = lasting(facts.duration_s, facts.packets)
        facts = replace(facts, silence_s=max(0.0, pass_s - took_s))
    planned = facts.planned
    if planned.duration_s is not None:
        duration_s = planned.duration_s + silence_after(options, facts)
        planned = replace(planned, duration_s=duration_s)
    return replace(
        facts,
        planned=planned,
        parts=parts,
        source=source,
        captured=captured,
        at_tap=_at_tap(facts.raw, captured),
        withheld=_withheld(options, path),
    )


def _at_tap(said: TraceResult, captured: Captured | None) -> AtTap:
    """Frames by their length at a capture socket. The counts of a capture also tell which frames
    were cut, or are longer than a wire has."""
    lengths, changes = said["tap_lengths"], {} if captured is None else captured.counts
    whole = lengths["defragmented"]
    times = said["planned"]["packets"] / said["packets"]
    return AtTap(
        arriving=_pairs(lengths["arriving"]),
        defragmented=None if whole is None else _pairs(whole),
        tagged_packets=said["planned"]["tagged_packets"],
        cut_packets=round(said["cut_packets"] * times),
        joined=bool(changes.get("long_packets")),
    )


def _pairs(said: Sequence[Sequence[int]]) -> Lengths:
    return tuple((length, packets) for length, packets in said)


def _datagram_bytes(fragments: ReassemblyForecast) -> int:
    """Bytes of the whole datagrams at the tap, with an Ethernet header each."""
    return fragments["datagram_bytes"] + SHORTEST_FRAME_BYTES * fragments["datagrams"]


def _captured(options: ReplayOptions) -> Captured | None:
    if options.is_for_ports or options.traces[0].startswith(MADE_TRACE):
        return None
    found = prepared_trace(options)
    words = tuple(found.words())
    if options.joined:
        names = ", ".join(Path(piece).name for piece in options.traces)
        words = (f"{len(options.traces)} pieces were joined in the order of time: {names}", *words)
    return Captured(path=found.captured, changed=found.changed, counts=found.changes, words=words)


def words_of(facts: TraceFacts) -> Json:
    """Words for the manifest."""
    each = [_changes_of(part) for part in facts.parts]
    ports: Json = {"ports": each} if each else {}
    if facts.withheld:
        ports["withheld_packets"] = len(facts.withheld)
    if (captured := facts.captured) is not None and captured.words:
        ports["captured"] = _changes_of(facts)
    if (source := facts.source) is not None:
        return {
            "trace": str(source.path),
            "trace_sha256": source.sha256,
            "trace_packets": source.window.trace_packets,
            "trace_duration_s": source.window.trace_s,
            "window": source.window.model_dump(),
            **ports,
        }
    return {
        "trace": str(facts.path),
        "trace_sha256": facts.sha256,
        "trace_packets": facts.packets,
        "trace_duration_s": facts.duration_s,
        **ports,
    }


def _changes_of(facts: TraceFacts) -> Json:
    """The capture that is sent, and what it was made of."""
    said: Json = {"trace": str(facts.path), "trace_sha256": facts.sha256}
    if (captured := facts.captured) is not None:
        said |= {"trace": str(captured.path), "sent": str(facts.path)}
        said |= {"changes": dict(captured.counts), "words": [*captured.words]}
    return said


def _pass_s(source: WindowSource | None) -> float | None:
    """Time of one pass that the node is asked for; None = what its packets take."""
    return None if source is None or source.window.is_whole else source.window.length_s


def pass_words(options: ReplayOptions) -> Json:
    """The length of a pass, as the node's jobs want it; empty if it is what its packets take."""
    pass_s = _pass_s(_sent(options)[1])
    return {} if pass_s is None else {"pass_s": pass_s}


def silence_after(options: ReplayOptions, facts: TraceFacts) -> float:
    """Seconds of a trial after its last packet that belong to its last pass."""
    speed = pace_of(options).get("speed")
    return 0.0 if speed is None or options.duration_s is not None else facts.silence_s / speed


def intended_duration_s(options: ReplayOptions) -> float | None:
    """How long sending is meant to take; None at top speed."""
    return None if options.top_speed else facts_of(options).planned.duration_s


def intended_pps(options: ReplayOptions) -> float | None:
    """Average rate; None at top speed."""
    if options.top_speed or options.pps is not None:
        return options.pps
    return facts_of(options).planned.pps


def read_trace(path: Path, options: ReplayOptions, *, pass_s: float | None = None) -> TraceFacts:
    """Reads the whole trace, again only if the file is another. BadInput names the packet and
    offset of the first bad record."""
    return _read(path, _stamp(path), options, pass_s)


def _stamp(path: Path) -> tuple[int, ...]:
    """Stamp of a file: another one is another file."""
    if not path.is_file():
        raise BadKey("load.trace", f"{path} does not exist or is no file")
    now = path.stat()
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns


@functools.lru_cache(maxsize=1024)
@making_sense("the result of node job 'trace'")
def _read(
    path: Path, stamp: tuple[int, ...], options: ReplayOptions, pass_s: float | None
) -> TraceFacts:
    # Before it is read: the node has it in memory for that already.
    _must_fit_into_memory(path, stamp[2])
    spec = {
        "job": "trace",
        "trace": str(path),
        "loops": options.loops,
        "multiplier": options.multiplier,
        "flow_seed": options.flow_seed,
        "flows": options.flows,
        "loop_flows": options.loop_flows,
        **pace_of(options),
        "duration_s": options.duration_s,
        "seed": options.seed,
        "tolerate_truncated": options.tolerate_truncated,
    }
    if pass_s is not None:
        spec["pass_s"] = pass_s
    try:
        with reading(path) as line, closing(_job(_this_host(), spec)) as job:

            def tick() -> None:
                if samples := job.samples():
                    line.at(min(1.0, samples[-1]["read_ratio"]))

            said = job.result(timeout_s=TRACE_READ_TIMEOUT_S, tick=tick)
    except NodeRefused as refused:
        if refused.kind == "protocol":
            raise
        raise BadKey("load.trace", refused.said, hint=refused.hint) from refused
    return _facts(path, said, options)


def _facts(path: Path, said: TraceResult, options: ReplayOptions) -> TraceFacts:
    fragments, planned = said["fragments_unrefused"], said["planned"]
    planned_ns: int | None = planned["duration_ns"]
    return TraceFacts(
        path=path,
        sha256=said["sha256"],
        packets=said["packets"],
        frame_bytes=said["frame_bytes"],
        duration_s=said["duration_ns"] / 1e9,
        longest_frame_bytes=said["longest_frame_bytes"],
        planned=Planned(
            packets=planned["packets"],
            frame_bytes=planned["frame_bytes"],
            flows=planned["flows"],
            duration_s=None
            if planned_ns is None
            else lasting(planned_ns / 1e9, planned["packets"]),
            window_packets=planned["window_packets"],
            window_s=planned["window_ns"] / 1e9,
        ),
        fragments=Fragments(
            offered_packets=fragments["offered_packets"],
            absorbed_packets=fragments["absorbed_packets"],
            datagrams=fragments["datagrams"],
            held_packets=fragments["held_packets"],
            fails=fragments["reasm_fails"],
            timeouts=fragments["reasm_timeouts"],
            overlaps=fragments["reasm_overlaps"],
            merged_bytes=fragments["absorbed_bytes"] - _datagram_bytes(fragments),
            held_bytes=fragments["held_bytes"],
        ),
        at_tap=_at_tap(said, None),
        never_at_tap_packets=planned["never_at_tap_packets"],
        peak_demand=_peak_demand(planned, options),
        flow_sizes=_flow_sizes(said, options),
        raw=said,
    )


def _flow_sizes(said: TraceResult, options: ReplayOptions) -> FlowShares | None:
    sizes, multiplier = said["flow_sizes"], options.multiplier
    ends_before = said["planned"]["window_packets"] < said["packets"]
    if not sizes["packets"] or multiplier < 1 or ends_before:
        return None
    found = FlowShares(
        flows=said["flows"],
        effective_flows=max(1.0, sizes["effective"]),
        largest_ratio=sizes["largest_packets"] / sizes["packets"],
        same_copies=multiplier,
    )
    return found if options.flows == "same" else found.distinct


def _job(host: LocalHost, spec: Json) -> TraceJob:
    """A node that does not even say hello is asked once a minute, not once for each trace and load
    of a plan: it may take ten seconds not to."""
    now = host.node.stat()
    node = (host.node, now.st_ino, now.st_mtime_ns)
    since_s, words = _SPEECHLESS.get(node, (-inf, ""))
    if monotonic() - since_s < ASKED_AGAIN_S:
        raise LabProblem(words)
    try:
        return host.job(spec)
    except LabProblem as problem:
        if isinstance(problem, NodeRefused) and problem.kind != "protocol":
            raise  # it speaks
        _SPEECHLESS[node] = (monotonic(), problem.message)
        raise


ASKED_AGAIN_S = 60.0
_SPEECHLESS: dict[tuple[Path, int, int], tuple[float, str]] = {}
"""Nodes that failed to begin: when, and what was said of it; another file is another node."""


def memory_problem(path: Path, needed_bytes: int) -> str:
    """Words if a trace does not fit into this host's memory; empty if it does."""
    available_bytes = _available_bytes()
    if available_bytes is None or needed_bytes <= available_bytes:
        return ""
    return (
        f"load.trace: {path} is held in memory while it is sent, which takes about "
        f"{needed_bytes / 2**20:,.0f} MiB, and this host has {available_bytes / 2**20:,.0f} MiB "
        "available: cut it (nodrop trace cut), or free memory"
    )


def _must_fit_into_memory(path: Path, needed_bytes: int) -> None:
    if problem := memory_problem(path, needed_bytes):
        raise BadInput(problem, keys=["load.trace"])


def _available_bytes() -> int | None:
    """None if the kernel does not say."""
    try:
        words = (line.split() for line in MEMINFO.read_text(encoding="ascii").splitlines())
        return next(int(kib) * 1024 for name, kib, *_ in words if name == "MemAvailable:")
    except (OSError, ValueError, StopIteration):
        return None


def _peak_demand(said: TracePlanned, options: ReplayOptions) -> PeakDemand | None:
    if options.ramp is not None or "speed" not in options.pace:
        return None
    return PeakDemand(
        packets_in_1_ms=said["packets_in_1_ms"],
        packets_in_10_ms=said["packets_in_10_ms"],
    )


def _this_host() -> LocalHost:
    return LocalHost(name="this host", node=find_node_binary(), label="trace")


class TraceLoad(LoadGenerator):
    """The common part of every LoadGenerator (load/api.py) that sends a trace."""

    options: ReplayOptions

    @cached_property
    def trace(self) -> Path:
        return find_trace(self.options)

    def duration_s(self) -> float | None:
        return intended_duration_s(self.options)

    def mean_pps(self) -> float | None:
        return intended_pps(self.options)

    def trace_facts(self) -> TraceFacts:
        return facts_of(self.options)

    def facts(self) -> Json:
        return {
            "generator": self.name,
            "options": self.options.model_dump(exclude_none=True),
            **words_of(self.trace_facts()),
        }
