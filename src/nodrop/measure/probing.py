"""Questions to a CPU, asked inside the places that a SUT would run in."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nodrop import plugins
from nodrop.config.lab_file import load_lab
from nodrop.errors import LabProblem
from nodrop.hosts.binary import find_node_binary
from nodrop.hosts.interrupts import interrupts
from nodrop.hosts.journal import DiskJournal
from nodrop.hosts.local import LocalHost
from nodrop.hosts.seam import Json, UndoJournal
from nodrop.labs.seam import Lab
from nodrop.protocol.events import ProbeResult
from nodrop.setups.seam import Limits, Setup

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
