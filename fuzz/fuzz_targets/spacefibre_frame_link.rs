#![no_main]

#[path = "../src/ends.rs"]
mod ends;
#[path = "../src/frame_link.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::spacefibre_frame_link(data));
