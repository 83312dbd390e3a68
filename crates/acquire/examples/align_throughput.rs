//! How many events a second one core puts together: four sources, pushed as a receive thread would. Time is the thread's
//! own, so that other programs on the processor do not count. Prints one JSON object; `bench/align.py` runs it.
//!
//! Arguments: `number` or `stamp`; `clean` or `faulty` (1 % of the items lost, 1 % of what is left behind its successor).

use rustix::time::{ClockId, clock_gettime};
use shotline_acquire::align::{Aligner, By, Config, Mark};

const SOURCES: usize = 4;
/// Between events.
const SPACING_NS: u64 = 1_000;
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
/// How far each clock is ahead, and how much faster it runs.
const CLOCKS: [(i64, f64); SOURCES] = [(0, 0.0), (800_000, 20e-6), (-500_000, -35e-6), (1_000_000, 50e-6)];

/// One push.
struct Step {
    source: usize,
    now_ns: u64,
    mark: Mark,
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
        by: if by_stamp { By::Stamp { window_ns: Some(SPACING_NS / 2 - 50) } } else { By::Number },
        disorder: match (faulty, by_stamp) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => SPACING_NS + 100,
        },
        patience_ns: 100_000_000,
        quorum: 1,
        capacity: 1024,
        lock_ns: 100,
    });
    let (mut seconds, mut out, mut parts) = (0.0, 0, 0);
    for first in (0..events).step_by(block as usize) {
        let steps = steps(first..(first + block).min(events), faulty, &mut seed);
        let begun = cpu_seconds();
        for step in &steps {
            // The item stands for the box that a shot comes in.
            let _ = aligner.push(step.source, step.now_ns, step.mark, step.mark.number);
            while let Some(event) = aligner.pop(step.now_ns) {
                out += 1;
                parts += std::hint::black_box(&event).parts.iter().flatten().count();
            }
        }
        seconds += cpu_seconds() - begun;
    }
    let counts = *aligner.counts();
    let late: u64 = (0..SOURCES).map(|source| aligner.source(source).late).sum();
    let locked = (1..SOURCES).all(|source| aligner.clock(source).locked);
    println!(
        "{{\"events\": {out}, \"seconds\": {seconds}, \"parts\": {parts}, \"complete\": {}, \"partial\": {}, \"late\": {late}, \"locked\": {locked}}}",
        counts.complete, counts.partial
    );
}

/// What arrives, made before the time is taken.
fn steps(events: std::ops::Range<u64>, faulty: bool, seed: &mut u64) -> Vec<Step> {
    let mut steps = Vec::with_capacity((events.end - events.start) as usize * SOURCES);
    for number in events {
        let elapsed = number * SPACING_NS;
        for (source, (offset, drift)) in CLOCKS.iter().enumerate() {
            if faulty && random(seed).is_multiple_of(100) {
                continue;
            }
            let stamp = (BEGIN_NS + elapsed).saturating_add_signed(offset + (elapsed as f64 * drift) as i64);
            // Packets wait for up to 40 ns somewhere.
            let arrived_ns = BEGIN_NS + 50_000 + elapsed + random(seed) % 40;
            steps.push(Step { source, now_ns: elapsed, mark: Mark { number, stamp_ns: stamp, arrived_ns } });
            let behind = steps.len().checked_sub(1 + SOURCES).filter(|_| faulty && random(seed).is_multiple_of(100));
            if let Some(behind) = behind.filter(|behind| steps[*behind].source == source) {
                let last = steps.len() - 1;
                steps.swap(behind, last);
            }
        }
    }
    steps
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// xorshift64 (Marsaglia 2003).
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}
