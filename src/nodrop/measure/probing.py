"""Questions to a CPU, asked in the places where a SUT would run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from nodrop import plugins
from nodrop.config.lab_file import load_lab
from nodrop.errors import LabProblem
from nodrop.lab.binary import find_node_binary
from nodrop.lab.host import LocalHost
from nodrop.lab.image import find_bits
from nodrop.lab.interrupts import interrupts
from nodrop.lab.journal import DiskJournal
from nodrop.lab.netns import NetnsLab
from nodrop.lab.seam import Json
from nodrop.setups.seam import Limits

TIMEOUT_S = 60.0
IMAGE = "suricata"
"""Whichever is in the cache: only the node runs in it."""


def probe_here(word: str) -> Json:
    """The answer of this host, without a lab."""
    host = LocalHost(name="here", node=find_node_binary(), label="probe")
    found: Json = host.probe(word, timeout_s=TIMEOUT_S)[word]
    return found


def probe_in(word: str, kinds: Sequence[str]) -> dict[str, Json]:
    """Setup → its answer, with what the setup says of itself beside it (`place`)."""
    setups = {kind: plugins.build_setup({"kind": kind}, base=Path()) for kind in kinds}
    bits = find_bits(IMAGE)
    for kind, setup in setups.items():
        if problems := setup.problems(bits, Limits()):
            raise LabProblem(f"{kind}: {problems[0]}")
    lab = NetnsLab(name=load_lab(None).file.name)
    found = {}
    with interrupts(), DiskJournal.create() as journal:
        for kind, setup in setups.items():
            with tempfile.TemporaryDirectory() as work, lab.up(journal) as link:
                place = setup.provision(
                    link, bits=bits, limits=Limits(), work=Path(work), journal=journal
                )
                with place as env, closing(env.job({"job": "probe", "what": [word]})) as job:
                    answer = job.result(timeout_s=TIMEOUT_S)[word]
                    found[kind] = {**answer, "place": env.facts()}
    return found
