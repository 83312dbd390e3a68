#![no_main]

#[path = "../src/endpoints.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::verbs_calls(data));
