//! The properties of `fuzz/` hold for its corpus and for mutations of it: seeds, and inputs that once broke one. The fuzzer
//! itself needs nightly; this keeps its properties compiling, and what it found found.

#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/properties/message.rs"]
mod message;
#[path = "../../../fuzz/properties/pcap.rs"]
mod pcap;
#[path = "../../../fuzz/properties/pcapng.rs"]
mod pcapng;
#[path = "../../../fuzz/properties/rewrite.rs"]
mod rewrite;
#[path = "../../../fuzz/properties/trace.rs"]
mod trace;

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = std::fs::read_dir(folder.join(target)).unwrap();
    let inputs: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{target}");
    inputs
}

fn holds(target: &str, input: &[u8]) {
    match target {
        "message" => message::holds(&String::from_utf8_lossy(input)),
        "pcap" => pcap::holds(input),
        "pcapng" => pcapng::holds(input),
        "rewrite" => rewrite::holds(input),
        "trace" => trace::holds(input),
        other => unreachable!("{other}"),
    }
}

#[test]
fn every_input_of_the_corpus_is_borne() {
    for target in ["message", "pcap", "pcapng", "rewrite", "trace"] {
        for input in corpus(target) {
            holds(target, &input);
        }
    }
}

proptest! {
    /// Bytes of a seed changed, and its end cut off.
    #[test]
    fn mutations_of_the_corpus_are_borne(
        target in prop::sample::select(vec!["message", "pcap", "pcapng", "rewrite", "trace"]),
        seed: Index, changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..9), cut: Option<Index>,
    ) {
        let inputs = corpus(target);
        let mut input = inputs[seed.index(inputs.len())].clone();
        for (place, byte) in changes {
            let place = place.index(input.len());
            input[place] = byte;
        }
        if let Some(cut) = cut {
            input.truncate(cut.index(input.len()));
        }
        holds(target, &input);
    }
}
