"""Everything that can be known before a run touches anything: parts built, problems collected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.config.units import format_cpus, parse_cpus
from nodrop.errors import BadInput, BadKey, LabProblem, NotReady
from nodrop.ledger.outcome import Problem, Reason
from nodrop.measure.cells import Cell, Table, port_traces, sender_problems, traces_of
from nodrop.measure.plan import Plan
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.images.bootstrap import image_programs
from nodrop.testbed.images.image_tree import Bits, first_difference
from nodrop.testbed.images.recipe import default_release, recipes
from nodrop.testbed.images.sut_bits import must_be_there, resolve_bits, script_problem
from nodrop.testbed.labs.api import Lab, Receiving
from nodrop.testbed.labs.split import split_problems
from nodrop.testbed.load.api import LoadGenerator
from nodrop.testbed.setups.api import Setup, missing_cpus, pin_problems
from nodrop.testbed.suts.api import Detecting, Sut, must_be_detectable

_AGAIN = "make it again with `nodrop image build`"

PartT = TypeVar("PartT")


@dataclass(slots=True)
class PreflightFindings:
    """Findings of several checks, each of them once."""

    problems: dict[str, None] = field(default_factory=dict)
    refused: list[BadInput] = field(default_factory=list)
    """Faults of the question."""

    def ask(self, check: Callable[[], Iterable[str]]) -> bool:
        """Asks a check, and says whether it has found something."""
        try:
            words = [*check()]
        except BadInput as refused:
            if str(refused) not in map(str, self.refused):
                self.refused.append(refused)
            return True
        except LabProblem as problem:
            words = [str(problem)]
        self.problems |= dict.fromkeys(words)
        return bool(words)


WHERE_TUNED = (
    'tune: knobs are set in a lab of network namespaces with setup.kind = "bare"; elsewhere set '
    "them yourself (`nodrop tune apply`)"
)


class Parts:
    """Parts that the cells of a plan are made of, each built once per different table."""

    plan: Plan
    """The plan as it can be measured in this lab, once `problems` has looked."""

    def __init__(self, experiment: Experiment, lab: LabSource, plan: Plan) -> None:
        self._base = experiment.base
        self.plan = plan
        self._reset = experiment.measure.reset
        self._outcome = experiment.measure.outcome
        self._stands = experiment.measure.sut == "standing"
        self._built: dict[tuple[str, str], Any] = {}
        self._bits: dict[str, Bits | None] = {}
        self._hashes: dict[Path, str] = {}
        self._traces: dict[str, str | None] = {}
        self._lacking: dict[str, str] = {}
        """Program → words, if the sender lacks it."""
        self.lab: Lab = plugins.build_lab(lab).carrying(self._longest_frame_bytes())

    def lab_of(self, cell: Cell) -> Lab:
        """The lab with the ports that a cell asks for."""
        self._must_fit_cables(cell)
        asked = cell.receiving
        if cell.tune and (self.lab.mtu is None or cell.setup["kind"] != "bare"):
            raise BadInput(WHERE_TUNED)
        if asked == Receiving():
            return self.lab
        if self.lab.mtu is None:
            key, how = ("queues", "ethtool -L") if asked.queues > 1 else ("rps_cpus", "in /sys")
            raise BadKey(
                f"setup.{key}",
                f"the ports of lab {self.lab.name} are not nodrop's: leave it out, "
                f"and set theirs yourself ({how})",
            )
        return self.lab.receiving(asked)

    def _must_fit_cables(self, cell: Cell) -> None:
        cables = self.lab.cables
        if cables == 1 or cell.ports == 1:
            return
        way = f"lab {self.lab.name} has a cable to each of {cables} ports"
        if cell.ports != cables:
            raise BadKey(
                "sut.ports",
                f"{way}; set sut.ports = {cables}, or leave it out for the first alone",
                given=str(cell.ports),
            )
        if cell.splitter.kind != "nft":
            raise BadKey(
                "setup.splitter",
                f"{way}, and the sender shares flows among them; leave it out",
                given=f'"{cell.splitter.kind}"',
            )
        if self.load(cell.load).name != "replay":
            raise BadKey(
                "load.kind",
                f'{way}, and it sends by one port; set load.kind = "replay", or leave '
                "sut.ports out",
                given=f'"{cell.load["kind"]}"',
            )

    def setup(self, cell: Cell) -> Setup:
        return self._part(plugins.build_setup, cell.setup)

    def sut(self, cell: Cell) -> Sut:
        return self._part(self._build_sut if self._outcome else plugins.build_sut, cell.sut)

    def _build_sut(self, table: Table, *, base: Path) -> Sut:
        sut = plugins.build_sut(table, base=base)
        return sut.detecting(self._outcome) if isinstance(sut, Detecting) else sut

    def load(self, table: Table) -> LoadGenerator:
        """Generator of a cell's [load] table, or of what a controller makes of it."""
        return self._part(plugins.build_load, table)

    def bits(self, cell: Cell) -> Bits | None:
        key = _key(cell.sut)
        if key not in self._bits:
            sut = self.sut(cell)
            recipe = sut.needs_bits()
            self._bits[key] = (
                None
                if recipe is None
                else resolve_bits(cell.sut, recipe, base=self._base, version=sut.version)
            )
        return self._bits[key]

    def files_sha256(self, cell: Cell) -> Mapping[str, str]:
        """Hashes of files its SUT is shown, made once: a file that changes later is another
        file."""
        files = self.sut(cell).files()
        for path in files.values():
            if path not in self._hashes:
                self._hashes[path] = file_sha256(path)
        return {name: self._hashes[path] for name, path in files.items()}

    def other_trace(self, load: Table) -> Problem | None:
        """A problem if the load's trace is not the one that the run began with. BadInput if it is
        gone."""
        facts = self.load(load).trace_facts()
        now = None if facts is None else facts.sha256
        if now == self._traces.setdefault(_trace_key(load), now):
            return None
        words = "load.trace: the file is not the one that the run began with (another sha256)"
        return Problem(code=Reason.OTHER_FILES, words=words)

    def inputs(self, cell: Cell) -> Json:
        """Inputs of a cell by content: a file replaced under its name is another input."""
        bits = self.bits(cell)
        facts = self.load(cell.load).trace_facts()
        trace = None if facts is None else facts.sha256
        files = dict(self.files_sha256(cell))
        files |= self.sut(cell).inputs_sha256()
        files |= self.load(cell.load).inputs_sha256()
        return {
            "trace": self._traces.setdefault(_trace_key(cell.load), trace),
            "files": files,
            "bits": None if bits is None else bits.sha256,
        }

    def facts(self) -> Json:
        """Facts of every different part, for the manifest; a part is named by what differs."""
        suts: Json = {}
        loads: Json = {}
        bits: Json = {}
        for cell in self.plan.cells:
            sut = self.sut(cell)
            suts[_key(cell.sut)] = {"name": sut.name, **sut.facts()}
            self.files_sha256(cell)
            loads[_key(cell.load)] = self.load(cell.load).facts()
            if found := self.bits(cell):
                bits[found.sha256] = {
                    "kind": found.kind,
                    "path": str(found.path),
                    "sha256": found.sha256,
                    "version": found.version,
                    "packages": dict(found.packages),
                }
        return {
            "lab": self.lab.facts(),
            "bits": list(bits.values()),
            "suts": list(suts.values()),
            "loads": list(loads.values()),
        }

    def notes(self) -> list[str]:
        """Notes on which bits run: another version would be another measurement."""
        said = {}
        for cell in self.plan.cells:
            if (bits := self.bits(cell)) is not None:
                where = f"image {bits.sha256[:12]}" if bits.kind == "image" else bits.path
                said[bits.sha256] = f"{self.sut(cell).name} {bits.version or '?'}: {where}"
        return list(said.values())

    def problems(self) -> list[str]:
        """All that stands in the way, each in words a user can act on; each said once. BadInput if
        the question itself is at fault."""
        found = self.look(reads_images=True)
        if found.refused:
            raise found.refused[0]
        return [*found.problems]

    def look(self, *, reads_images: bool) -> PreflightFindings:
        """Every check is made, whatever the others say. To compare an image with its hash takes
        seconds."""
        found = PreflightFindings()
        found.ask(self._reset_problems)
        of_lab = found.ask(self.lab.problems)
        in_common = self.lab.cpus_in_common()
        self.plan = self.plan.on(in_common)
        for cell in self.plan.cells:
            load, sut = partial(self.load, cell.load), partial(self.sut, cell)
            bits = self._bits_of(cell, found)
            found.ask(partial(self._place_problems, cell, bits, in_common))
            found.ask(partial(self._no_problems, self.lab_of, cell))
            found.ask(partial(self._split_problems, cell))
            found.ask(partial(self._misplaced, cell))
            if self._outcome:
                found.ask(partial(must_be_detectable, sut(), cell.load, standing=self._stands))
            if bits is not None or sut().needs_bits() is None:
                found.ask(partial(_of_sut, sut, bits))
            found.ask(partial(_of_load, load))
            found.ask(partial(self._program_problems, load, reached=not of_lab))
        for bits in self._bits.values() if reads_images else ():
            if bits is not None and bits.path.exists() and (other := first_difference(bits)):
                words = f"the image is not what its sha256 stands for: {other}; {_AGAIN}"
                found.problems[words] = None
        return found

    def _bits_of(self, cell: Cell, found: PreflightFindings) -> Bits | None:
        def bits() -> list[str]:
            must_be_there(self.bits(cell))
            return [*filter(None, [script_problem(self.bits(cell))])]

        found.ask(bits)
        return self._bits.get(_key(cell.sut))

    def _place_problems(
        self, cell: Cell, bits: Bits | None, in_common: AbstractSet[int]
    ) -> list[str]:
        setup = self.setup(cell)
        return [
            *setup.problems(bits, cell.limits),
            *_receiving_problems(cell.receiving),
            *pin_problems(self.sut(cell).pins, setup.cpus(cell.limits)),
            *sender_problems(cell.load, in_common),
        ]

    def _no_problems(self, build: Callable[[Cell], object], cell: Cell) -> list[str]:
        build(cell)
        return []

    def _reset_problems(self) -> Sequence[str]:
        if self._reset == "none":
            return ()
        lab = resettable(self.lab, self._reset)
        return lab.driver_problems() if self._reset == "module" else ()

    def _program_problems(self, build: Callable[[], LoadGenerator], *, reached: bool) -> list[str]:
        load = build()
        program = load.program
        if not program:
            return []
        if (reached or not self.lab.ends()) and program not in self._lacking:
            self._lacking[program] = self.lab.lacking(program)
        return [*filter(None, [self._lacking.get(program)])]

    def _split_problems(self, cell: Cell) -> list[str]:
        if cell.instances == 1 and (cell.ports == 1 or self.lab.cables > 1):
            return []
        found = [*split_problems(cell.splitter)]
        load = self.load(cell.load)
        led = load.writes_dst_macs or port_traces(cell.load)
        if cell.splitter.by_address and not led:
            found.append(
                f'load.kind = "{load.name}" does not write the address of a receiver into frames, '
                f'which setup.splitter = "{cell.splitter.kind}" needs to split them: set load.kind '
                '= "replay"'
            )
        return found

    def _misplaced(self, cell: Cell) -> list[str]:
        """Problems of a load or a SUT that cannot be used in every setup and lab."""
        load, sut, setup = self.load(cell.load), self.sut(cell), self.setup(cell).name
        mtu = self.lab.mtu
        why = [without_device(self.setup(cell), sut, mtu)]
        alone = cell.instances == 1 and cell.ports == 1
        why.append(load.misplaced(setup, mtu=mtu, alone=alone))
        why.append(sut.misplaced(setup, mtu=mtu, standing=self._stands))
        return [words for words in why if words]

    def _longest_frame_bytes(self) -> int:
        cells = self.plan.cells
        traces = traces_of(self.load(cell.load) for cell in cells)
        return max((facts.longest_frame_bytes for facts in traces), default=0)

    def _part(self, build: Callable[..., PartT], table: Mapping[str, Any]) -> PartT:
        key = (build.__name__, _key(table))
        if key not in self._built:
            self._built[key] = build(table, base=self._base)
        part: PartT = self._built[key]
        return part


