//! Soak test of the RTL's model with random packets: `rtl_soak [FRAMES] [SEED]`. Every frame is compared with that of
//! the wire crate. The last line is JSON: frames, clocks, seconds, and clocks per second of processor time.

use shotline_rtl::soak;
use std::env;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let frames = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let begin = Instant::now();
    let processor = processor_seconds();
    let mut millions = 0;
    let done = soak::run(seed, frames, |summary| {
        if summary.frames / 1_000_000 > millions {
            millions = summary.frames / 1_000_000;
            eprintln!("{millions} million frames, {} configurations", summary.configurations);
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let busy = processor.zip(processor_seconds()).map_or(seconds, |(before, after)| after - before);
    match done {
        Ok(summary) => {
            let holes = summary.coverage.holes().len();
            println!(
                "{{\"frames\": {}, \"clocks\": {}, \"seconds\": {seconds:.2}, \"processor_seconds\": {busy:.2}, \
                 \"clocks_per_processor_second\": {:.0}, \"corners_missed\": {holes}}}",
                summary.frames,
                summary.clocks,
                summary.clocks as f64 / busy
            );
            ExitCode::SUCCESS
        }
        Err(mismatch) => {
            eprintln!("{mismatch}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the CPU time of this process in seconds, on Linux (fields 14 and 15 of `stat`, in hundredths).
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    Some(fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0)
}
