//! A capture file on its whole way: survey, flows, forecast of reassembly, and the replay's index, replicas and schedule.

use nodrop_replay::{Copies, Load, Plan, Request, Trace};
use nodrop_trace::survey::Surveyor;
use nodrop_wire::capture::Reader;
use nodrop_wire::record::LINKTYPE_ETHERNET;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Ok(reader) = Reader::new(bytes, true) else {
        return;
    };
    let (mut surveyor, mut packets) = (Surveyor::new(3.0), 0);
    for record in reader.flatten() {
        surveyor.add(&record);
        packets += 1;
    }
    assert_eq!(surveyor.finish(LINKTYPE_ETHERNET, None).packets, packets);

    let Ok(mut trace) = Trace::new(bytes.to_vec(), true) else {
        return;
    };
    let copies = Copies { first: 0, count: 3 };
    if trace.make_distinct(copies, 3).is_err() {
        return;
    }
    let request = Request {
        load: Load::Timing { speed: 3.0 },
        loops: 2,
        replicas: nodrop_replay::Replicas::whole(3),
        duration_ns: None,
        pass_ns: None,
        offsets_from: Some(1),
        distinct_loops: false,
    };
    let plan = Plan::new(&trace, &request).expect("nothing in the request depends on the trace");
    let mut buffer = trace.buffer();
    let mut due_ns = 0;
    let mut sent = 0;
    for slot in plan.slots(&trace) {
        assert!(slot.due_ns >= due_ns);
        due_ns = slot.due_ns;
        trace.frame(slot.packet, slot.replica, &mut buffer);
        sent += 1;
    }
    assert_eq!(sent, packets * 6);
}
