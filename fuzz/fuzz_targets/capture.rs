#![no_main]

use shotline_store::pcapng::{datagram, network, read_frames};

// Any capture is read without a panic, and no frame has more bytes than the file.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = read_frames(data, |frame| {
        assert!(frame.data.len() <= data.len());
        let _ = network(&frame);
        if let Ok(datagram) = datagram(&frame) {
            assert!(datagram.payload.len() < frame.data.len());
        }
    });
});
