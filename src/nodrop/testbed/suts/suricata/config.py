"""The suricata.yaml of one trial: template or the user's own, what nodrop needs, overrides last;
and Suricata's command socket."""

from __future__ import annotations

import copy
import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nodrop.config.units import parse_cpus
from nodrop.errors import BadInput, BadKey, TrialFailed
from nodrop.testbed.suts.suricata import dpdk
from nodrop.testbed.suts.suricata.own_yaml import MAX_PENDING_PACKETS, Yaml
from nodrop.testbed.suts.suricata.sut_options import CaptureKind, SuricataOptions
from nodrop.untrusted.json_text import decode_object

# Suricata's command socket: JSON lines over a Unix socket in the work folder.

_PROTOCOL = "0.2"
MAX_PATH_BYTES = 107
"""sun_path less its final zero."""
LONGEST_ANSWER_BYTES = 64 << 20
"""dump-counters of 64 threads has a megabyte."""


class RefusedBySuricata(TrialFailed):
    """Suricata answered, and said no."""


class ControlSocket:
    """A connection, opened at the first command and closed with the block."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._open = connect
        self._stream: socket.socket | None = None
        self._rest = b""

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def command(self, name: str, **arguments: str) -> Any:
        """The answer's `message`. TrialFailed if Suricata does not answer or refuses."""
        request: dict[str, Any] = {"command": name}
        if arguments:
            request["arguments"] = arguments
        try:
            if self._stream is None:
                self._connect()
            answer = self._ask(request)
        except (OSError, ValueError) as error:
            self._close()
            raise TrialFailed(
                f"Suricata does not answer {name} on its command socket: {error}"
            ) from None
        if answer.get("return") != "OK":
            raise RefusedBySuricata(f"Suricata refused {name}: {answer.get('message')}")
        return answer.get("message")

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._rest = b""

    def _connect(self) -> None:
        self._stream = self._open()
        answer = self._ask({"version": _PROTOCOL})
        if answer.get("return") != "OK":
            raise ValueError(f"protocol {_PROTOCOL} refused: {answer}")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._stream is None:
            raise ConnectionError("not connected")
        self._stream.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._rest:
            # Large answers come in parts: dump-counters of two threads is over 30 kB.
            part = self._stream.recv(65536)
            if not part:
                raise ConnectionError("connection closed")
            self._rest += part
            if len(self._rest) > LONGEST_ANSWER_BYTES:
                raise ConnectionError(f"an answer of more than {LONGEST_ANSWER_BYTES} bytes")
        text, _, self._rest = self._rest.partition(b"\n")
        return decode_object(text, most_bytes=LONGEST_ANSWER_BYTES)


ENGINE_LOG = "engine.json"
STATS_LOG = "stats.json"
EVENT_LOG = "outcome.json"
SOCKET = "suricata.socket"
FIRST_CLUSTER_ID = 99
STATS_INTERVAL_S = 1
SYNC_S = 3
"""Capture threads hand over their counters every 3 s: fixed in Suricata's source."""
MOST_STEPS = 64
OF_INLINE, INLINE = ("copy-mode", "copy-iface"), ("ips", "tap")
"""Keys of an af-packet entry that forward packets to another port, which no lab has; their
values."""
OUTPUT_PATHS = ("filename", "dir", "certs-log-dir")
PCAP_TIMEOUT_MS = 500
"""Timeout of Suricata's libpcap (LIBPCAP_COPYWAIT), fixed in its source."""
BLOCK_TIMEOUT_MS = 10
"""Suricata's own, if af-packet has no block-timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuricataPlaces:
    """The place of a Suricata, as it sees it."""

    interfaces: Sequence[str]
    work: str
    rules: Sequence[str] = ()
    """Names in the work folder."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Key of the yaml → the name of that file in the work folder."""
    cpus: AbstractSet[int] = frozenset()
    """CPUs that it may use; empty: not known, or all that are online."""
    online_cpus: int = 1


