#![no_main]

#[path = "../src/ends.rs"]
mod ends;
#[path = "../src/words.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::spacefibre_word_link(data));
