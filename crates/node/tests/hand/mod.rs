//! `nodrop-node trace` with flags, as a person runs it.

use std::process::{Command, Output};

pub fn trace_tool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nodrop-node"))
        .arg("trace")
        .args(args)
        .output()
        .unwrap()
}

/// The same of flags in one text, none of which has a space in it; it must succeed.
pub fn trace_tool_does(words: &str) {
    let done = trace_tool(&words.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{words}: {said}");
}
