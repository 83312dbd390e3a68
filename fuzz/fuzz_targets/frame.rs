#![no_main]

#[path = "../src/frames.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::frame(data));
