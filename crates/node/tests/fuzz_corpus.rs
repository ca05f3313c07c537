//! The properties of `fuzz/` hold for its corpus and for mutations of it: seeds, and inputs that once broke one. The fuzzer
//! itself needs nightly; this keeps its properties compiling, and what it found found.

#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/properties/ethernet.rs"]
mod ethernet;
#[path = "../../../fuzz/properties/message.rs"]
mod message;
#[path = "../../../fuzz/properties/packed.rs"]
mod packed;
#[path = "../../../fuzz/properties/pcap.rs"]
mod pcap;
#[path = "../../../fuzz/properties/pcapng.rs"]
mod pcapng;
#[path = "../../../fuzz/properties/prepare.rs"]
mod prepare;
#[path = "../../../fuzz/properties/rewrite.rs"]
mod rewrite;
#[path = "../../../fuzz/properties/segment.rs"]
mod segment;
#[path = "../../../fuzz/properties/snoop.rs"]
mod snoop;
#[path = "../../../fuzz/properties/trace.rs"]
mod trace;
#[path = "../../../fuzz/properties/tunnel.rs"]
mod tunnel;

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;

const TARGETS: [&str; 11] = [
    "ethernet", "message", "packed", "pcap", "pcapng", "prepare", "rewrite", "segment", "snoop",
    "trace", "tunnel",
];

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
        "ethernet" => ethernet::holds(input),
        "message" => message::holds(&String::from_utf8_lossy(input)),
        "packed" => packed::holds(input),
        "pcap" => pcap::holds(input),
        "pcapng" => pcapng::holds(input),
        "prepare" => prepare::holds(input),
        "rewrite" => rewrite::holds(input),
        "segment" => segment::holds(input),
        "snoop" => snoop::holds(input),
        "trace" => trace::holds(input),
        "tunnel" => tunnel::holds(input),
        other => unreachable!("{other}"),
    }
}

#[test]
fn every_input_of_the_corpus_is_borne() {
    for target in TARGETS {
        for input in corpus(target) {
            holds(target, &input);
        }
    }
}

proptest! {
    /// Bytes of a seed changed, and its end cut off.
    #[test]
    fn mutations_of_the_corpus_are_borne(
        target in prop::sample::select(TARGETS.to_vec()),
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

/// Without nightly: mutations of each target's corpus, for NODROP_FUZZ_SECONDS each (tools/fuzz.py).
#[test]
fn mutations_are_borne_for_so_long() {
    let Ok(seconds) = std::env::var("NODROP_FUZZ_SECONDS") else {
        return;
    };
    let each = Duration::from_secs(seconds.parse().unwrap());
    for target in TARGETS {
        let (began, mut inputs, mut word) =
            (Instant::now(), corpus(target), 88_172_645_463_325_252);
        let mut runs = 0_u64;
        while began.elapsed() < each {
            let mut input = inputs[below(&mut word, inputs.len())].clone();
            mutate(&mut input, &inputs, &mut word);
            let last = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}"));
            if std::panic::catch_unwind(|| holds(target, &input)).is_err() {
                std::fs::write(&last, &input).unwrap();
                panic!("{target}: {} breaks its property", last.display());
            }
            // A walk away from the seeds.
            if runs % 64 == 0 && input.len() < 1 << 16 {
                let place = below(&mut word, 256);
                match inputs.get_mut(corpus(target).len() + place) {
                    Some(old) => *old = input,
                    None => inputs.push(input),
                }
            }
            runs += 1;
        }
        eprintln!("{target}: nothing in {runs} runs, {seconds} s");
    }
}

fn below(word: &mut u64, limit: usize) -> usize {
    *word ^= *word << 13;
    *word ^= *word >> 7;
    *word ^= *word << 17;
    usize::try_from(*word >> 16).unwrap() % limit.max(1)
}

fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], word: &mut u64) {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 4, 0x45, 0x60];
    for _ in 0..=below(word, 5) {
        let at = below(word, input.len());
        match below(word, 7) {
            0 if !input.is_empty() => input[at] ^= 1 << below(word, 8),
            1 if !input.is_empty() => input[at] = ODD[below(word, ODD.len())],
            2 if !input.is_empty() => input[at] = u8::try_from(below(word, 256)).unwrap(),
            3 => input.truncate(at),
            4 => {
                let more = below(word, 40);
                input.splice(
                    at..at,
                    std::iter::repeat_n(ODD[below(word, ODD.len())], more),
                );
            }
            5 if !input.is_empty() => {
                let end = (at + below(word, 64)).min(input.len());
                input.drain(at..end);
            }
            _ => {
                let other = &others[below(word, others.len())];
                let from = below(word, other.len());
                let piece = &other[from..(from + below(word, 200)).min(other.len())];
                input.splice(at..at, piece.iter().copied());
            }
        }
    }
}
