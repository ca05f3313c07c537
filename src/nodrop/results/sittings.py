"""Sittings of a run: each has a host of its own, and figures of two hosts are two hosts.

A run directory can be copied to another machine and gone on with there, or its machine can have
another kernel or node binary by then. The manifest then has several `sittings`, and trials of a
host that is not the first one bear its name. They are taken as those of a pair of a fleet: each
host counts once, and a comparison holds each cell against the hosts that measured it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

OF_A_HOST = ("nodrop", "node", "lab", "host", "self_test", "calibration", "bits", "parting")
"""Keys of a manifest: what each sitting, and each pair of a fleet, has of its own."""
SAME_HOST = ("hostname", "kernel", "machine", "cpu", "cpu_model", "cpus")
"""Keys of `host` that stay as they are from boot to boot."""


def begun_sitting(manifest: Mapping[str, Any], now: Json) -> list[Json]:
    """All sittings, the new one last. `now` has `machine_sha256`, `began_utc` and those of
    OF_A_HOST; it gets the name of its host."""
    earlier = sittings(manifest)
    names = {_place(one): str(one["name"]) for one in earlier}
    name = names.get(_place(now)) or _free_name(now, [*names.values()])
    return [*earlier, {"name": name, **now}]


def sittings(manifest: Mapping[str, Any]) -> list[Json]:
    """Older manifests have no list: what the first one ran on stands in the manifest itself."""
    listed = manifest.get("sittings")
    if isinstance(listed, list):
        return [one for one in listed if isinstance(one, dict) and one.get("name")]
    if "self_test" not in manifest:
        return []
    first = {key: manifest[key] for key in OF_A_HOST if key in manifest}
    first["began_utc"] = manifest.get("started_utc")
    return [{"name": _free_name(first, []), **first}]


def measured_on(manifest: Mapping[str, Any]) -> Mapping[str, Json]:
    """Name → what the manifest says of each pair of a fleet, or of each host of a run that went on
    elsewhere. Empty if one host measured all."""
    fleet = manifest.get("fleet")
    said = fleet.get("pairs") if isinstance(fleet, dict) else None
    if isinstance(said, dict):
        return {name: one for name, one in said.items() if isinstance(one, dict)}
    hosts = {str(one["name"]): one for one in reversed(sittings(manifest))}
    return dict(reversed(hosts.items())) if len(hosts) > 1 else {}


def first_host(manifest: Mapping[str, Any]) -> str | None:
    """The host of trials that name none; None if no other host measured any."""
    if isinstance(manifest.get("fleet"), dict):
        return None
    return next(iter(measured_on(manifest)), None)


def _place(sitting: Mapping[str, Any]) -> str:
    """A key that two sittings share if their figures are those of one host."""
    host, node = sitting.get("host"), sitting.get("node")
    host = host if isinstance(host, dict) else {}
    memory = host.get("memory")
    return json.dumps(
        [
            sitting.get("machine_sha256"),
            [host.get(key) for key in SAME_HOST],
            memory.get("total_bytes") if isinstance(memory, dict) else host.get("memory_bytes"),
            node.get("sha256") if isinstance(node, dict) else None,
        ],
        sort_keys=True,
    )


def _free_name(sitting: Mapping[str, Any], taken: Sequence[str]) -> str:
    host = sitting.get("host")
    name = str(host.get("hostname") or "") if isinstance(host, dict) else ""
    name, n = name or "first host", 2
    found = name
    while found in taken:
        found, n = f"{name} ({n})", n + 1
    return found
