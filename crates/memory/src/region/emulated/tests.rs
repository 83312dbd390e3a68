//! Times of transfers over emulated paths, on a simulated clock.

use super::path::Clock;
use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A clock that advances only by waiting and by [`Self::pass`].
#[derive(Default)]
struct Simulated {
    now: AtomicU64,
    waits: AtomicU64,
    /// Time that every sleep takes in excess.
    excess: u64,
}

impl Simulated {
    fn pass(&self, ns: u64) {
        self.now.fetch_add(ns, Relaxed);
    }
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
}

impl Clock for Arc<Simulated> {
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
    fn wait_until(&self, time: u64, is_exact: bool) {
        assert!(time > self.now(), "a wait for a time that has passed");
        self.waits.fetch_add(1, Relaxed);
        self.now.store(time + if is_exact { 0 } else { self.excess }, Relaxed);
    }
}

fn path(model: PathModel, excess: u64) -> (EmulatedPath, Arc<Simulated>) {
    let clock = Arc::new(Simulated { now: AtomicU64::new(5_000_000), excess, ..Simulated::default() });
    (EmulatedPath::with_clock(model, Box::new(Arc::clone(&clock))), clock)
}

/// Returns the time in ns that a call takes.
fn time(clock: &Simulated, call: impl FnOnce()) -> u64 {
    let begin = clock.now();
    call();
    clock.now() - begin
}

const MS: u64 = 1_000_000;

#[test]
fn transfer_takes_bytes_over_rate() {
    let (path, clock) = path(PathModel::PATH2, 0);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 4_800_000)), MS);
    clock.pass(MS);
    assert_eq!(time(&clock, || path.delay(PathDirection::Read, 4_800_000)), 4 * MS);
}

#[test]
fn copy_time_is_part_of_the_transfer_time() {
    let (path, clock) = path(PathModel::PATH2, 0);
    let copy = || path.transfer(PathDirection::Write, 4_800_000, || clock.pass(MS / 4));
    assert_eq!(time(&clock, copy), MS);
    clock.pass(MS);
    let slow = || path.transfer(PathDirection::Write, 4_800_000, || clock.pass(3 * MS));
    assert_eq!(time(&clock, slow), 3 * MS);
}

#[test]
fn latency_is_added_to_the_first_operation_only() {
    let (path, clock) = path(PathModel { latency_ns: 5_000, ..PathModel::PATH2 }, 0);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 4_800)), 6_000);
    // Ten operations follow, each within a microsecond of the previous one.
    let all = time(&clock, || (0..10).for_each(|_| path.delay(PathDirection::Write, 4_800_000)));
    assert_eq!(all, 10 * MS - 50_000);
    clock.pass(MS);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 4_800)), 6_000);
    clock.pass(1_001);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 0)), 5_000);
}

#[test]
fn directions_do_not_share_their_rates() {
    let (path, clock) = path(PathModel::PATH3, 0);
    path.delay(PathDirection::Write, 10_000);
    path.delay(PathDirection::Write, 900_000);
    assert_eq!(time(&clock, || path.delay(PathDirection::Read, 8_900)), 1_000);
}

/// Copies many packets, with these times in ns, and returns the rate and the number of waits per packet. Every
/// hundredth packet is delayed in addition.
fn packets(gap: u64, copy: u64, excess: u64, delay: u64) -> (f64, f64) {
    copies(4096, gap, copy, excess, delay)
}

fn copies(len: usize, gap: u64, copy: u64, excess: u64, delay: u64) -> (f64, f64) {
    const PACKETS: u64 = 200_000;
    let (path, clock) = path(PathModel { latency_ns: 5_000, ..PathModel::PATH2 }, excess);
    let all = time(&clock, || {
        for packet in 0..PACKETS {
            path.transfer(PathDirection::Write, len, || clock.pass(copy));
            clock.pass(if packet % 100 == 0 { gap + delay } else { gap });
        }
    });
    (PACKETS as f64 * len as f64 * 1e9 / all as f64, clock.waits.load(Relaxed) as f64 / PACKETS as f64)
}