def without_device(setup: Setup, sut: Sut, mtu: int | None) -> str:
    """Why this SUT cannot have the receiving NIC to itself, in words; "" if it can, or need not."""
    if not setup.gives_device:
        return ""
    if not sut.drives_device:
        return (
            f'setup.kind = "{setup.name}" leaves the receiving NIC to the SUT, and this one drives '
            'none: use Suricata with sut.capture = "dpdk", or setup.kind = "bare"'
        )
    if mtu is not None:
        return (
            f'setup.kind = "{setup.name}" needs a lab with real NICs: the ports of this one are no '
            'PCI devices; use setup.kind = "bare"'
        )
    return ""


def _receiving_problems(asked: Receiving) -> Sequence[str]:
    if not (cpus := format_cpus(asked.rps_cpus)):
        return ()
    # Not those that this process may use: the kernel's softirqs keep to no affinity.
    here = {*parse_cpus(Path("/sys/devices/system/cpu/online").read_text().strip())}
    found = [*missing_cpus("setup.rps_cpus", cpus, here, "this host has no")]
    if not is_root_of_the_host():
        found.append("setup.rps_cpus: only root may set it: run nodrop as root, or leave it out")
    return found


def resettable(lab: Lab, how: str) -> Lab:
    """BadInput if it makes no sense: the machine that would boot is the one that measures."""
    if why := lab.cannot_reset(how):
        raise BadKey("measure.reset", f"not in this lab: {why}", given=f'"{how}"')
    return lab


