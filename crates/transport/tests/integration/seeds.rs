//! The committed seeds of the fuzz target `frame`, run through its own function.

#[path = "../../../../fuzz/src/frames.rs"]
mod targets;

use shotline_testing::assert_committed;
use std::path::PathBuf;
use targets::frame::headers;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds/frame"].iter().collect()
}

#[test]
fn committed_seeds_and_their_mutations_hold() {
    for (name, bytes) in seeds() {
        assert_committed(&folder().join(name), &bytes);
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        (0..=bytes.len()).for_each(|len| targets::frame(&bytes[..len]));
        // Flipping single bits reaches code that is guarded by checks a random byte rarely passes.
        for (at, bit) in (0..8 * bytes.len()).map(|bit| (bit / 8, bit % 8)) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            targets::frame(&changed);
        }
    }
}

fn seeds() -> [(&'static str, Vec<u8>); 3] {
    let frame = |from: &str, to: &str, padding: usize| {
        let headers = headers([[2; 6], [4; 6]], from.parse().unwrap(), to.parse().unwrap(), 5, true).unwrap();
        [&headers[..], b"hello", &vec![0; padding]].concat()
    };
    [
        ("ipv4", frame("10.0.0.1:49152", "10.0.0.2:4791", 0)),
        ("ipv4_padded", frame("10.0.0.1:49152", "10.0.0.2:4791", 13)),
        ("ipv6", frame("[fd00::1]:49152", "[fd00::2]:4791", 0)),
    ]
}
