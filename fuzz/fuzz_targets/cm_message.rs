#![no_main]

#[path = "../src/messages.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::cm_message(data));
