"""A pair: sender and receiver of one lab at work, trial after trial, each with its record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from pydantic_core import to_jsonable_python

from nodrop.config.experiment import Measure
from nodrop.config.units import format_cpus
from nodrop.detections import compared, differences
from nodrop.errors import (
    BadInput,
    LabProblem,
    LoadFailed,
    NodropError,
    SystemRefused,
    TrialFailed,
)
from nodrop.ledger.balance import ledger_to_json
from nodrop.ledger.cause import POLLS
from nodrop.ledger.hops import Class, Problem, Reason
from nodrop.ledger.imbalance import ThreadBooks, unexplained_packets
from nodrop.ledger.over_time import WatchedRamp, shown
from nodrop.ledger.verdict import judge
from nodrop.measure.api import (
    AnswersSeen,
    Measured,
    Measurer,
    ResourcesSeen,
    Standing,
    Trial,
    setup_cpu_s,
)
from nodrop.measure.baselines import Baselines
from nodrop.measure.busy import Tell
from nodrop.measure.cells import Cell, Table
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.measurer import LabMeasurer
from nodrop.measure.packets.instances import imbalance_ratio
from nodrop.measure.plan import Plan
from nodrop.measure.preflight import Parts
from nodrop.measure.standing import out_of_memory
from nodrop.measure.transactions.bodies import transaction_books
from nodrop.protocol import Achieved, AfPacketProof, SampledSpeed
from nodrop.protocol import Host as HostFacts
from nodrop.results.layout import TrialFolder
from nodrop.results.records import PacketBooks
from nodrop.results.trial import Live, Offered, Ramp, Searched, Soak, TrialRecord
from nodrop.testbed.hosts.api import Host, Json, UndoJournal
from nodrop.testbed.hosts.processes import this_host
from nodrop.testbed.load.api import FromFiles, LoadGenerator, OfferedLoad
from nodrop.testbed.suts.api import SutCounters


def trial_record(
    asked: TrialInput,
    seen: Measured,
    *,
    started_utc: str,
    took_s: float,
    error: str | None,
    cpus_parted: bool = False,
    cpus_in_common: bool | None = None,
) -> TrialRecord:
    """One line; whatever the trial did not get to is None."""
    assert seen.verdict is not None, "a trial is judged before it is recorded"
    packets, used = seen.packets, seen.resources
    found: dict[str, Any] = {
        "cell": dict(asked.cell),
        "repetition": asked.repetition,
        "index": asked.index,
        "run": asked.run_name,
        "started_utc": started_utc,
        "took_s": round(took_s - (seen.world.reset_s or 0.0), 3),
        "reset_s": seen.world.reset_s if asked.reset_s is None else asked.reset_s,
        "world": seen.world.first_trial,
        "searched": _searched(asked, seen),
        "error": error,
        "accelerator": seen.facts.get("env", {}).get("accelerator"),
        "activation_s": seen.world.activation_s,
        "effective": seen.facts.get("sut", {}).get("effective", {}),
        "not_as_asked": seen.facts.get("sut", {}).get("notes", []),
        "cpus_parted": cpus_parted,
        "cpus_in_common": cpus_in_common,
        "sut_cpus": format_cpus(used.sut_cpus) or None,
    }
    found["disturbed"] = None if used.usage is None else _disturbed(used)
    found["steal_ratio"] = used.steal_ratio
    found["lost_beyond_steal_packets"] = used.lost_beyond_steal
    said: dict[str, Any] = {"unit": "packets" if seen.answers is None else "transactions"}
    if seen.offered is not None:
        cpu = seen.offered.facts.get("cpu")
        found["generator_cpus"] = None if cpu is None else str(cpu)
        said |= _of_the_sender(seen.offered) | {
            "withheld": packets.withheld_packets,
            "repeats_flows": seen.world.repeats_flows,
        }
    beside: dict[str, Any] = {
        "imbalance_ratio": imbalance_ratio(packets.instances),
        "ports": [asdict(port) for port in packets.ports],
    }
    if packets.level is not None:
        beside["queue"] = asdict(packets.level)
    if packets.worked_off is not None:
        found["drain_s"] = packets.worked_off.drain_at_most_s
        beside["backlog_packets"] = packets.worked_off.backlog_at_most_packets
    if packets.threads is not None and packets.counters is not None:
        found["threads"] = [
            asdict(one) | {"role": None if one.role is None else str(one.role)}
            for one in packets.threads
        ]
        found["threads_unexplained_packets"] = _unexplained(packets.threads, packets.counters)
    if packets.flow_sizes is not None:
        found["flow_sizes"] = asdict(packets.flow_sizes)
    if packets.window is not None:
        found["window"] = packets.window.model_dump()
    if seen.found is not None and seen.baseline is not None:
        measured = seen.verdict.outcome == "measured"
        detections = compared(seen.found, seen.baseline, measured=measured, clocks=seen.clocks)
        found["detections"] = detections.model_dump()
    if packets.counters is not None:
        beside["captured_packets"] = packets.counters.captured_packets
        beside["own_dropped_packets"] = packets.counters.own_dropped_packets
    if (usage := used.usage) is not None:
        found |= {
            "sut_cpu_s": usage.sut_cpu_s,
            "setup_cpu_s": setup_cpu_s(usage.sut_cpu_s, used.servants),
            "host_cpu_ratio": usage.host_cpu_ratio,
            "sut_rss_peak_bytes": usage.sut_rss_peak_bytes,
        }
        if used.polls:
            found["cpu_not_valid"] = POLLS
        elif busiest := usage.busiest:
            found["busiest_thread"] = {"name": busiest.name, "cpu_ratio": busiest.cpu_ratio}
    found["offered"] = Offered.of(packets.ledger, **said)
    if seen.answers is None:
        found["body"] = PacketBooks.of(packets.ledger, seen.verdict, **beside)
    else:
        found["body"] = transaction_books(seen)
    return TrialRecord.of(seen.verdict, **found)


def _disturbed(used: ResourcesSeen) -> Json:
    return {
        "cpus": [*used.cpus],
        "others_ratio": used.others_ratio,
        "programs": [one.model_dump() for one in used.programs],
        "quota": None if used.quota is None else asdict(used.quota),
        "slowed": None if used.usage is None else _slowed(used.usage.sampler.get("speeds", [])),
    }


def _slowed(speeds: Sequence[SampledSpeed]) -> Json | None:
    slow = [one for one in speeds if one["slow_speed_ratio"] is not None]
    if not slow:
        return None
    worst = max(slow, key=lambda one: one["slow_ratio"])
    return {name: worst[name] for name in ("cpu", "slow_ratio", "slow_speed_ratio")}


def _searched(asked: TrialInput, seen: Measured) -> Searched | None:
    """The trial's part in a search, with what a ramp or a soak showed; None without a search."""
    found, load = asked.searched, asked.load.get("ramp")
    if found is not None and found.soak is not None:
        return found.model_copy(update={"soak": Soak(lossy_from_s=_lossy_from_s(seen))})
    if found is None or found.ramp is None or load is None:
        return found
    at = shown(_watched(seen, end_pps=load["to_pps"]))
    per_value = load["to_pps"] / found.value
    ramp = Ramp(
        start=found.ramp.start,
        clean_to=_value(at.clean_pps, per_value),
        lossy_from=_value(at.lossy_pps, per_value),
        full_from=_value(at.full_pps, per_value),
        sender_to=_value(at.sender_pps, per_value),
        expects=_value(at.expects_pps, per_value),
        expects_by=at.by,
    )
    return found.model_copy(update={"ramp": ramp})


