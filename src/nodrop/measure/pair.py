"""A pair: sender and receiver of one lab at work, trial after trial, each with its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from nodrop.config.experiment import Measure
from nodrop.errors import (
    BadInput,
    LabProblem,
    LoadFailed,
    NodropError,
    SystemRefused,
    TrialFailed,
)
from nodrop.hosts.seam import Host, Json, UndoJournal
from nodrop.hosts.whose import this_host
from nodrop.labs.seam import Connected
from nodrop.ledger.reasons import Problem, Reason
from nodrop.ledger.verdict import judge
from nodrop.load.seam import FromFiles, LoadGenerator
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.live import Tell
from nodrop.measure.measurer import LabMeasurer, out_of_memory
from nodrop.measure.plan import Plan
from nodrop.measure.preflight import Parts
from nodrop.measure.record import details, trial_record, write_details
from nodrop.measure.seam import Measured, Trial
from nodrop.measure.worlds import Worlds
from nodrop.protocol.events import AfPacketProof
from nodrop.protocol.events import Host as HostFacts
from nodrop.results.live import Live
from nodrop.results.trial import TrialRecord
from nodrop.results.trial_folder import TrialFolder


def unwatched_phase(_phase: str) -> None:
    """For a trial that no display follows."""


def unwatched_reading(_reading: Live) -> None:
    """The same."""


@dataclass(frozen=True, slots=True)
class Pair:
    plan: Plan
    parts: Parts
    journal: UndoJournal
    worlds: Worlds

    def look(self) -> tuple[HostFacts, AfPacketProof]:
        """In the lab itself: the host, and what its AF_PACKET counters mean."""
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
        """Its record, and the details for trial.json; its other files are in the folder."""
        asked = self.plan.as_parted(asked)
        started_utc, began = datetime.now(UTC), time.monotonic()

        def watch(name: str) -> None:
            folder.append_live({"mono_ns": time.monotonic_ns(), "phase": name})
            phase(name)

        def tell(reading: Live) -> None:
            folder.append_live(asdict(reading))
            live(reading)

        trial = Trial(index=asked.index, folder=folder, watch=watch, tell=tell, asks_tsc=asks_tsc)
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
            with self.worlds.standing(cell, trial, new=asked.new_world) as standing:
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
        if isinstance(parts.lab, Connected):
            sender = stack.enter_context(parts.lab.connected(journal))
            _send_files(sender, [parts.load(cell.load) for cell in plan.cells], note)
        worlds = stack.enter_context(Worlds(LabMeasurer(parts, measure, journal), note))
        yield Pair(plan, parts, journal, worlds)


def _send_files(sender: Host, loads: Sequence[LoadGenerator], note: Callable[[str], None]) -> None:
    """Files go there now, else the first trial of each trace waits for its way."""
    files = {file: None for load in loads if isinstance(load, FromFiles) for file in load.files()}
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
