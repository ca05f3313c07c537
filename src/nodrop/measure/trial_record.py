"""The record of a trial, and the files beside it, from what was seen of the trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal

from pydantic_core import to_jsonable_python

from nodrop.config.units import format_cpus
from nodrop.detections import compared, differences
from nodrop.ledger.cause import POLLS
from nodrop.ledger.hops import Class
from nodrop.ledger.imbalance import SutThread, unexplained_packets
from nodrop.ledger.over_time import WatchedRamp, shown
from nodrop.ledger.verdict import Verdict
from nodrop.measure.api import Measured, PacketsSeen, ResourcesSeen, setup_cpu_s
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.packets.instances import imbalance_ratio
from nodrop.measure.sampling import Usage
from nodrop.measure.transactions.bodies import transaction_books
from nodrop.protocol import Achieved, SampledSpeed
from nodrop.results.detection_books import Detections
from nodrop.results.layout import TrialFolder
from nodrop.results.ledger_file import ledger_to_json
from nodrop.results.packet_books import PacketBooks
from nodrop.results.trial import (
    Disturbed,
    LateBurst,
    Offered,
    Ramp,
    Searched,
    Slowed,
    Soak,
    TrialRecord,
)
from nodrop.sensor.suricata_counters import lost_analysis
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.load.api import OfferedLoad
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
    verdict, packets, used = seen.verdict, seen.packets, seen.resources
    assert verdict is not None, "a trial is judged before it is recorded"
    usage, offered, threads = used.usage, seen.offered, packets.threads
    generator_cpus = None if offered is None else offered.facts.get("cpu")
    busiest = None if usage is None or used.polls else usage.busiest
    of_sut = seen.facts.get("sut", {})
    return TrialRecord(
        cell=dict(asked.cell),
        repetition=asked.repetition,
        index=asked.index,
        run=asked.run_name,
        started_utc=started_utc,
        took_s=round(took_s - (seen.world.reset_s or 0.0), 3),
        reset_s=seen.world.reset_s if asked.reset_s is None else asked.reset_s,
        world=seen.world.first_trial,
        searched=_searched(asked, seen),
        outcome=verdict.outcome.value,
        valid=verdict.valid,
        invalid_reasons=[str(problem.code) for problem in verdict.invalid_reasons],
        verdict=verdict.words,
        error=error,
        offered=_offered(seen),
        activation_s=seen.world.activation_s,
        drain_s=None if packets.worked_off is None else packets.worked_off.drain_at_most_s,
        effective=of_sut.get("effective", {}),
        not_as_asked=of_sut.get("notes", []),
        generator_cpus=None if generator_cpus is None else str(generator_cpus),
        sut_cpus=format_cpus(used.sut_cpus) or None,
        cpus_parted=cpus_parted,
        cpus_in_common=cpus_in_common,
        accelerator=seen.facts.get("env", {}).get("accelerator"),
        sut_cpu_s=None if usage is None else usage.sut_cpu_s,
        setup_cpu_s=None if usage is None else setup_cpu_s(usage.sut_cpu_s, used.servants),
        steal_ratio=used.steal_ratio,
        lost_beyond_steal_packets=used.lost_beyond_steal,
        disturbed=None if usage is None else _disturbed(used, usage),
        host_cpu_ratio=None if usage is None else usage.host_cpu_ratio,
        cpu_not_valid=POLLS if usage is not None and used.polls else "",
        sut_rss_peak_bytes=None if usage is None else usage.sut_rss_peak_bytes,
        busiest_thread=busiest,
        threads=[] if packets.counters is None else [*(threads or ())],
        threads_unexplained_packets=None
        if threads is None or packets.counters is None
        else _unexplained(threads, packets.counters),
        detections=_detections(seen, verdict),
        flow_sizes=packets.flow_sizes,
        window=packets.window,
        body=_packet_books(packets, verdict) if seen.answers is None else transaction_books(seen),
    )


def _offered(seen: Measured) -> Offered:
    """The load by its sender's counts; where the books count too, by those of the books."""
    offered, ledger = seen.offered, seen.packets.ledger
    unit: Literal["packets", "transactions"]
    unit = "packets" if seen.answers is None else "transactions"
    intended = sent = unsent = None
    if ledger is not None:
        intended, sent = ledger.packets_at("intended"), ledger.packets_at("sent")
        unsent = ledger.total(Class.UNSENT)
    elif offered is not None:
        intended, sent = offered.intended_packets, offered.sent_packets
    if offered is None:
        return Offered(unit=unit, intended=intended, sent=sent, unsent=unsent)
    took_s = offered.duration_s
    return Offered(
        unit=unit,
        intended=intended,
        sent=sent,
        unsent=unsent,
        withheld=seen.packets.withheld_packets,
        duration_s=took_s,
        intended_duration_s=offered.intended_duration_s,
        per_s=offered.sent_packets / took_s if took_s else None,
        bps=offered.sent_bytes * 8 / took_s if took_s and offered.transactions is None else None,
        schedule_error_us=offered.schedule_error_us,
        asked_schedule_error_us=offered.asked_schedule_error_us,
        shaped_per_s=offered.shaped_pps,
        spun_share=offered.spun_share,
        sent_late=offered.late_burst_packets,
        largest_late_burst=_largest_burst(offered),
        unscheduled=offered.unscheduled,
        repeats_flows=seen.world.repeats_flows,
    )