def render(
    options: SuricataOptions, base: Yaml, seen: SuricataPlaces, outcome: Sequence[str] = ()
) -> Yaml:
    """The whole configuration, from our template or a user's yaml."""
    work = seen.work
    document = {
        **copy.deepcopy(base),
        "default-log-dir": work,
        "af-packet": [
            _capture(options, base, name, FIRST_CLUSTER_ID - i, seen)
            for i, name in enumerate(seen.interfaces)
        ],
        **_other_capture(options, base, seen),
        # The engine log as JSON: microsecond times and thread names, which the text has not.
        "logging": {
            "default-log-level": "perf",
            "outputs": [
                {"console": {"enabled": True, "level": "notice"}},
                {
                    "file": {
                        "enabled": True,
                        "level": "perf",
                        "type": "json",
                        "filename": ENGINE_LOG,
                    }
                },
            ],
        },
        # dump-counters is only as fresh as this (measured: 7 s late with the usual 8).
        "stats": {**_table(base, "stats"), "enabled": True, "interval": STATS_INTERVAL_S},
        "outputs": [
            *map(_into_work, _list(base, "outputs")),
            _stats_output(),
            *([_event_output(outcome)] if outcome else []),
        ],
        "unix-command": {"enabled": True, "filename": _socket_path(work)},
    }
    if threading := _threading(options, base, seen):
        document["threading"] = {**_table(base, "threading"), **threading}
    if options.autofp_scheduler is not None:
        document["autofp-scheduler"] = options.autofp_scheduler
    if options.ring_size is not None and options.config is None:
        # A ring that is smaller than this divided by the threads, Suricata makes larger.
        document["max-pending-packets"] = min(MAX_PENDING_PACKETS, options.ring_size)
    document |= {"default-rule-path": work, "rule-files": [f"{work}/{r}" for r in seen.rules]}
    document |= {key: f"{work}/{name}" for key, name in seen.others.items()}
    for path, value in options.overrides.items():
        _put(document, path, value)
    captures = document["af-packet"]
    tables = isinstance(captures, list) and all(isinstance(capture, dict) for capture in captures)
    if not tables or not captures:
        raise BadKey("sut.overrides.af-packet", "must stay a list of tables, one per interface")
    return document


def plain_name(name: str) -> str:
    """A plain name for a file in the work folder: a colon there would divide the words of a
    bind."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:]


def dump(document: Yaml) -> bytes:
    # Suricata asks for the version line. Its reader knows no aliases.
    text = yaml.dump(
        document, Dumper=_PlainDumper, sort_keys=False, version=(1, 1), allow_unicode=True
    )
    return text.encode()


def named_files(document: object) -> list[Path]:
    """Files that a user's own yaml names, if this host has them: rules, classes, thresholds."""
    if isinstance(document, Mapping):
        return named_files(list(document.values()))
    if isinstance(document, Sequence) and not isinstance(document, str):
        return [path for inner in document for path in named_files(inner)]
    is_path = isinstance(document, str) and document.startswith("/") and "\0" not in document
    return [Path(str(document))] if is_path and Path(str(document)).exists() else []


def defrag_configured(document: Yaml) -> bool:
    """True if defrag is on, as Suricata reads it: on for passive capture unless switched off."""
    return all(_is_true(entry.get("defrag", True)) for entry in document["af-packet"])


def defrag_expected(document: Yaml) -> bool:
    """Whether the kernel will merge fragments, as far as the configuration alone can show.

    Suricata gives the flag to cluster_flow groups only (measured: cluster_qm merges nothing), and a
    thread alone on its interface joins no group.
    """
    return defrag_configured(document) and all(
        entry.get("cluster-type", "cluster_flow") == "cluster_flow"
        and str(entry.get("threads", "auto")) != "1"
        for entry in document["af-packet"]
    )


def full_sync_s(document: Yaml) -> float:
    """Time without a packet after which the counters that can be asked for are final."""
    try:
        interval_s = float(document["stats"]["interval"])
    except (KeyError, TypeError, ValueError):
        interval_s = 8.0
    return SYNC_S + interval_s + 0.5


def retire_s(document: Yaml, capture: CaptureKind = "af-packet") -> float:
    """Time after which a block of TPACKET_V3 that is not full has been handed over: at the second
    tick of its timer, for the first only takes note of it (prb_retire_rx_blk_timer_expired); a
    third is for a timer that is late."""
    if capture == "pcap":
        return 3 * PCAP_TIMEOUT_MS / 1000
    given = [str(entry.get("block-timeout", "")) for entry in document["af-packet"]]
    known = [int(ms) if ms.isdecimal() and len(ms) < 10 else BLOCK_TIMEOUT_MS for ms in given]
    return 3 * max(known) / 1000


def _socket_path(work: str) -> str:
    path = f"{work}/{SOCKET}"
    # A run directory of the host may be deeper than sun_path is long; there, a setup starts the
    # program in its work folder.
    return path if len(path.encode()) <= MAX_PATH_BYTES else f"/proc/self/cwd/{SOCKET}"


