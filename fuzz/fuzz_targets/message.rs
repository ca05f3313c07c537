#![no_main]

#[path = "../properties/message.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|line: &str| property::holds(line));
