//! What was sent, in the words of the protocol: of each port, and of all.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nodrop_proto::{
    Achieved, LateBurst, LateBursts, ReplayPort, ReplayResult, ScheduleError, SentProfile,
};
use nodrop_replay::Outcome;
use nodrop_replay::bursts::LATE_NS;
use nodrop_replay::schedule_error::ScheduleErrorNs;

use super::offer::Offer;
use super::ports::{Port, backends};

/// `outcomes` are those of the ports, in their order.
pub fn result(
    offer: &Offer,
    ports: &[Port],
    shallow_idle: bool,
    outcomes: &[Outcome],
) -> ReplayResult {
    let of_ports = (ports.iter().zip(outcomes))
        .map(|(port, outcome)| of_port(port, outcome))
        .collect();
    let mut all = outcomes[0].clone();
    outcomes[1..].iter().for_each(|other| all.join(other));
    ReplayResult {
        intended_packets: all.intended_packets,
        sent_packets: all.sent_packets,
        sent_bytes: all.sent_bytes,
        refused_packets: named(&all.refused_packets),
        unsent_packets: all.intended_packets - all.sent_packets,
        first_sent_mono_ns: all.first_sent_mono_ns,
        last_sent_mono_ns: all.last_sent_mono_ns,
        intended_duration_ns: offer.plan.intended_duration_ns(&offer.trace),
        late_bursts: all.schedule_errors.summary().map(|_| late_bursts(&all)),
        schedule_error_us: all.schedule_errors.summary().map(in_us),
        asked_schedule_error_us: all.asked_errors.summary().map(in_us),
        shaped_packets: all.shaping.packets,
        shaped_pps: all.shaping.pps(),
        cpu_s: all.spent.cpu_ns as f64 / 1e9,
        spun_share: (all.spent.spun_share()).filter(|_| offer.plan.is_paced()),
        backend: backends(ports),
        realtime: offer.realtime,
        shallow_idle,
        not_rewritten_packets: all.not_rewritten_packets,
        same_flows: offer.trace.same_flows(),
        replica_offsets_ns: offer.plan.replica_offsets_ns().to_vec(),
        achieved: Achieved {
            interval_ns: nodrop_replay::Achieved::INTERVAL_NS,
            packets: all.achieved.packets,
            bytes: all.achieved.bytes,
            largest_error_ns: all.achieved.largest_error_ns,
        },
        sent_profile: SentProfile {
            first_mono_ns: all.sent_profile.first_mono_ns,
            bin_ns: all.sent_profile.bin_ns,
            packets: all.sent_profile.packets,
        },
        ports: of_ports,
    }
}

fn of_port(port: &Port, outcome: &Outcome) -> ReplayPort {
    ReplayPort {
        interface: port.interface.clone(),
        cpu: port.cpu,
        backend: port.backend.name().into(),
        intended_packets: outcome.intended_packets,
        sent_packets: outcome.sent_packets,
        sent_bytes: outcome.sent_bytes,
        refused_packets: named(&outcome.refused_packets),
        unsent_packets: outcome.intended_packets - outcome.sent_packets,
        first_sent_mono_ns: outcome.first_sent_mono_ns,
        last_sent_mono_ns: outcome.last_sent_mono_ns,
        schedule_error_us: outcome.schedule_errors.summary().map(in_us),
        cpu_s: outcome.spent.cpu_ns as f64 / 1e9,
    }
}

fn late_bursts(all: &Outcome) -> LateBursts {
    let mut largest: Vec<LateBurst> = (all.late_bursts.largest.iter())
        .map(|burst| LateBurst {
            begin_mono_ns: burst.begin_mono_ns,
            end_mono_ns: burst.end_mono_ns,
            late_ns: burst.late_ns,
            packets: burst.packets,
        })
        .collect();
    largest.sort_unstable_by_key(|burst| burst.begin_mono_ns);
    LateBursts {
        late_ns: LATE_NS,
        bursts: all.late_bursts.bursts,
        packets: all.late_bursts.packets,
        largest,
    }
}

fn named(refused: &BTreeMap<i32, u64>) -> BTreeMap<String, u64> {
    let name = |errno: &i32| format!("{:?}", Errno::from_raw(*errno)).to_lowercase();
    refused
        .iter()
        .map(|(errno, packets)| (name(errno), *packets))
        .collect()
}

fn in_us(error: ScheduleErrorNs) -> ScheduleError {
    let us = |ns: u64| ns as f64 / 1e3;
    ScheduleError {
        p50: us(error.p50),
        p99: us(error.p99),
        p999: us(error.p999),
        max: us(error.max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_named_as_the_kernel_does() {
        let refused = BTreeMap::from([(90, 3), (105, 1)]);
        assert_eq!(
            named(&refused),
            BTreeMap::from([("emsgsize".into(), 3), ("enobufs".into(), 1)])
        );
    }
}
