"""A pair: sender and receiver of one lab at work, trial after trial, each with its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from nodrop.config.experiment import Measure
from nodrop.errors import BadInput, LabProblem, LoadFailed, NodropError, SystemRefused, TrialFailed
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.verdict import judge
from nodrop.measure.api import AnswersSeen, Measured, Trial
from nodrop.measure.baselines import Baselines
from nodrop.measure.busy import Tell
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.measurer import LabMeasurer
from nodrop.measure.plan import Plan
from nodrop.measure.preflight import Parts
from nodrop.measure.standing import out_of_memory
from nodrop.measure.trial_record import details, trial_record, write_details
from nodrop.measure.worlds import Worlds
from nodrop.protocol import AfPacketProof
from nodrop.protocol import Host as HostFacts
from nodrop.results.layout import TrialFolder
from nodrop.results.trial import Live, TrialRecord
from nodrop.testbed.hosts.api import Host, Json, UndoJournal
from nodrop.testbed.hosts.processes import this_host
from nodrop.testbed.load.api import LoadGenerator


def unwatched_phase(_phase: str) -> None:
    """Ignores the phase of a trial that no display follows."""


def unwatched_reading(_reading: Live) -> None:
    """Ignores a reading of a trial that no display follows."""


@dataclass(frozen=True, slots=True)
class Pair:
    plan: Plan
    parts: Parts
    journal: UndoJournal
    worlds: Worlds
    baselines: Baselines

    def look(self) -> tuple[HostFacts, AfPacketProof]:
        """Facts of the host, read in the lab, and the meaning of its AF_PACKET counters."""
        with self.parts.lab.up(self.journal) as link:
            said = link.rx.host.probe("host", "af_packet", timeout_s=60)
        test = said["af_packet"]
        if not test["ring"]["tp_packets_includes_drops"]:
            raise LabProblem(
                f"self-test: tp_packets does not include tp_drops on this kernel: {test}",
                hint="the packet books of nodrop rest on it; please report this kernel",
            )
        return said["host"], test

    def measure(
        self,
        asked: TrialInput,
        folder: TrialFolder,
        *,
        asks_tsc: bool,
        phase: Callable[[str], None] = unwatched_phase,
        live: Tell = unwatched_reading,
    ) -> tuple[TrialRecord, Json]:
        """Record of the trial, and the details for trial.json; other files are in its folder."""
        asked = self.plan.as_parted(asked)
        baseline = self.baselines.of(self.plan.cell(asked.cell), asked.load, phase)
        started_utc, began = datetime.now(UTC), time.monotonic()

        def watch(name: str) -> None:
            folder.append_live({"mono_ns": time.monotonic_ns(), "phase": name})
            phase(name)

        def tell(reading: Live) -> None:
            folder.append_live(asdict(reading))
            live(reading)

        trial = Trial(index=asked.index, folder=folder, watch=watch, tell=tell, asks_tsc=asks_tsc)
        trial.seen.baseline = baseline
        error = self._attempt(asked, trial)
        record = trial_record(
            asked,
            trial.seen,
            started_utc=started_utc.isoformat(timespec="milliseconds"),
            took_s=round(time.monotonic() - began, 3),
            error=None if error is None else str(error),
            cpus_parted=self.plan.cell(asked.cell).limits.cpus_left,
            cpus_in_common=self.plan.cpus_in_common,
        )
        write_details(folder, trial.seen)
        return record, details(trial.seen)

    def _attempt(self, asked: TrialInput, trial: Trial) -> NodropError | None:
        """Why it failed; what it saw until then is in the trial."""
        seen, cell = trial.seen, self.plan.cell(asked.cell)
        try:
            if other := self.parts.other_trace(asked.load):
                seen.problems.append(other)
            if self.parts.load(asked.load).unit == "transactions":
                seen.answers = AnswersSeen()
            with self.worlds.standing(
                cell, trial, load=asked.load, new=asked.new_world
            ) as standing:
                standing.measure(asked.load, trial)
        except BrokenPipeError:
            raise
        except BadInput as changed:
            # All input was good before the first trial: the trace, or a file beside it, is another.
            problem = Problem(code=Reason.OTHER_FILES, words=str(changed))
            seen.verdict = judge(None, None, problems=[*seen.problems, problem])
            return changed
        except (TrialFailed, LabProblem, OSError) as failed:
            reached, files = trial.reached or "begin", str(trial.folder.path)
            error = (
                SystemRefused(failed, during=reached, host=this_host(), files=files)
                if isinstance(failed, OSError)
                else failed
            )
            seen.verdict = judge(None, None, problems=[*seen.problems, _failure(error, seen)])
            return error
        return None


@contextmanager
def at_work(
    parts: Parts,
    plan: Plan,
    measure: Measure,
    journal: UndoJournal,
    note: Callable[[str], None],
) -> Iterator[Pair]:
    """For one sitting: what is connected stays so from one trial to the next."""
    with ExitStack() as stack:
        sender = stack.enter_context(parts.lab.connected(journal))
        if sender is not None:
            _send_files(sender, [parts.load(cell.load) for cell in plan.cells], note)
        measurer = LabMeasurer(parts, measure, journal)
        worlds = stack.enter_context(Worlds(measurer, note))
        replicas = plan.searched_by == "multiplier"
        baselines = Baselines(parts, measure, worlds, note, replicas=replicas)
        yield Pair(plan, parts, journal, worlds, baselines)


def _send_files(sender: Host, loads: Sequence[LoadGenerator], note: Callable[[str], None]) -> None:
    """Files go there now, else the first trial of each trace waits for its way."""
    files = {file: None for load in loads for file in load.files()}
    for file in files:
        with suppress(LabProblem, OSError):  # a trial that needs it says why
            note(f"{sender.name}: {file.name} goes there, {file.stat().st_size / 1e6:,.1f} MB")
            sender.reads(file)


def _failure(error: NodropError, seen: Measured) -> Problem:
    if isinstance(error, LabProblem):
        return Problem(code=Reason.LAB_PROBLEM, words=str(error))
    if isinstance(error, LoadFailed):
        return Problem(code=Reason.LOAD_FAILED, words=str(error))
    code: str = Reason.SUT_NOT_READY if seen.world.first_trial is None else Reason.SUT_DIED
    if isinstance(error, TrialFailed) and error.reason:
        code = error.reason  # a plugin may have one of its own
    killed = out_of_memory(seen)
    return Problem(code=code, words=f"{killed}; {error}" if killed else str(error))
