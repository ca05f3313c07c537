"""Suricata's counters, from an eve stats record or a dump-counters answer.

`capture.kernel_packets` INCLUDES `capture.kernel_drops`, whatever the manual says: Suricata adds up
tp_packets, and the kernel counts a packet there before it looks for room in the ring. Both kernel
counters are 32 bits wide but start anew at each reading, which Suricata does once a second, and its
own sums are 64 bits wide: no wrap below four billion packets a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodrop.testbed.suts.api import SutCounters
from nodrop.testbed.suts.suricata.sut_options import CaptureKind
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode_object, optional

CAPTURED = "capture.kernel_packets"
DROPPED = "capture.kernel_drops"
DECODED = "decoder.pkts"
DECODED_BYTES = "decoder.bytes"
INVALID = "decoder.invalid"
CHECKSUM = "tcp.invalid_checksum"
CHECKSUM_KNOB = """--set 'sut.overrides."stream.checksum-validation"="no"' has Suricata take them"""
CUT = "afpacket.trunc_pkt"
"""An event of the decoder's. Events that never came are in no record; nor is any if the yaml
switches them off (stats.decoder-events) or names them otherwise (decoder-events-prefix)."""
_EVENTS = "decoder.event."
FLOWS = "flow.total"

_RESULTS = (
    *("app_layer.error.", "decoder.", "defrag.", "detect.", "file_store.", "flow.", "ftp."),
    *("http.", "stream.", "tcp.", "transform."),
)
_SIZES = ("memuse", "avg_pkt_size", "max_pkt_size", "max_mac_addrs_src", "max_mac_addrs_dst")
"""Names of sizes, which are no counts."""


def from_stats(stats: Mapping[str, Any], *, source: str) -> SutCounters:
    """`stats` is the totals table; `source` names where it came from."""
    flat = dict(flattened(stats))
    threads = stats.get("threads")
    if not isinstance(threads, dict):
        threads = {}
    fields = {
        "captured_packets": CAPTURED,
        "dropped_ring_full_packets": DROPPED,
        "decoded_packets": DECODED,
        "decoded_bytes": DECODED_BYTES,
    }
    others = {
        "cut_packets": _EVENTS + CUT,
        "invalid_packets": INVALID,
        "checksum_packets": CHECKSUM,
    }
    return SutCounters(
        captured_packets=flat.get(CAPTURED),
        dropped_ring_full_packets=flat.get(DROPPED),
        decoded_packets=flat.get(DECODED),
        decoded_bytes=flat.get(DECODED_BYTES),
        cut_packets=flat.get(_EVENTS + CUT),
        invalid_packets=flat.get(INVALID),
        invalid_by={
            k.removeprefix(_EVENTS): v for k, v in flat.items() if k.startswith(_EVENTS) and v
        },
        checksum_packets=flat.get(CHECKSUM),
        checksum_knob=CHECKSUM_KNOB,
        results={k: v for k, v in flat.items() if _is_result(k)},
        per_thread={
            name: counted
            for name, table in threads.items()
            if isinstance(table, dict)
            and (counted := _of_thread(table, {**fields, "flows": FLOWS}))
        },
        sources={
            field: f"{source} {key}" for field, key in {**fields, **others}.items() if key in flat
        },
    )


def last_stats(path: Path) -> Mapping[str, Any] | None:
    """The `stats` of the last whole record; None if there is none."""
    last: Mapping[str, Any] | None = None
    try:
        for line in Folder(path.parent).lines(path.name):
            if b'"stats"' in line:  # of gigabytes of alerts, few
                with suppress(NotJson):
                    last = optional(decode_object(line), "stats", dict) or last
    except FileNotFoundError:
        return None
    return last


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Counters of all threads together, by their names."""
    for name, value in table.items():
        if isinstance(value, dict) and name != "threads":
            yield from flattened(value, f"{prefix}{name}.")
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            yield f"{prefix}{name}", value


def _is_result(key: str) -> bool:
    return key.startswith(_RESULTS) and not key.endswith(_SIZES)


def _of_thread(table: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, int]:
    """Empty for threads that neither capture nor decode (flow manager, recycler)."""
    flat = dict(flattened(table))
    return {field: flat[key] for field, key in fields.items() if key in flat}


PerPort = Mapping[str, Mapping[str, int]]
"""Counters by port, in the form of `SutCounters.per_port`."""


def of_port(packets: int, dropped: int, capture: CaptureKind = "af-packet") -> Mapping[str, int]:
    """`packets` as Suricata says it of a device: with the drops of af-packet and dpdk, without them
    of pcap and af-xdp, where it is what was decoded (seen of 7.0.10)."""
    captured = packets if capture in ("af-packet", "dpdk") else packets + dropped
    return {"captured_packets": captured, "dropped_ring_full_packets": dropped}


def of_sockets(found: SutCounters, per_port: PerPort) -> SutCounters:
    """`found` with what the sockets say of captured and dropped."""
    return dataclasses.replace(
        found,
        captured_packets=sum(one["captured_packets"] for one in per_port.values()),
        dropped_ring_full_packets=sum(
            one["dropped_ring_full_packets"] for one in per_port.values()
        ),
        per_port=per_port,
    )


def without_captured_by_thread(found: SutCounters) -> SutCounters:
    """The last stats record of pcap has them of the last second in which a packet came."""
    captured = ("captured_packets", "dropped_ring_full_packets")
    threads = {
        name: {key: value for key, value in own.items() if key not in captured}
        for name, own in found.per_thread.items()
    }
    return dataclasses.replace(found, per_thread=threads)


def at_rest(found: SutCounters, per_port: PerPort, *, agree: bool) -> SutCounters:
    """Captured and dropped as the sockets say: in dump-counters, captured is a sync older. No
    thread can decode more than its socket gave it: if the sums agree, each thread's figures do."""
    said = "iface-stat at rest"
    threads = {}
    for name, thread in found.per_thread.items():
        own = dict(thread)
        decoded, lost = own.get("decoded_packets"), own.get("dropped_ring_full_packets")
        if own.pop("captured_packets", None) is not None and agree and decoded is not None:
            own["captured_packets"] = decoded + (lost or 0)
        threads[name] = own
    return dataclasses.replace(
        of_sockets(found, per_port),
        per_thread=threads,
        sources={
            **found.sources,
            "captured_packets": f"{said}, pkts",
            "dropped_ring_full_packets": f"{said}, drop",
        },
    )
