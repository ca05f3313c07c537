"""Baselines: the detections that the SUT of a cell is to find in its load, measured once before the
first trial and kept.

The SUT reads the trace itself, then captures it twice at a low load, with a large ring. Trials that
lost something are no baseline. What was found is kept in the cache folder by the content of all
that decides it: program, configuration, rules, trace and replicas.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nodrop import plugins
from nodrop.config.experiment import Measure
from nodrop.config.lab_file import LabSource, load_lab
from nodrop.config.units import count_of
from nodrop.detections import Baseline, FoundDetections, keep, kept_baselines
from nodrop.errors import LabProblem, TrialFailed, interrupts
from nodrop.ledger.hops import Class
from nodrop.measure.api import Trial
from nodrop.measure.cells import Cell, Table
from nodrop.measure.preflight import Parts
from nodrop.measure.worlds import Worlds
from nodrop.protocol import Host as HostFacts
from nodrop.protocol import ProbeResult
from nodrop.results.calibration import Certificate, Key, file_name, find_certificate
from nodrop.results.layout import TrialFolder
from nodrop.testbed.hosts.api import Json, UndoJournal
from nodrop.testbed.hosts.folders import cache_folder, state_folder
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.hosts.local import LocalHost, run_command
from nodrop.testbed.hosts.node import file_sha256, find_node_binary
from nodrop.testbed.labs.api import Lab
from nodrop.testbed.load.api import TraceFacts
from nodrop.testbed.setups.api import Limits, Setup
from nodrop.testbed.suts.api import Detecting
from nodrop.untrusted.folder import Folder, read_file

VERSION = 1
"""Version of the kept baselines: it grows when the same input gives other units."""
LIVE_TRIALS = 2
STANDING_TRIALS = 3
"""Two of one start, whose second brings other addresses as every later one does, and one of another
start."""
LOW_PPS = 5_000.0
LIVE_S = 20.0
"""A longer trace is sent faster, within `LOW_PPS`."""
LONGEST_LIVE_S = 180.0
"""Longest time of a live baseline; beyond it the SUT's own reading has to do."""
REPLICATE_TIMEOUT_S = 600.0
LONGEST_KEPT = 512 << 20


