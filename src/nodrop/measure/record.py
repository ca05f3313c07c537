"""From what a trial saw to its line in trials.jsonl and its files in the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from nodrop.config.units import format_cpus
from nodrop.hosts.seam import Json
from nodrop.ledger.balance import ledger_to_json
from nodrop.ledger.figures import figures
from nodrop.ledger.hops import Class
from nodrop.ledger.ramp import Watched, shown
from nodrop.ledger.threads import ThreadBooks, unexplained_packets
from nodrop.load.seam import OfferedLoad, ScheduleError
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.packets.instances import imbalance_ratio
from nodrop.measure.seam import Measured, ResourcesSeen
from nodrop.measure.servants import setup_cpu_s
from nodrop.protocol.events import Achieved
from nodrop.results.trial import Ramp, Searched, Soak, TrialRecord
from nodrop.results.trial_folder import TrialFolder
from nodrop.suts.seam import SutCounters


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
    found |= figures(packets.ledger, seen.verdict)
    body: dict[str, Any] = found["body"]
    body["imbalance_ratio"] = imbalance_ratio(packets.instances)
    if seen.offered is not None:
        cpu = seen.offered.facts.get("cpu")
        found["generator_cpus"] = None if cpu is None else str(cpu)
        found["offered"] = _of_the_sender(seen.offered) | found["offered"]
    if packets.worked_off is not None:
        found["drain_s"] = packets.worked_off.drain_at_most_s
        body["backlog_packets"] = packets.worked_off.backlog_at_most_packets
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
    body["ports"] = [asdict(port) for port in packets.ports]
    if packets.counters is not None:
        body["captured_packets"] = packets.counters.captured_packets
    if (usage := used.usage) is not None:
        found |= {
            "sut_cpu_s": usage.sut_cpu_s,
            "setup_cpu_s": setup_cpu_s(usage.sut_cpu_s, used.servants),
            "host_cpu_ratio": usage.host_cpu_ratio,
            "sut_rss_peak_bytes": usage.sut_rss_peak_bytes,
        }
        if busiest := usage.busiest:
            found["busiest_thread"] = {"name": busiest.name, "cpu_ratio": busiest.cpu_ratio}
    return TrialRecord.model_validate(found)


def _disturbed(used: ResourcesSeen) -> Json:
    return {
        "cpus": [*used.cpus],
        "others_ratio": used.others_ratio,
        "programs": [one.model_dump() for one in used.programs],
        "quota": None if used.quota is None else asdict(used.quota),
    }


def _searched(asked: TrialInput, seen: Measured) -> Searched | None:
    """Of a ramp, with what it showed."""
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


def _watched(seen: Measured, *, end_pps: float) -> Watched:
    packets, offered = seen.packets, seen.offered
    sent = None if offered is None else offered.achieved
    lost = None if packets.ledger is None else packets.ledger.total(Class.LOST)
    first = next((one for one in packets.losses or () if one.packets), None)
    return Watched(
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
        folder.write("offered", {**asdict(seen.offered), "unsent": seen.offered.unsent_packets})
    if packets.counters is not None:
        # Ten readings a second of each thread; what they show is in the evidence of the causes.
        counters = asdict(replace(packets.counters, over_time={}))
        folder.write("counters", counters)
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
        "bps": offered.sent_bytes * 8 / took if took else None,
        "schedule_error_us": _error(offered.schedule_error_us),
        "asked_schedule_error_us": _error(offered.asked_schedule_error_us),
        "shaped_per_s": offered.shaped_pps,
        "spun_share": offered.spun_share,
        "sent_late": offered.late_burst_packets,
        "largest_late_burst": _largest_burst(offered),
    }


def _error(error: ScheduleError | None) -> Json | None:
    return None if error is None else asdict(error)


def _largest_burst(offered: OfferedLoad) -> Json | None:
    if not offered.late_bursts or offered.first_sent_mono_ns is None:
        return None
    largest = max(offered.late_bursts, key=lambda burst: burst.packets)
    return {
        "at_s": max(0, largest.begin_mono_ns - offered.first_sent_mono_ns) / 1e9,
        "late_us": largest.late_ns / 1e3,
        "sent": largest.packets,
    }