def _lossy_from_s(seen: Measured) -> float | None:
    first_ns = None if seen.offered is None else seen.offered.first_sent_mono_ns
    lossy_ns = [one.begin_mono_ns for one in seen.packets.losses or () if one.packets]
    if first_ns is None or not lossy_ns:
        return None
    return round(max(0, min(lossy_ns) - first_ns) / 1e9, 1)


def _value(pps: float | None, per_value: float) -> float | None:
    return None if pps is None else float(f"{pps / per_value:.4g}")


def _watched(seen: Measured, *, end_pps: float) -> WatchedRamp:
    packets, offered = seen.packets, seen.offered
    sent = None if offered is None else offered.achieved
    lost = None if packets.ledger is None else packets.ledger.total(Class.LOST)
    first = next((one for one in packets.losses or () if one.packets), None)
    return WatchedRamp(
        first_ns=(offered and offered.first_sent_mono_ns) or 0,
        interval_ns=sent["interval_ns"] if sent else 1,
        sent=_whole(sent, offered.duration_s) if sent and offered else (),
        lost=lost,
        end_pps=end_pps,
        lossy_ns=None if first is None else (first.begin_mono_ns, first.end_mono_ns),
        busy=seen.resources.busy,
    )


def _whole(sent: Achieved, offered_s: float) -> Sequence[int]:
    """Without an interval that was cut short by the end."""
    return sent["packets"][: max(1, int(offered_s * 1e9) // sent["interval_ns"])]


def _unexplained(threads: Sequence[ThreadBooks], counters: SutCounters) -> int | None:
    if not counters.per_thread:
        return None
    whole = {
        "captured_packets": counters.captured_packets,
        "dropped_packets": counters.dropped_ring_full_packets,
        "decoded_packets": counters.decoded_packets,
    }
    return unexplained_packets(threads, whole)


def write_details(folder: TrialFolder, seen: Measured) -> None:
    """The files beside the line: everything a figure of the report can be traced back to."""
    packets = seen.packets
    if packets.ledger is not None:
        folder.write("ledger", ledger_to_json(packets.ledger))
    if seen.offered is not None:
        offered = to_jsonable_python(asdict(seen.offered))
        if (transactions := offered.pop("transactions")) is not None:
            folder.write("transactions", transactions)
        folder.write("offered", {**offered, "unsent": seen.offered.unsent_packets})
    if packets.counters is not None:
        # Ten readings a second of each thread; what they show is in the evidence of the causes.
        counters = asdict(replace(packets.counters, over_time={}))
        folder.write("counters", counters)
    if seen.answers is not None and seen.answers.each:
        folder.write("counters", {"each": [dict(one.results) for one in seen.answers.each]})
    if seen.found is not None and seen.baseline is not None:
        folder.write(
            "detections",
            differences(seen.found.without(seen.clocks), seen.baseline.without(seen.clocks)),
        )
    if packets.readings:
        before, after = packets.readings
        folder.write("readings", {"before": before.as_json(), "after": after.as_json()})


def details(seen: Measured) -> Json:
    """For trial.json: how long each step took, and what the SUT and its place said."""
    packets, used, ready = seen.packets, seen.resources, seen.world.readiness
    return {
        "timings_s": seen.timings_s,
        "worked_off": None if packets.worked_off is None else asdict(packets.worked_off),
        "readiness": None if ready is None else asdict(ready),
        "usage": None if used.usage is None else asdict(used.usage),
        "inside": {name: asdict(usage) for name, usage in used.inside.items()},
        "clock_offsets_ns": used.clock_offsets_ns,
        "servants": None if used.servants is None else [asdict(one) for one in used.servants],
        "throttled_s": used.throttled_s,
        "sut_cpus": used.sut_cpus,
        "foreign_cpu_ratio": used.foreign_cpu_ratio,
        "losses": None if packets.losses is None else [asdict(one) for one in packets.losses],
        "facts": seen.facts,
        "instances": [asdict(part) for part in packets.instances],
        "imbalance_ratio": imbalance_ratio(packets.instances),
    }


def _of_the_sender(offered: OfferedLoad) -> dict[str, Any]:
    took = offered.duration_s
    return {
        "intended": offered.intended_packets,
        "sent": offered.sent_packets,
        "duration_s": took,
        "intended_duration_s": offered.intended_duration_s,
        "per_s": offered.sent_packets / took if took else None,
        "bps": offered.sent_bytes * 8 / took if took and offered.transactions is None else None,
        "schedule_error_us": offered.schedule_error_us,
        "asked_schedule_error_us": offered.asked_schedule_error_us,
        "shaped_per_s": offered.shaped_pps,
        "spun_share": offered.spun_share,
        "sent_late": offered.late_burst_packets,
        "largest_late_burst": _largest_burst(offered),
        "unscheduled": offered.unscheduled,
    }


def _largest_burst(offered: OfferedLoad) -> Json | None:
    if not offered.late_bursts or offered.first_sent_mono_ns is None:
        return None
    largest = max(offered.late_bursts, key=lambda burst: burst.packets)
    return {
        "at_s": max(0, largest.begin_mono_ns - offered.first_sent_mono_ns) / 1e9,
        "late_us": largest.late_ns / 1e3,
        "sent": largest.packets,
    }


class Worlds:
    """At most one world stands. It is left if the next trial wants a new one, when it is worn, and
    when a trial fails."""

    def __init__(self, measurer: Measurer, note: Callable[[str], None]) -> None:
        self._measurer, self._note, self._stack = measurer, note, ExitStack()
        self._said: set[str] = set()
        self._cell: Cell | None = None
        self._standing: Standing | None = None

    @contextmanager
    def standing(self, cell: Cell, trial: Trial, *, load: Table, new: bool) -> Iterator[Standing]:
        self._leave_for(cell, new=new)
        try:
            if self._standing is not None and (spent := self._standing.spent(load, trial)):
                self._note(f"trial {trial.index} begins with a new start of the SUT: {spent}")
                self._leave_quietly()
            if self._standing is None:
                standing = self._stack.enter_context(self._measurer.stand(cell, trial))
                self._standing, self._cell = standing, cell
            yield self._standing
        except Exception as failed:
            self._standing = None
            # The standing place hears of it: it may know why (a port that went away).
            self._stack.__exit__(type(failed), failed, failed.__traceback__)
            raise
        if worn := self._standing.worn:
            if not new:
                self._say_worn(worn)
            self._leave()

    def _leave_for(self, cell: Cell, *, new: bool) -> None:
        """Its trials are in the books already: what goes wrong now is no part of any."""
        if self._standing is None:
            return
        worn = self._standing.worn
        if worn:
            self._say_worn(worn)
        if new or worn or self._cell != cell:
            self._leave_quietly()

    def _say_worn(self, worn: str) -> None:
        if worn not in self._said:
            self._said.add(worn)
            self._note(f"the SUT does not stand for another trial: {worn}")

    def _leave_quietly(self) -> None:
        try:
            self._leave()
        except (TrialFailed, LabProblem, OSError) as failed:
            self._note(f"after the last trial of a standing SUT: {failed}")

    def _leave(self) -> None:
        self._standing = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is None:
            self._leave_quietly()
        else:
            self._stack.__exit__(kind, *error)


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
        baselines = Baselines(parts, measure.outcome, measurer, note, replicas=replicas)
        yield Pair(plan, parts, journal, worlds, baselines)


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