#[test]
fn many_small_copies_have_the_rate_of_the_path() {
    for (excess, delay) in [(0, 0), (40_000, 0), (60_000, 0), (2 * MS, 0), (0, 20_000), (60_000, 2_000)] {
        let (rate, waits) = packets(200, 300, excess, delay);
        assert!((rate / 4.8e9 - 1.0).abs() < 0.01, "{excess} ns in excess, {delay} ns of delay: {rate} B/s");
        assert!(waits < 0.05, "{excess} ns in excess, {delay} ns of delay: {waits} waits per packet");
    }
}

#[test]
fn many_long_copies_have_the_rate_of_the_path() {
    // The path needs 100 us for each.
    for (copy, excess) in [(40_000, 0), (40_000, 60_000), (40_000, 200_000), (40_000, 2 * MS), (90_000, 200_000)] {
        let (rate, _) = copies(480_000, 200, copy, excess, 0);
        assert!((rate / 4.8e9 - 1.0).abs() < 0.01, "{copy} ns of copying, {excess} ns in excess: {rate} B/s");
    }
}

#[test]
fn delay_of_a_copy_is_returned_to_later_ones() {
    let (path, clock) = path(PathModel::PATH2, 0);
    // Every hundredth copy of 100 us of the path is delayed by 3 ms, and takes 40 us otherwise.
    let copy =
        |late: bool| path.transfer(PathDirection::Write, 480_000, || clock.pass(40_000 + u64::from(late) * 3 * MS));
    let all = time(&clock, || (0..10_000).for_each(|index| copy(index % 100 == 99)));
    assert!((1_000 * MS..1_010 * MS).contains(&all), "{all} ns");
    // Only 10 ms of a longer delay.
    let late = time(&clock, || path.transfer(PathDirection::Write, 480_000, || clock.pass(100 * MS)));
    let all = late + time(&clock, || (0..1_000).for_each(|_| copy(false)));
    assert!((189 * MS..191 * MS).contains(&all), "{all} ns");
}

#[test]
fn copies_slower_than_the_path_are_not_delayed() {
    let (rate, waits) = packets(200, 1_000, 60_000, 0);
    assert!((rate / (4096e9 / 1_200.0) - 1.0).abs() < 0.01, "{rate} B/s");
    assert!(waits < 0.001, "{waits} waits per packet");
}

#[test]
fn excess_of_a_sleep_is_returned_once() {
    let (path, clock) = path(PathModel::PATH2, 5 * MS);
    path.delay(PathDirection::Write, 4_800);
    path.delay(PathDirection::Write, 4_800_000);
    // It woke 4.95 ms after the direction was free, so 4.95 ms of transfers are not delayed.
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 4_950 * 4_800)), 0);
    clock.pass(50_000);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 4_800_000)), MS);
}

#[test]
fn excess_of_a_sleep_is_not_kept_by_an_idle_caller() {
    let (path, clock) = path(PathModel { latency_ns: 5_000, ..PathModel::PATH2 }, 5 * MS);
    path.delay(PathDirection::Write, 4_800);
    path.delay(PathDirection::Write, 4_800_000);
    // Short operations every 50 us: the excess of 5 ms can be used by those of the next 10 ms.
    let waits = || clock.waits.load(Relaxed);
    let before = waits();
    for _ in 0..600 {
        clock.pass(50_000);
        path.delay(PathDirection::Write, 480);
    }
    assert!((390..=410).contains(&(waits() - before)), "{} of 600 waited for the latency", waits() - before);
}

#[test]
fn idle_time_is_not_returned_to_later_transfers() {
    let (path, clock) = path(PathModel::PATH2, 0);
    path.delay(PathDirection::Write, 4_800_000);
    clock.pass(100 * MS);
    assert_eq!(time(&clock, || path.delay(PathDirection::Write, 48_000_000)), 10 * MS);
}

#[test]
fn queued_transfers_of_both_directions_pass_at_the_same_time() {
    // One caller, which continues each direction in turn, by parts of 100 us.
    let both = |follows: bool| {
        let (path, clock) = path(PathModel::PATH2, 0);
        time(&clock, || {
            for _ in 0..100 {
                for (direction, bytes) in [(PathDirection::Write, 480_000), (PathDirection::Read, 120_000)] {
                    if follows {
                        path.follow(direction);
                    }
                    path.delay(direction, bytes);
                }
            }
        })
    };
    let (together, apart) = (both(true), both(false));
    assert!((10 * MS - MS / 5..=10 * MS + MS / 5).contains(&together), "{together} ns");
    assert!(apart > 14 * MS, "{apart} ns");
}

