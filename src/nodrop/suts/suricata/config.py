"""The suricata.yaml of one trial: template or the user's own, what nodrop needs, overrides last."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nodrop.config.units import parse_cpus
from nodrop.errors import BadInput
from nodrop.suts.suricata.control import MAX_PATH_BYTES
from nodrop.suts.suricata.options import SuricataOptions
from nodrop.suts.suricata.template import MAX_PENDING_PACKETS, Yaml, template
from nodrop.untrusted.folder import read_file
from nodrop.untrusted.words import one_line

ENGINE_LOG = "engine.json"
STATS_LOG = "stats.json"
SOCKET = "suricata.socket"
FIRST_CLUSTER_ID = 99
STATS_INTERVAL_S = 1
SYNC_S = 3
"""Capture threads hand over their counters every 3 s: fixed in Suricata's source."""
LONGEST_YAML_BYTES = 4 << 20
MOST_FILES = 64
MOST_STEPS = 64
MOST_NODES = 200_000
"""Suricata's own suricata.yaml has 900."""
BLOCK_TIMEOUT_MS = 10
"""Suricata's own, if af-packet has no block-timeout."""


def load_base(options: SuricataOptions) -> Yaml:
    """The user's suricata.yaml, or our template."""
    if options.config is None:
        return template()
    return _read_yaml(_Source(options.config))


def render(
    options: SuricataOptions,
    base: Yaml,
    *,
    interfaces: Sequence[str],
    work: str,
    rules: Sequence[str],
    online_cpus: int = 1,
) -> Yaml:
    """The whole configuration. `work` and the names of `rules` are as Suricata sees them, and so
    are the CPUs that are online."""
    document = {
        **base,
        "default-log-dir": work,
        "af-packet": [
            _capture(options, base, name, FIRST_CLUSTER_ID - i) for i, name in enumerate(interfaces)
        ],
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
        "outputs": [*_list(base, "outputs"), _stats_output()],
        "unix-command": {"enabled": True, "filename": _socket_path(work)},
    }
    if threading := _threading(options, online_cpus):
        document["threading"] = {**_table(base, "threading"), **threading}
    if options.autofp_scheduler is not None:
        document["autofp-scheduler"] = options.autofp_scheduler
    if options.ring_size is not None and options.config is None:
        # A ring that is smaller than this divided by the threads, Suricata makes larger.
        document["max-pending-packets"] = min(MAX_PENDING_PACKETS, options.ring_size)
    if options.config is None or rules:
        document |= {"default-rule-path": work, "rule-files": [f"{work}/{r}" for r in rules]}
    if options.classification is not None:
        document["classification-file"] = f"{work}/{plain_name(options.classification.name)}"
    for path, value in options.overrides.items():
        _put(document, path, value)
    captures = document["af-packet"]
    tables = isinstance(captures, list) and all(isinstance(one, dict) for one in captures)
    if not tables or not captures:
        raise BadInput("sut.overrides.af-packet: must stay a list of tables, one per interface")
    return document


def plain_name(name: str) -> str:
    """Of a file in the work folder: a colon there would divide the words of a bind."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:]


def dump(document: Yaml) -> bytes:
    # Suricata asks for the version line. Its reader knows no aliases.
    text = yaml.dump(
        document, Dumper=_PlainDumper, sort_keys=False, version=(1, 1), allow_unicode=True
    )
    return text.encode()


def named_files(document: object) -> list[Path]:
    """Of this host, as far as they are there: rules, classes, thresholds of a user's own yaml."""
    if isinstance(document, Mapping):
        return named_files(list(document.values()))
    if isinstance(document, Sequence) and not isinstance(document, str):
        return [path for inner in document for path in named_files(inner)]
    is_path = isinstance(document, str) and document.startswith("/") and "\0" not in document
    return [Path(str(document))] if is_path and Path(str(document)).exists() else []


def defrag_configured(document: Yaml) -> bool:
    """As Suricata reads it: on for passive capture unless switched off."""
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
    """After this long without a packet, the counters that can be asked for are final."""
    try:
        interval_s = float(document["stats"]["interval"])
    except (KeyError, TypeError, ValueError):
        interval_s = 8.0
    return SYNC_S + interval_s + 0.5


def retire_s(document: Yaml) -> float:
    """After this long, a block of TPACKET_V3 that is not full has been handed over: at the second
    tick of its timer, for the first only takes note of it (prb_retire_rx_blk_timer_expired); a
    third is for a timer that is late."""
    given = [str(entry.get("block-timeout", "")) for entry in document["af-packet"]]
    known = [int(ms) if ms.isdecimal() and len(ms) < 10 else BLOCK_TIMEOUT_MS for ms in given]
    return 3 * max(known) / 1000


def _socket_path(work: str) -> str:
    path = f"{work}/{SOCKET}"
    # A run directory of the host may be deeper than sun_path is long; there, a setup starts the
    # program in its work folder.
    return path if len(path.encode()) <= MAX_PATH_BYTES else f"/proc/self/cwd/{SOCKET}"


def _capture(options: SuricataOptions, base: Yaml, interface: str, cluster_id: int) -> Yaml:
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
    return (
        _user_capture(options, base)
        | _unless_left_to(options, entry)
        | {k: v for k, v in given.items() if v is not None}
    )


