#![no_main]

#[path = "../src/endpoints.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::endpoint_packets(data));
