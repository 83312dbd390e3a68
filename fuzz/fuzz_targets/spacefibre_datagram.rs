#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shotline_fuzz::spacefibre_datagram(data));
