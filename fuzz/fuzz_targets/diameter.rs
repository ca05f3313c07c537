#![no_main]

#[path = "../properties/diameter.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| property::holds(octets));
