//! Time of scrambling and CRC-16 for one data frame of 64 rows, for each form of the kernels and number of lanes.
//!
//! `cargo run --release -p shotline-spacefibre --example column_throughput -- [lanes]`
//!
//! Prints ns per frame, the fastest of many rounds, from the start of a frame to the CRCs that end it on all lanes:
//! words scrambled, descrambled, and checked only.

use shotline_spacefibre::column::{Columns, Form, MAX_LANES, MAX_ROWS};
use shotline_wire::spacefibre::SequenceNumber;
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 100;
const FRAMES: u32 = 2_000;

fn main() {
    let lanes = std::env::args().nth(1).map(|lanes| lanes.parse().expect("expected a number of lanes"));
    println!("{:5} {:5} {:10} {:>9} {:>9} {:>9}", "lanes", "bytes", "form", "scramble", "descr.", "CRC only");
    for lanes in lanes.map_or(1..=MAX_LANES, |lanes| lanes..=lanes) {
        let mut data = vec![0x5a; MAX_ROWS * lanes * 4];
        for form in Form::available() {
            let from = data.clone();
            let scramble = nanoseconds(form, lanes, &mut data, |columns, data| columns.scramble(&from, data));
            let descramble = nanoseconds(form, lanes, &mut data, |columns, data| columns.descramble(data));
            let checksum = nanoseconds(form, lanes, &mut data, |columns, data| columns.checksum(data));
            let (bytes, name) = (data.len(), form.name());
            println!("{lanes:5} {bytes:5} {name:10} {scramble:9.1} {descramble:9.1} {checksum:9.1}");
        }
    }
}

/// Returns the time of one frame.
fn nanoseconds(form: &'static Form, lanes: usize, data: &mut [u8], pass: impl Fn(&mut Columns, &mut [u8])) -> f64 {
    let mut fastest = Duration::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..FRAMES {
            let mut columns = Columns::with_form(form, black_box(1), black_box(lanes));
            pass(&mut columns, black_box(&mut *data));
            for lane in 0..lanes {
                black_box(columns.crc(lane, SequenceNumber::from_bits(1)));
            }
        }
        fastest = fastest.min(started.elapsed());
    }
    fastest.as_secs_f64() * 1e9 / f64::from(FRAMES)
}