def _parts(experiment: Experiment, lab: LabSource, plan: Plan) -> Parts:
    plugins.build_lab(lab)  # what is wrong with its file is no fault of the experiment's
    return experiment.blaming(lambda: Parts(experiment, lab, plan))


def preflight(experiment: Experiment, lab: LabSource, plan: Plan) -> Parts:
    """The parts, or the first problem: BadInput for the question, NotReady for the host."""
    try:
        parts = _parts(experiment, lab, plan)
        problems = experiment.blaming(parts.problems)
    except LabProblem as problem:
        raise NotReady(problem.message, hint=problem.hint) from problem
    if problems:
        more = f" (and {len(problems) - 1} more: run `nodrop doctor`)" if problems[1:] else ""
        raise NotReady(problems[0] + more)
    return parts


def doctor(experiment: Experiment, lab: LabSource, plan: Plan) -> tuple[list[str], list[str]]:
    """Every problem at once, for `nodrop doctor`, and notes on the plan."""
    problems, seen = _looked(experiment, lab, plan, reads_images=True)
    return problems, seen.notes()


def programs(experiment: Experiment, lab: LabSource, plan: Plan) -> set[str]:
    """Programs that a run starts on this host. For a SUT that is not here they are those that make
    its image, or the SUT's own where no recipe is for this host."""
    try:
        parts = _parts(experiment, lab, plan)
    except (BadInput, LabProblem):
        return set()
    found = set(parts.lab.programs)
    if not found:
        return found
    for cell in parts.plan.cells:
        with suppress(BadInput, LabProblem):
            load = parts.load(cell.load)
            found |= {load.program} - {""}
            found |= _programs_of_sut(parts, cell)
    return found


