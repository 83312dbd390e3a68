//! A run of the simulated card.

use super::args::Card;
use super::files::{Capture, create_folder};
use super::frames::{Faults, Frames, Generator, Sent};
use super::modules::Modules;
use super::report::{CardReport, Facts, LengthReport, throughput};
use crate::output::print_report;
use crate::progress::Progress;
use crate::{Result, signals};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest frame with FCS that the card accepts.
const MAX_LENGTH: u16 = 9216;

/// Simulates the card until all frames have been received or dropped, or a signal stops it.
pub(super) fn run(args: &Card) -> Result {
    let frames = Frames::of(args)?;
    let start_ns = if let Frames::Captured(captured) = &frames { captured.start_ns } else { 0 };
    let files = args.out.as_deref().map(|folder| Files::create(folder, args)).transpose()?;
    let mut run = Run {
        modules: Modules::new(args, start_ns, MAX_LENGTH).map_err(broken)?,
        line_gbps: args.line_gbps(),
        files,
        faults: Faults::of(args),
        progress: Progress::new("frames"),
        all: frames.count(args.packets),
        sent: 0,
        received: 0,
        stop: signals::stop_flag()?,
    };
    let (mut truncated, mut lengths) = (0, Vec::new());
    match frames {
        Frames::Captured(captured) => {
            truncated = captured.truncated;
            let mut done = Ok(());
            captured.for_each(|frame| {
                if done.is_ok() {
                    done = run.send(frame);
                }
            })?;
            done?;
        }
        Frames::Lengths(all) => {
            let stop = Arc::clone(&run.stop);
            for length in all.into_iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
                lengths.push(run.length(length, args)?);
            }
        }
        Frames::Mix(shares) => run.generate(args.packets, Generator::new(args.seed, shares))?,
    }
    let outcome = run.modules.finish().map_err(broken)?;
    run.take()?;
    if let Some(files) = &mut run.files {
        files.finish()?;
    }
    let facts = Facts {
        line_gbps: run.line_gbps,
        link: args.pcie,
        truncated,
        lengths,
        table_entries: Some(run.modules.entries()),
        clocks: run.modules.clocks(),
        simulated_s: run.modules.seconds(),
    };
    drop(run);
    print_report(args.json, &CardReport::of(&outcome, facts))
}

fn broken(error: String) -> String {
    format!("the simulated card broke a rule: {error}; please report this, with the command and its input")
}

/// The card under load.
struct Run {
    modules: Modules,
    line_gbps: f64,
    files: Option<Files>,
    faults: Faults,
    progress: Progress,
    all: u64,
    sent: u64,
    received: u64,
    stop: Arc<AtomicBool>,
}

impl Run {
    /// Sends a frame, unless a signal has come.
    fn send(&mut self, frame: Sent) -> Result {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.modules.send(self.faults.apply(frame.bytes), frame.at_ns).map_err(broken)?;
        self.sent += 1;
        if self.sent.is_multiple_of(64) {
            self.progress.update(self.sent, self.all);
            self.take()?;
        }
        Ok(())
    }

    fn generate(&mut self, packets: u64, mut generator: Generator) -> Result {
        (0..packets).try_for_each(|_| self.send(generator.frame()))
    }

    /// Receives frames of one length.
    fn length(&mut self, length: u16, args: &Card) -> Result<LengthReport> {
        let (sent, received) = (self.sent, self.received);
        self.generate(args.packets, Generator::new(args.seed ^ u64::from(length) << 32, vec![(length, 1)]))?;
        self.modules.settle().map_err(broken)?;
        self.take()?;
        let (arrived, received) = (self.sent - sent, self.received - received);
        Ok(LengthReport { length, arrived, received, throughput_gbps: throughput(self.line_gbps, received, arrived) })
    }

    /// Takes the frames that were found in memory.
    fn take(&mut self) -> Result {
        for found in self.modules.found() {
            self.received += 1;
            if let Some(files) = &mut self.files {
                files.write(found.channel, found.time_ns, &found.frame)?;
            }
        }
        Ok(())
    }
}

/// A capture of each channel.
struct Files(Vec<Capture>);

impl Files {
    fn create(folder: &Path, args: &Card) -> Result<Self> {
        let module = if args.pcie.is_some() { "shotline_card_ethernet" } else { "shotline_card_port" };
        create_folder(folder)?;
        let comment = "frames as the simulated card wrote them to memory, without its header; times are of the header";
        let create = |channel| {
            let path = folder.join(format!("channel-{channel:03}.pcapng"));
            Capture::create(path, format!("channel {channel}"), module, comment)
        };
        Ok(Self((0..args.modules * args.channels()).map(create).collect::<Result<_>>()?))
    }

    fn write(&mut self, channel: usize, time_ns: u64, frame: &[u8]) -> Result {
        self.0[channel].write(time_ns, frame)
    }

    fn finish(&mut self) -> Result {
        self.0.iter_mut().try_for_each(Capture::finish)
    }
}
