//! Soak test of the packet card's model: `card_soak [SECONDS] [SEED] [CLOCKS]`. Runs seeds of the DMA module
//! in both sizes, and of the card behind a PCIe link, each for a number of clocks, until the time is over. The last line is JSON: seeds, clocks, packets by what became of them, stops
//! by cause.

use shotline_plan::pcie::Link;
use shotline_rtl::card::{Size, soak};
use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seconds, first, clocks) = (argument(60), argument(1), argument(100_000));
    let begin = Instant::now();
    let mut sum = soak::Summary::default();
    let mut seed = first;
    while seed == first || begin.elapsed() < Duration::from_secs(seconds) {
        let sizes = [Size::Small, Size::Full].map(|size| soak::run(seed, clocks, size));
        for done in sizes.into_iter().chain([soak::run_behind(&Link::default(), seed, clocks)]) {
            match done {
                Ok(summary) => sum += summary,
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        seed += 1;
    }
    let [stopped, descriptor, completion, timeout, refused] = sum.stops;
    let counters = sum.counters;
    println!(
        "{{\"seeds\": {}, \"clocks\": {}, \"seconds\": {:.1}, \"starts\": {}, \"received\": {}, \"stopped\": {}, \
         \"no_descriptor\": {}, \"late\": {}, \"reports\": {}, \"interrupts\": {}, \"unexpected\": {}, \"stops\": \
         {{\"software\": {stopped}, \"descriptor\": {descriptor}, \"completion\": {completion}, \"timeout\": {timeout}, \
         \"refused\": {refused}}}}}",
        seed - first,
        sum.clocks,
        begin.elapsed().as_secs_f64(),
        sum.starts,
        counters.received.packets,
        counters.stopped.packets,
        counters.no_descriptor.packets,
        counters.late.packets,
        sum.reports,
        sum.interrupts,
        sum.strays,
    );
    ExitCode::SUCCESS
}