def _programs_of_sut(parts: Parts, cell: Cell) -> set[str]:
    recipe = parts.sut(cell).needs_bits()
    try:
        if recipe is None or parts.bits(cell) is not None:
            return set()
    except LabProblem:
        pass
    assert recipe is not None
    return image_programs() if recipe in recipes() and default_release() else {recipe}


def in_the_way(experiment: Experiment, lab: LabSource, plan: Plan) -> list[str]:
    """Problems that a run would refuse to begin with, for `nodrop plan`: all but the contents of
    images, which only a run reads."""
    return _looked(experiment, lab, plan, reads_images=False)[0]


def _looked(
    experiment: Experiment, lab: LabSource, plan: Plan, *, reads_images: bool
) -> tuple[list[str], Plan]:
    """Every problem at once, and the plan as it can be measured there."""
    try:
        parts = _parts(experiment, lab, plan)
    except (BadInput, LabProblem) as problem:
        return [str(problem)], plan
    found = parts.look(reads_images=reads_images)
    refused = [str(experiment.blamed(error)) for error in found.refused]
    return [*refused, *found.problems], parts.plan


def _trace_key(load: Table) -> str:
    """A search varies the pace of a load, not its trace."""
    sent = {key: load[key] for key in ("trace", "window", "window_s", "withhold") if key in load}
    return _key(sent if "trace" in load else load)


def _key(table: Mapping[str, Any]) -> str:
    return json.dumps(table, sort_keys=True, default=str)


def _of_sut(build: Callable[[], Sut], bits: Bits | None) -> Iterable[str]:
    return build().problems(bits)


def _of_load(build: Callable[[], LoadGenerator]) -> Iterable[str]:
    return build().problems()
