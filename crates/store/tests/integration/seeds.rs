//! Runs the committed seeds of the chunk fuzz target through the target function.

#[path = "../../../../fuzz/src/chunk.rs"]
mod targets;

use shotline_memory::{Pool, Registrar};
use shotline_store::codec::Encoder;
use shotline_testing::assert_committed;
use std::path::PathBuf;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds/chunk"].iter().collect()
}

#[test]
fn seeds_and_their_prefixes_decode_safely() {
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder()).expect("seeds are committed") {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        (0..=bytes.len()).for_each(|len| targets::chunk(&bytes[..len]));
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            targets::chunk(&changed);
        }
        seeds += 1;
    }
    assert!(seeds > 0);
}

#[test]
fn committed_seeds_are_what_the_encoder_writes() {
    let shapes =
        [[0, 0, 0, 4, 0x0b, 0xb9], [1, 1, 0, 6, 0x0b, 0xba], [0, 2, 2, 3, 0x2e, 0xe3], [1, 2, 1, 1, 0x60, 0x01]];
    for head in shapes {
        let (codec, geometry) = targets::shape(&head).unwrap();
        let pool = Pool::new(&mut Registrar::new(), 2, geometry.slot_bytes()).unwrap();
        let (shot, out) = (pool.take().unwrap(), pool.take().unwrap());
        shot.zero(0, shot.len());
        shot.write(30, &[0x12; 300]);
        let len = Encoder::new(codec, geometry).encode(&shot, &out).unwrap();
        let mut chunk = vec![0; len as usize];
        out.read(0, &mut chunk);
        let name: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_committed(&folder().join(name), &[&head[..], &chunk].concat());
    }
}
