//! Measures how many events per second one core aligns: four sources, pushed as a receive thread would. The time is the
//! thread's CPU time, so other programs on the processor do not count. Prints one JSON object; `bench/align.py` runs
//! it.
//!
//! Arguments: `number` or `stamp`; `clean` or `faulty` (1 % of the items lost, 1 % of the rest after their successor).

use rustix::time::{ClockId, clock_gettime};
use shotline_acquire::align::{AlignBy, Aligner, Config, ItemMeta};

const SOURCES: usize = 4;
/// Time between events.
const SPACING_NS: u64 = 1_000;
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
/// Lead of each clock in ns, and its drift as a fraction.
const CLOCKS: [(i64, f64); SOURCES] = [(0, 0.0), (800_000, 20e-6), (-500_000, -35e-6), (1_000_000, 50e-6)];

/// Arguments of one push.
struct Push {
    source: usize,
    now_ns: u64,
    meta: ItemMeta,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let by_stamp = arguments.next().as_deref() == Some("stamp");
    let faulty = arguments.next().as_deref() == Some("faulty");
    let events: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(4_000_000);
    let block: u64 = 100_000;
    let mut seed = 1;
    let mut aligner = Aligner::new(Config {
        sources: SOURCES,
        by: if by_stamp { AlignBy::Stamp { window_ns: Some(SPACING_NS / 2 - 50) } } else { AlignBy::Number },
        disorder: match (faulty, by_stamp) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => SPACING_NS + 100,
        },
        timeout_ns: 100_000_000,
        quorum: 1,
        capacity: 1024,
        lock_ns: 100,
    });
    let (mut seconds, mut out, mut parts) = (0.0, 0, 0);
    for first in (0..events).step_by(block as usize) {
        let pushes = pushes(first..(first + block).min(events), faulty, &mut seed);
        let started = cpu_seconds();
        for push in &pushes {
            // A number in place of a boxed shot, which has the same size.
            let _ = aligner.push(push.source, push.now_ns, push.meta, push.meta.number);
            while let Some(event) = aligner.pop(push.now_ns) {
                out += 1;
                parts += std::hint::black_box(&event).parts.iter().flatten().count();
            }
        }
        seconds += cpu_seconds() - started;
    }
    let counts = *aligner.counters();
    let late: u64 = (0..SOURCES).map(|source| aligner.source(source).late).sum();
    let locked = (1..SOURCES).all(|source| aligner.clock(source).locked);
    println!(
        "{{\"events\": {out}, \"seconds\": {seconds}, \"parts\": {parts}, \"complete\": {}, \"partial\": {}, \"late\": {late}, \"locked\": {locked}}}",
        counts.complete, counts.partial
    );
}

/// Returns the input, generated before the time is taken.
fn pushes(events: std::ops::Range<u64>, faulty: bool, seed: &mut u64) -> Vec<Push> {
    let mut pushes = Vec::with_capacity((events.end - events.start) as usize * SOURCES);
    for number in events {
        let elapsed = number * SPACING_NS;
        for (source, (offset, drift)) in CLOCKS.iter().enumerate() {
            if faulty && random(seed).is_multiple_of(100) {
                continue;
            }
            let stamp = (BEGIN_NS + elapsed).saturating_add_signed(offset + (elapsed as f64 * drift) as i64);
            // Packets are delayed by up to 40 ns.
            let arrived_ns = BEGIN_NS + 50_000 + elapsed + random(seed) % 40;
            pushes.push(Push { source, now_ns: elapsed, meta: ItemMeta { number, stamp_ns: stamp, arrived_ns } });
            let previous = pushes.len().checked_sub(1 + SOURCES).filter(|_| faulty && random(seed).is_multiple_of(100));
            if let Some(previous) = previous.filter(|previous| pushes[*previous].source == source) {
                let last = pushes.len() - 1;
                pushes.swap(previous, last);
            }
        }
    }
    pushes
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the next number of xorshift64 (Marsaglia 2003).
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}
