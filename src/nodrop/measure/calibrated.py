"""Which certificate of `nodrop calibrate` a run stands on."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from nodrop import plugins
from nodrop.config.lab_file import LabSource, load_lab
from nodrop.errors import LabProblem
from nodrop.hosts.binary import file_sha256, find_node_binary
from nodrop.hosts.folders import state_folder
from nodrop.hosts.interrupts import interrupts
from nodrop.hosts.journal import DiskJournal
from nodrop.hosts.local import LocalHost
from nodrop.hosts.seam import Json, UndoJournal
from nodrop.labs.seam import Lab
from nodrop.protocol.events import Host as HostFacts
from nodrop.protocol.events import ProbeResult
from nodrop.results.certificate import Certificate, Key, file_name, find_certificate
from nodrop.setups.seam import Limits, Setup
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


TIMEOUT_S = 60.0


def probe_here(word: str) -> ProbeResult:
    """The answer of this host, without a lab."""
    host = LocalHost(name="here", node=find_node_binary(), label="probe")
    with closing(host):
        return host.probe(word, timeout_s=TIMEOUT_S)


def probe_in(word: str, kinds: Sequence[str]) -> dict[str, Json]:
    """Setup → its answer. Whatever a setup runs, only the node runs in it here: no image."""
    setups = {kind: plugins.build_setup({"kind": kind}, base=Path()) for kind in kinds}
    for kind, setup in setups.items():
        if problems := setup.problems(None, Limits()):
            raise LabProblem(f"{kind}: {problems[0]}")
    lab = plugins.build_lab(load_lab(None))
    with interrupts(), DiskJournal.create() as journal:
        return {
            kind: probe_place(word, setup, lab=lab, limits=Limits(), journal=journal)
            for kind, setup in setups.items()
        }


def probe_place(word: str, setup: Setup, *, lab: Lab, limits: Limits, journal: UndoJournal) -> Json:
    """The answer of one setup, in a place of its own; what the place says of itself is `place`."""
    with tempfile.TemporaryDirectory() as work, lab.up(journal) as link:
        place = setup.provision(link, bits=None, limits=limits, work=Path(work), journal=journal)
        with place as env, closing(env.job({"job": "probe", "what": [word]})) as job:
            answer = job.result(timeout_s=TIMEOUT_S)[word]
            return {**answer, "place": env.facts()}