#[test]
fn idle_time_is_followed_for_ten_milliseconds_only() {
    let (path, clock) = path(PathModel::PATH2, 0);
    path.delay(PathDirection::Write, 4_800);
    clock.pass(50 * MS);
    path.follow(PathDirection::Write);
    // 100 ms of transfers, of which 10 ms fit into the gap.
    let took = time(&clock, || path.delay(PathDirection::Write, 480_000_000));
    assert!((89 * MS..=90 * MS).contains(&took), "{took} ns");
}

#[test]
fn path_without_limits_waits_for_its_latency_only() {
    let (path, clock) = path(PathModel::default(), 0);
    assert_eq!(time(&clock, || path.delay(PathDirection::Read, usize::MAX)), 0);
    let model = PathModel { latency_ns: 700, ..PathModel::default() };
    let (path, clock) = self::path(model, 0);
    assert_eq!(time(&clock, || path.delay(PathDirection::Read, usize::MAX)), 700);
}

#[test]
fn counters_have_operations_bytes_and_time_by_direction() {
    let (path, _) = path(PathModel::PATH2, 0);
    path.delay(PathDirection::Write, 4_800_000);
    path.delay(PathDirection::Read, 1_200);
    path.delay(PathDirection::Read, 1_200_000);
    let counters = |operations, bytes, waited| PathCounters { operations, bytes, waited: Duration::from_nanos(waited) };
    assert_eq!(path.counters(PathDirection::Write), counters(1, 4_800_000, MS));
    assert_eq!(path.counters(PathDirection::Read), counters(2, 1_201_200, 1_000 + MS - 50_000));
}

#[test]
fn emulated_memory_shares_the_bytes_of_its_region() {
    let (backing, (path, clock)) = (Region::memfd("test", 8192).unwrap(), path(PathModel::PATH2, 0));
    let path = Arc::new(path);
    let region = Region::device(Arc::new(EmulatedMemory::over(Arc::clone(&backing), Arc::clone(&path))));
    assert_eq!(time(&clock, || region.write(3, &[7; 4800])), 1_000);
    let mut bytes = [0; 4802];
    backing.read(2, &mut bytes);
    assert_eq!((bytes[0], bytes[1], bytes[4800], bytes[4801]), (0, 7, 7, 0));
    assert_eq!(time(&clock, || region.read(0, &mut bytes[..2400])), 2_000);
    assert_eq!((bytes[0], bytes[3], path.counters(PathDirection::Read).bytes), (0, 7, 2400));
    assert!(!region.is_mapped() && region.failure().is_none());
}

#[test]
fn emulated_memory_over_a_read_only_region_is_read_only() {
    let backing = Region::memfd("test", 4096).unwrap();
    backing.write(0, &[7; 8]);
    let fd = rustix::io::dup(backing.fd().unwrap()).unwrap();
    let region = Region::from_fd(fd, false).unwrap().behind(Arc::new(path(PathModel::PATH2, 0).0));
    assert!(!region.is_writable());
    let mut bytes = [0; 8];
    region.read(0, &mut bytes);
    assert_eq!(bytes, [7; 8]);
    let write = std::panic::AssertUnwindSafe(|| region.write(0, &[1]));
    assert!(std::panic::catch_unwind(write).is_err());
    assert_eq!(region.emulated_memory().unwrap().path().counters(PathDirection::Write).operations, 0);
}

#[test]
fn machine_clock_waits_at_least_as_long_as_the_path() {
    let model = PathModel { latency_ns: 300_000, ..PathModel::PATH3 };
    let (path, begin) = (EmulatedPath::new(model), std::time::Instant::now());
    path.delay(PathDirection::Write, 1_000_000);
    assert!(begin.elapsed() >= Duration::from_micros(400));
    assert!(path.counters(PathDirection::Write).waited <= begin.elapsed());
}
