//! Measures the medium access controller: nanoseconds per `select` and `sent` with 1 to 32 virtual channels that are
//! ready, of one priority and of sixteen.
//!
//! Argument: number of frames per measurement (20,000).

use shotline_spacefibre::qos::{MediumAccess, Share, VcQos};
use std::hint::black_box;
use std::time::Instant;

/// Words of a frame of 64 data words.
const FRAME: u32 = 66;

fn main() {
    let frames = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    println!("{:>8}  {:>10}  {:>11}  {:>9}  {:>7}", "channels", "priorities", "select [ns]", "sent [ns]", "both [ns]");
    for count in [1, 2, 4, 8, 16, 32] {
        for priorities in [1, 16] {
            let (select, both) = (select_ns(count, priorities, frames), both_ns(count, priorities, frames));
            let sent = sent_ns(count, priorities, frames);
            println!("{count:8}  {priorities:10}  {select:11.1}  {sent:9.1}  {both:9.1}");
        }
    }
}

fn access(count: u32, priorities: u32) -> MediumAccess {
    let share = Share::from_parts(Share::WHOLE.parts() / count).unwrap_or(Share::NONE);
    let channels: Vec<_> = (0..count).map(|vc| VcQos::new((vc % priorities) as u8, share)).collect();
    let mut access = MediumAccess::new(&channels).expect("equal shares can be kept");
    // The state of a link in use.
    for _ in 0..10_000 {
        let vc = access.select(u32::MAX);
        access.sent(vc, FRAME);
    }
    access
}

/// Time of `select` alone, with other ready channels each time.
fn select_ns(count: u32, priorities: u32, frames: u32) -> f64 {
    let access = access(count, priorities);
    nanoseconds(frames, || {
        black_box(black_box(&access).select(black_box(u32::MAX)));
    })
}

/// Time of `sent` alone, of all channels in turn.
fn sent_ns(count: u32, priorities: u32, frames: u32) -> f64 {
    let mut access = access(count, priorities);
    let mut vc = 0;
    nanoseconds(frames, || {
        black_box(&mut access).sent(Some(black_box(vc)), black_box(FRAME));
        vc = if u32::from(vc) + 1 == count { 0 } else { vc + 1 };
    })
}

/// Time of a frame: `select`, then `sent` of the selected channel, on which the next `select` depends.
fn both_ns(count: u32, priorities: u32, frames: u32) -> f64 {
    let mut access = access(count, priorities);
    nanoseconds(frames, || {
        let vc = access.select(black_box(u32::MAX));
        access.sent(black_box(vc), FRAME);
    })
}

/// Best of 50 measurements, in ns per call.
fn nanoseconds(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut measure = || {
        let started = Instant::now();
        (0..calls).for_each(|_| call());
        started.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    (0..50).map(|_| measure()).fold(f64::INFINITY, f64::min)
}
