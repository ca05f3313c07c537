"""Which certificate of `nodrop calibrate` a run stands on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from nodrop.config.lab_file import LabSource
from nodrop.hosts.binary import file_sha256, find_node_binary
from nodrop.hosts.folders import state_folder
from nodrop.hosts.seam import Json
from nodrop.measure.probing import probe_here
from nodrop.protocol.events import Host as HostFacts
from nodrop.results.certificate import Certificate, Key, file_name, find_certificate
from nodrop.untrusted.folder import Folder

MACHINE_ID = Path("/etc/machine-id")


def certificate_folder() -> Path:
    return state_folder() / "calibrate"


def key_of(lab: LabSource, setup: str, host: HostFacts, node: Path) -> Key:
    """`host` is the answer of `probe host`."""
    return Key(
        host=machine_sha256(host),
        kernel=str(host.get("kernel", "")),
        lab_sha256=_sha256(dict(lab.table)),
        setup=setup,
        node_sha256=file_sha256(node),
    )


def store(certificate: Certificate) -> Path:
    """The only certificate of its key from now on."""
    folder, name = certificate_folder(), file_name(certificate.key)
    folder.mkdir(parents=True, exist_ok=True)
    Folder(folder).write(name, certificate.to_text().encode())
    return folder / name


def stands_on(lab: LabSource, setups: Iterable[str], host: HostFacts) -> list[Json]:
    """For the manifest: the certificate of each setup, or why there is none."""
    node = find_node_binary()
    return [
        _standing(setup, find_certificate(certificate_folder(), key_of(lab, setup, host, node)))
        for setup in sorted(set(setups))
    ]


def standing_here(lab: LabSource, setups: Iterable[str]) -> list[Json]:
    """Each setup's certificate on this host, or why there is none; for `nodrop doctor`."""
    return stands_on(lab, setups, probe_here("host")["host"])


def standing_words(standing: Json) -> str:
    setup, certificate = standing["setup"], standing["certificate"]
    if certificate is None:
        return f"{setup}: not calibrated ({standing['not_calibrated']})"
    missed = ", ".join(certificate["missed"])
    return f"{setup}: calibrated {certificate['made_utc']}" + (
        f", missed {missed}" if missed else ""
    )


def _standing(setup: str, found: Certificate | str) -> Json:
    if isinstance(found, str):
        return {"setup": setup, "certificate": None, "not_calibrated": found}
    loss, pace = found.smallest_loss, found.pace
    return {
        "setup": setup,
        "not_calibrated": None,
        "certificate": {
            "sha256": found.sha256,
            "made_utc": found.made_utc,
            "nodrop": found.nodrop,
            "caught": found.named("caught"),
            "missed": found.named("missed"),
            "not_possible": found.named("not possible here"),
            "smallest_loss": None if loss is None else loss.model_dump(),
            "largest_pps_paced": None if pace is None else pace.largest_pps,
            "clock_bound_ns": max((clock.bound_ns for clock in found.clocks), default=None),
        },
    }


def machine_sha256(host: HostFacts) -> str:
    """Hash that identifies the machine, also after a reboot; machine-id(5) asks for a hash."""
    try:
        machine = MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    cpu = host.get("cpu") or {}
    return _sha256([machine or host.get("hostname"), cpu.get("model"), cpu.get("cpus")])


def _sha256(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
