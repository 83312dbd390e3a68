#![no_main]

#[path = "../src/accelerators.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::accelerator(data));
