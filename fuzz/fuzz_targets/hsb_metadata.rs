#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shotline_fuzz::hsb_metadata(data));