def _capture(
    options: SuricataOptions,
    base: Yaml,
    interface: str,
    cluster_id: int,
    seen: SuricataPlaces,
) -> Yaml:
    # The entry must name the real interface: `--af-packet=IF` leaves the settings of the list's
    # entries to whatever interface those name.
    entry: Yaml = {
        "interface": interface,
        "threads": 1 if options.runmode == "single" else options.threads,
        "cluster-id": cluster_id,
        "cluster-type": options.cluster_type,
        "defrag": options.defrag,
    }
    given = {
        "ring-size": options.ring_size,
        "block-size": options.block_size,
        "use-mmap": options.use_mmap,
        "tpacket-v3": options.tpacket_v3,
    }
    found = (
        _user_capture(options, base)
        | _unless_left_to(options, entry)
        | {k: v for k, v in given.items() if v is not None}
    )
    # Suricata would take one for each CPU that is online (of cluster_qm: for each queue), and two
    # workers on one CPU wait for each other.
    auto = str(found.get("threads", "auto")) == "auto"
    may = _capture_cpus(options, base, seen)
    if auto and may and found.get("cluster-type") != "cluster_qm":
        found["threads"] = max(1, len(may) // options.ports)
    return found


def _other_capture(options: SuricataOptions, base: Yaml, seen: SuricataPlaces) -> Yaml:
    """The entry of a capture that is not af-packet's. Left to itself, pcap guesses from the first
    1,000 packets whether checksums are checked; af-packet checks them on a veth."""
    if options.capture == "af-packet":
        return {}
    # Suricata 7 and 8 capture with no thread by an entry in `af-xdp:`, and say nothing of it.
    if options.capture == "af-xdp":
        return {"af-xdp": []}
    if options.capture == "dpdk":
        return {"dpdk": dpdk.section(options, base, seen.interfaces[0])}
    entries = _list(base, "pcap") if options.config is not None else []
    own = dict(entries[0]) if entries and isinstance(entries[0], Mapping) else {}
    given = {"buffer-size": options.buffer_bytes} if options.buffer_bytes is not None else {}
    fixed = {"interface": seen.interfaces[0], "threads": 1}
    return {"pcap": [{"checksum-checks": "yes", **own, **given, **fixed}]}


def _capture_cpus(options: SuricataOptions, base: Yaml, seen: SuricataPlaces) -> AbstractSet[int]:
    """CPUs that capture threads may use; empty: not known."""
    own = options.capture_cpus if options.runmode == "autofp" else options.worker_cpus
    if pinned := own or options.pinned_to:
        return set(parse_cpus(pinned))
    affinity = own_affinity(base, seen.online_cpus)
    return seen.cpus if _leaves(affinity, seen) else affinity.get("worker-cpu-set", seen.cpus)


def _threading(options: SuricataOptions, base: Yaml, seen: SuricataPlaces) -> Yaml:
    found: Yaml = {}
    behind = options.detect_threads
    if behind is None and options.runmode == "autofp" and options.config is None:
        may = options.worker_cpus or options.pinned_to
        behind = len(parse_cpus(may) if may else seen.cpus) or None
    if behind is not None:
        # Suricata takes the whole part of this ratio times the CPUs that are online.
        found["detect-thread-ratio"] = (behind + 0.5) / seen.online_cpus
    if options.capture == "dpdk":
        return {**found, **dpdk.affinity(options, seen.cpus)}
    if _leaves(own_affinity(base, seen.online_cpus), seen):
        found["set-cpu-affinity"] = "no"
    if options.role_cpus:
        every = options.pinned_to or ""
        sets = {
            "management-cpu-set": (options.management_cpus or every, "balanced"),
            "receive-cpu-set": (options.capture_cpus or every, "exclusive"),
            "worker-cpu-set": (options.worker_cpus or every, "exclusive"),
        }
        found["set-cpu-affinity"] = True
        found["cpu-affinity"] = [
            {name: {"cpu": list(parse_cpus(cpus)), "mode": mode}}
            for name, (cpus, mode) in sets.items()
        ]
    return found


def own_affinity(base: Yaml, online_cpus: int) -> dict[str, set[int]]:
    """CPU sets to which a user's yaml pins threads."""
    threading = _table(base, "threading")
    if not _is_true(threading.get("set-cpu-affinity")):
        return {}
    entries = threading.get("cpu-affinity")
    found: dict[str, set[int]] = {}
    for table in entries if isinstance(entries, list) else [entries]:
        for name, said in table.items() if isinstance(table, dict) else ():
            words = said.get("cpu") if isinstance(said, dict) else None
            for word in words if isinstance(words, list) else [words]:
                with suppress(ValueError):
                    cpus = range(online_cpus) if word == "all" else parse_cpus(str(word))
                    found.setdefault(name, set()).update(cpus)
    return found


def _leaves(affinity: Mapping[str, AbstractSet[int]], seen: SuricataPlaces) -> bool:
    """Threads would leave the CPUs that they are given, for those of the sender."""
    return bool(seen.cpus) and any(cpus - seen.cpus for cpus in affinity.values())


def _user_capture(options: SuricataOptions, base: Yaml) -> Yaml:
    """Settings of the first entry of a user's af-packet list: theirs is one interface, ours too."""
    if options.config is None:
        return {}
    entries = _list(base, "af-packet")
    own = dict(entries[0]) if entries and isinstance(entries[0], Mapping) else {}
    return {key: value for key, value in own.items() if key not in OF_INLINE}


def inline_words(base: Yaml) -> str:
    """Empty if no entry of a user's af-packet list forwards packets."""
    entries = [one for one in _list(base, "af-packet") if isinstance(one, Mapping)]
    modes = [mode for entry in entries if (mode := str(entry.get("copy-mode", "none"))) in INLINE]
    if not modes:
        return ""
    return (
        f"its af-packet has copy-mode: {modes[0]}, which forwards packets from port to port: "
        "nodrop measures a sensor that listens, so that is left out (copy-mode, copy-iface), and "
        "what inline costs is not measured"
    )


def _unless_left_to(options: SuricataOptions, entry: Yaml) -> Yaml:
    """The part of an interface's entry that goes over a user's yaml: only options that the
    experiment really gives."""
    if options.config is None:
        return entry
    ours = {"interface", "cluster-id"}
    if options.runmode == "single":
        ours.add("threads")
    given = {name.replace("_", "-") for name in options.model_fields_set}
    return {k: v for k, v in entry.items() if k in ours | given}


def _into_work(output: Any) -> Any:
    """A file or folder of a user's outputs with a whole path would be that of the sensor at work:
    its name is kept, below default-log-dir. A socket is not ours to move."""
    if isinstance(output, list):
        return [_into_work(one) for one in output]
    if not isinstance(output, dict):
        return output
    moved = () if str(output.get("filetype", "")).startswith("unix") else OUTPUT_PATHS
    return {
        key: Path(value).name
        if key in moved and isinstance(value, str) and value.startswith("/")
        else _into_work(value)
        for key, value in output.items()
    }


def _stats_output() -> Yaml:
    """nodrop's own record: its last line, written at exit, holds the final counters."""
    types = [{"stats": {"totals": True, "threads": True, "deltas": False}}]
    return {
        "eve-log": {"enabled": True, "filetype": "regular", "filename": STATS_LOG, "types": types}
    }


def _event_output(outcome: Sequence[str]) -> Yaml:
    """nodrop's own record of what is found, whatever the user's outputs are."""
    types = {
        "alerts": {"alert": {"metadata": False, "tagged-packets": False}},
        "flows": "flow",
        "http": {"http": {"extended": False}},
        "dns": "dns",
        "tls": "tls",
    }
    log = {"enabled": True, "filetype": "regular", "filename": EVENT_LOG}
    return {"eve-log": {**log, "types": [types[one] for one in outcome]}}


def _put(document: Yaml, path: str, value: object) -> None:
    """Puts `value` at the dotted path; tables on the way are made, list entries are not."""
    here: Any = document
    *way, last = path.split(".")
    if len(way) > MOST_STEPS:
        raise BadKey(f"sut.overrides.{path[:40]}…", f"has more than {MOST_STEPS} steps")
    for depth, part in enumerate(way):
        here = _step(here, part, path, way[:depth])
    if isinstance(here, list):
        here[_index(here, last, path, way)] = value
    elif isinstance(here, dict):
        here[last] = value
    else:
        raise _no_way(path, way, here)


def _step(here: Any, part: str, path: str, before: Sequence[str]) -> Any:
    if isinstance(here, list):
        return here[_index(here, part, path, before)]
    if not isinstance(here, dict):
        raise _no_way(path, before, here)
    # `- stats:` and `key:` without a value are tables still to be filled.
    if here.get(part) in (None, ""):
        here[part] = {}
    return here[part]


def _index(entries: list[Any], part: str, path: str, before: Sequence[str]) -> int:
    if not part.isdecimal() or len(part) > 6 or int(part) >= len(entries):
        raise BadKey(
            f"sut.overrides.{path[:200]}",
            f"{'.'.join(before)[:80]} is a list of {len(entries)}; "
            f"{part[:20]!r} must be an index from 0 to {len(entries) - 1}",
        )
    return int(part)


def _no_way(path: str, before: Sequence[str], here: object) -> BadInput:
    return BadKey(
        f"sut.overrides.{path}", f"{'.'.join(before)} is the value {here!r}, not a table or list"
    )


def _table(document: Yaml, key: str) -> Yaml:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _list(document: Yaml, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def _is_true(value: object) -> bool:
    return str(value).lower() in ("1", "yes", "true", "on")


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True
