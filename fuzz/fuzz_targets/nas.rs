#![no_main]

#[path = "../properties/nas.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| property::holds(octets));
