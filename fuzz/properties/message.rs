//! Lines to a node: any line is a message or refused in words, and so is any spec of any job.

use nodrop_proto::{Message, ProbeSpec, ReplaySpec, SampleSpec, SinkSpec, TraceSpec};

/// Panics if it does not hold.
pub fn holds(line: &str) {
    let Ok(Message::Spec(spec)) = Message::parse(line) else {
        return;
    };
    let _ = Message::spec::<ProbeSpec>(&spec, "probe");
    let _ = Message::spec::<ReplaySpec>(&spec, "replay");
    let _ = Message::spec::<SampleSpec>(&spec, "sample");
    let _ = Message::spec::<SinkSpec>(&spec, "sink");
    let _ = Message::spec::<TraceSpec>(&spec, "trace");
}
