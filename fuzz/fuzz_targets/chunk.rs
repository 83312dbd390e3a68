#![no_main]

#[path = "../src/chunk.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::chunk(data));