def _threading(options: SuricataOptions, online_cpus: int) -> Yaml:
    found: Yaml = {}
    if options.detect_threads is not None:
        # Suricata takes the whole part of this ratio times the CPUs that are online.
        found["detect-thread-ratio"] = (options.detect_threads + 0.5) / online_cpus
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


def _user_capture(options: SuricataOptions, base: Yaml) -> Yaml:
    """Settings of the first entry of a user's af-packet list: theirs is one interface, ours too."""
    if options.config is None:
        return {}
    entries = _list(base, "af-packet")
    return dict(entries[0]) if entries and isinstance(entries[0], Mapping) else {}


def _unless_left_to(options: SuricataOptions, entry: Yaml) -> Yaml:
    """With a user's yaml, only options that the experiment really gives go over it."""
    if options.config is None:
        return entry
    ours = {"interface", "cluster-id"}
    if options.runmode == "single":
        ours.add("threads")
    given = {name.replace("_", "-") for name in options.model_fields_set}
    return {k: v for k, v in entry.items() if k in ours | given}


def _stats_output() -> Yaml:
    """nodrop's own record: its last line, written at exit, holds the final counters."""
    types = [{"stats": {"totals": True, "threads": True, "deltas": False}}]
    return {
        "eve-log": {"enabled": True, "filetype": "regular", "filename": STATS_LOG, "types": types}
    }


def _put(document: Yaml, path: str, value: object) -> None:
    """Puts `value` at the dotted path; tables on the way are made, list entries are not."""
    here: Any = document
    *way, last = path.split(".")
    if len(way) > MOST_STEPS:
        raise BadInput(f"sut.overrides.{path[:40]}…: has more than {MOST_STEPS} steps")
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
        raise BadInput(
            f"sut.overrides.{path[:200]}: {'.'.join(before)[:80]} is a list of {len(entries)}; "
            f"{part[:20]!r} must be an index from 0 to {len(entries) - 1}"
        )
    return int(part)


def _no_way(path: str, before: Sequence[str], here: object) -> BadInput:
    return BadInput(
        f"sut.overrides.{path}: {'.'.join(before)} is the value {here!r}, not a table or list"
    )


def _table(document: Yaml, key: str) -> Yaml:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _list(document: Yaml, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def _is_true(value: object) -> bool:
    return str(value).lower() in ("1", "yes", "true", "on")


# --- YAML as Suricata reads it ------------------------------------------------------------------


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


class _TextLoader(yaml.BaseLoader):
    """Every scalar stays text, as in Suricata: `yes`, `0777`, `12:30` come out as they went in."""

    source: _Source


class _Source:
    """A file, the files that include it, and how many there may still be."""

    def __init__(self, path: Path, outer: _Source | None = None) -> None:
        self.path = path
        self._chain: tuple[Path, ...] = (*(outer._chain if outer else ()), path.resolve())
        self._left: list[None] = outer._left if outer else [None] * MOST_FILES
        if self._chain.count(path.resolve()) > 1:
            raise BadInput(f"sut.config: {path}: includes itself")
        if not self._left:
            raise BadInput(f"sut.config: {path}: more than {MOST_FILES} files are included")
        self._left.pop()

    def included(self, name: object) -> Yaml:
        if not isinstance(name, str):
            raise BadInput(f"sut.config: {self.path}: include needs a file name")
        return _read_yaml(_Source(self.path.parent / name, self))


def _include(loader: _TextLoader, node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.constructor.ConstructorError(None, None, "!include needs a file name")
    return loader.source.included(node.value)


_TextLoader.add_constructor("!include", _include)


def _read_yaml(source: _Source) -> Yaml:
    path = source.path
    try:
        loader = _TextLoader(read_file(path, most_bytes=LONGEST_YAML_BYTES))
        loader.source = source
        document = loader.get_single_data()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"sut.config: {path}: {_one_line(error)}") from None
    except RecursionError:
        raise BadInput(f"sut.config: {path}: is nested too deep") from None
    if not isinstance(document, dict):
        raise BadInput(f"sut.config: {path}: must be a table of settings, as suricata.yaml is")
    _check_size(document, path)
    return _with_includes(document, source)


def _check_size(document: Yaml, path: Path) -> None:
    """As it will be written, for Suricata's reader: without aliases."""
    left = MOST_NODES
    open_values: list[tuple[int, Any]] = [(0, document)]
    while open_values:
        depth, value = open_values.pop()
        if not isinstance(value, dict | list):
            continue
        left -= len(value)
        if left < 0:
            raise BadInput(f"sut.config: {path}: has more than {MOST_NODES:,} settings")
        if depth > MOST_STEPS:
            raise BadInput(f"sut.config: {path}: is nested deeper than {MOST_STEPS}")
        inner = value.values() if isinstance(value, dict) else value
        open_values += [(depth + 1, one) for one in inner]


def _with_includes(document: Yaml, source: _Source) -> Yaml:
    """Top-level `include:` of one file or a list; a later setting replaces an earlier one."""
    merged: Yaml = {}
    for key, value in document.items():
        if key == "include":
            for name in value if isinstance(value, list) else [value]:
                merged |= source.included(name)
        else:
            merged[key] = value
    return merged


def _one_line(error: Exception) -> str:
    return one_line(error, longest=400)