class Baselines:
    def __init__(
        self,
        parts: Parts,
        measure: Measure,
        worlds: Worlds,
        note: Callable[[str], None],
        *,
        replicas: bool = False,
    ) -> None:
        """`replicas`: a search varies their number, so that live trials of each would take longer
        than the search."""
        self._parts, self._outcome, self._worlds, self._note = parts, measure.outcome, worlds, note
        self._stands, self._replicas = measure.sut == "standing", replicas
        self._wanted = STANDING_TRIALS if self._stands else LIVE_TRIALS
        self._known: dict[str, Baseline] = {}
        self._noted: set[str] = set()

    def of(self, cell: Cell, load: Table, phase: Callable[[str], None]) -> Baseline | None:
        """None if the experiment asks for no detections."""
        if not self._outcome or not isinstance(sut := self._parts.sut(cell), Detecting):
            return None
        # What is withheld is expected all the same.
        load = {name: said for name, said in load.items() if name != "withhold"}
        key = self._key(cell, sut, load)
        path = cache_folder() / "baselines" / f"{key}.json"
        if key not in self._known and path.is_file():
            kept = read_file(path, most_bytes=LONGEST_KEPT)
            self._known[key] = kept_baselines().validate_json(kept)
        if key not in self._known:
            phase("baseline")
            self._known[key] = found = self._measured(cell, sut, load)
            if (words := found.words or found.why) not in self._noted:
                self._noted.add(words)  # each load of a search by replicas has a baseline
                self._note(f"baseline: {words}")
            if len(found.live) == self._wanted and found.offline is not None:
                keep(path, kept_baselines().dump_python(found, mode="json"))
        return self._known[key]

    def _key(self, cell: Cell, sut: Detecting, load: Table) -> str:
        facts = self._trace(load)
        sent = {name: load.get(name) for name in ("multiplier", "flow_seed", "flows")}
        decides = {
            "version": VERSION,
            "outcome": [*self._outcome],
            "sut": sut.detection_key(self._parts.bits(cell)),
            "trace": facts.sha256,
            "sent": sent,
            **({"standing": True} if self._stands else {}),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _trace(self, load: Table) -> TraceFacts:
        facts = self._parts.load(load).trace_facts()
        assert facts is not None, "suts.api.must_be_detectable wants a trace"
        return facts

    def _measured(self, cell: Cell, sut: Detecting, load: Table) -> Baseline:
        offline, why = None, []
        try:
            with self._as_sent(load) as trace:
                offline = sut.offline(self._parts.bits(cell), trace, standing=self._stands)
        except LabProblem as problem:
            why.append(str(problem))
        if offline is not None and self._replicas and load.get("multiplier", 1) != 1:
            return self._of_replicas(cell, load, offline)
        baseline = self.found_by(cell, sut, load, offline)
        return replace(baseline, why="; ".join(filter(None, (*why, baseline.why))))

    def _of_replicas(self, cell: Cell, load: Table, offline: FoundDetections) -> Baseline:
        """The SUT's own reading of all the replicas, without the rules in which its reading of one
        differs from trials of it."""
        one = self.of(cell, {**load, "multiplier": 1}, lambda _: None)
        if one is None or one.offline is None or not one.live:
            return Baseline(offline=offline, why=one.why if one else "")
        differing = {sid for sid, _ in one.offline.units ^ one.expected}
        return Baseline(offline=offline.without(differing), why=f"of one replica: {one.words}")

    def found_by(
        self, cell: Cell, sut: Detecting, load: Table, offline: FoundDetections | None
    ) -> Baseline:
        """Trials that lost nothing, beside the SUT's own reading; `why` says what became of the
        others if there are fewer than wanted."""
        live, spoilt = self._live(cell, sut, load)
        few = count_of(len(live), "lossless trial") if live else "no lossless trial"
        why = f"{few}: {'; '.join(dict.fromkeys(spoilt))}" if len(live) < self._wanted else ""
        return Baseline(offline=offline, live=live, why=why)

    @contextmanager
    def _as_sent(self, load: Table) -> Iterator[Path]:
        """The packets of the load as a file that any SUT reads."""
        facts = self._trace(load)
        with TemporaryDirectory(prefix="nodrop-") as folder:
            out = Path(folder) / "sent.pcap"
            words = {
                "--multiplier": load.get("multiplier", 1),
                "--flow-seed": load.get("flow_seed"),
            }
            options = [str(part) for key, said in words.items() if said for part in (key, said)]
            cut = ["--tolerate-truncated"] if load.get("tolerate_truncated") else []
            node = str(find_node_binary())
            argv = [node, "trace", "replicate", str(facts.path), str(out), *options, *cut]
            run_command(argv, where="measure.outcome", timeout_s=REPLICATE_TIMEOUT_S)
            yield out

    def _live(
        self, cell: Cell, sut: Detecting, load: Table
    ) -> tuple[list[FoundDetections], list[str]]:
        """Detections of trials that lost nothing, and in words what became of the others."""
        facts = self._trace(load)
        packets = facts.planned.packets
        pps = min(LOW_PPS, packets / min(LIVE_S, facts.duration_s or LIVE_S))
        if packets / pps > LONGEST_LIVE_S:
            return [], [f"it would take {packets / pps:,.0f} s at {pps:,.0f} packets/s"]
        found: list[FoundDetections] = []
        spoilt: list[str] = []
        with TemporaryDirectory(prefix="nodrop-") as above:
            try:
                while len(found) < self._wanted and len(found) + len(spoilt) <= self._wanted:
                    folder = TrialFolder.within(Path(above), f"baseline-{len(found) + len(spoilt)}")
                    speed = facts.duration_s * pps / packets if facts.duration_s else 1.0
                    new = not (self._stands and len(found) == 1)
                    one = self._trial(cell, sut, _at_speed(load, speed), folder, new=new)
                    if isinstance(one, str):
                        spoilt.append(f"at {pps:,.0f} packets/s: {one}")
                        pps /= 2
                    else:
                        found.append(one)
            except (LabProblem, TrialFailed, OSError) as problem:
                spoilt.append(str(problem))
            finally:
                self._worlds.leave()  # its files are in the folder
        return found, spoilt

    def _trial(
        self, cell: Cell, sut: Detecting, load: Table, folder: TrialFolder, *, new: bool
    ) -> FoundDetections | str:
        """Detections of a trial; the verdict of one that lost packets, failed or is void."""
        low = replace(cell, load=load, sut={**cell.sut, **sut.roomy}, profile=False)
        trial = Trial(index=0, folder=folder, watch=lambda _: None, tell=lambda _: None)
        with self._worlds.standing(low, trial, load=load, new=new) as standing:
            seen = standing.measure(load, trial)
        ledger, verdict = seen.packets.ledger, seen.verdict
        if seen.no_ratio:
            return seen.no_ratio
        clean = ledger is not None and ledger.closed and ledger.total(Class.LOST) == 0
        if clean and verdict and verdict.outcome == "measured" and seen.found is not None:
            return seen.found
        return verdict.words if verdict and verdict.words else "its books do not close"


def _at_speed(load: Table, speed: float) -> Table:
    paced = ("pps", "top_speed", "ramp", "speed")
    return {key: said for key, said in load.items() if key not in paced} | {"speed": speed}


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
    """The certificate of each setup, or the reason why it has none, for the manifest."""
    node = find_node_binary()
    return [
        _standing(setup, find_certificate(certificate_folder(), key_of(lab, setup, host, node)))
        for setup in sorted(set(setups))
    ]


def standing_here(lab: LabSource, setups: Iterable[str]) -> list[Json]:
    """The certificate of each setup on this host, or the reason why it has none, for `doctor`."""
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
