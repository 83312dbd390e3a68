#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shotline_fuzz::framing_vita49(data));