def _packet_books(packets: PacketsSeen, verdict: Verdict) -> PacketBooks:
    counters, worked_off = packets.counters, packets.worked_off
    return PacketBooks.of(
        packets.ledger,
        verdict,
        captured_packets=None if counters is None else counters.captured_packets,
        own_dropped_packets=None if counters is None else counters.own_dropped_packets,
        backlog_packets=None if worked_off is None else worked_off.backlog_at_most_packets,
        analysis_lost={} if counters is None else _analysis_lost(counters),
        queue=packets.level,
        imbalance_ratio=imbalance_ratio(packets.instances),
        ports=packets.ports,
    )


def _detections(seen: Measured, verdict: Verdict) -> Detections | None:
    if seen.found is None or seen.baseline is None:
        return None
    return compared(
        seen.found,
        seen.baseline,
        measured=verdict.valid,
        clocks=seen.clocks,
        no_ratio=seen.no_ratio,
    )


def _disturbed(used: ResourcesSeen, usage: Usage) -> Disturbed:
    return Disturbed(
        cpus=[*used.cpus],
        others_ratio=used.others_ratio,
        programs=[*used.programs],
        quota=used.quota,
        slowed=_slowed(usage.sampler.get("speeds", [])),
    )


def _slowed(speeds: Sequence[SampledSpeed]) -> Slowed | None:
    slow = [
        Slowed(cpu=one["cpu"], slow_ratio=one["slow_ratio"], slow_speed_ratio=speed)
        for one in speeds
        if (speed := one["slow_speed_ratio"]) is not None
    ]
    return max(slow, key=lambda one: one.slow_ratio, default=None)


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
    lossy_ns = [loss.begin_mono_ns for loss in seen.packets.losses or () if loss.packets]
    if first_ns is None or not lossy_ns:
        return None
    return round(max(0, min(lossy_ns) - first_ns) / 1e9, 1)


def _value(pps: float | None, per_value: float) -> float | None:
    return None if pps is None else float(f"{pps / per_value:.4g}")


def _watched(seen: Measured, *, end_pps: float) -> WatchedRamp:
    packets, offered = seen.packets, seen.offered
    sent = None if offered is None else offered.achieved
    lost = None if packets.ledger is None else packets.ledger.total(Class.LOST)
    first = next((loss for loss in packets.losses or () if loss.packets), None)
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
    """Packets per interval, without an interval that the end cut short."""
    return sent["packets"][: max(1, int(offered_s * 1e9) // sent["interval_ns"])]


def _unexplained(threads: Sequence[SutThread], counters: SutCounters) -> int | None:
    if not counters.per_thread:
        return None
    whole = {
        "captured_packets": counters.captured_packets,
        "dropped_packets": counters.dropped_ring_full_packets,
        "decoded_packets": counters.decoded_packets,
    }
    return unexplained_packets(threads, whole)


def _analysis_lost(counters: SutCounters) -> dict[str, int]:
    rows = lost_analysis(counters.results)
    return {name: n for _, name in rows if (n := counters.results[name]) > 0}


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
    """Content of trial.json: time of each step, and the facts of the SUT and its place."""
    packets, used, ready = seen.packets, seen.resources, seen.world.readiness
    return {
        "timings_s": seen.timings_s,
        "worked_off": None if packets.worked_off is None else asdict(packets.worked_off),
        "readiness": None if ready is None else asdict(ready),
        "usage": None if used.usage is None else asdict(used.usage),
        "inside": {name: asdict(usage) for name, usage in used.inside.items()},
        "clock_offsets_ns": used.clock_offsets_ns,
        "servants": None
        if used.servants is None
        else [asdict(servant) for servant in used.servants],
        "throttled_s": used.throttled_s,
        "sut_cpus": used.sut_cpus,
        "foreign_cpu_ratio": used.foreign_cpu_ratio,
        "losses": None if packets.losses is None else [asdict(loss) for loss in packets.losses],
        "facts": seen.facts,
        "instances": [asdict(part) for part in packets.instances],
        "imbalance_ratio": imbalance_ratio(packets.instances),
    }


def _largest_burst(offered: OfferedLoad) -> LateBurst | None:
    if not offered.late_bursts or offered.first_sent_mono_ns is None:
        return None
    largest = max(offered.late_bursts, key=lambda burst: burst.packets)
    return LateBurst(
        at_s=max(0, largest.begin_mono_ns - offered.first_sent_mono_ns) / 1e9,
        late_us=largest.late_ns / 1e3,
        sent=largest.packets,
    )
