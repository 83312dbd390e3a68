//! The committed seeds of the fuzz target `frame`, run through its own function.

#[path = "../../../../fuzz/src/frames.rs"]
mod targets;

use shotline_testing::{assert_committed, check_mutations};
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
    check_mutations(&folder(), targets::frame);
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
