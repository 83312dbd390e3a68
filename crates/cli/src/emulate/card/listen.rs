//! `shotline emulate card --listen` and `--window`: the card for a driver in another process or in a virtual machine.

use super::args::Card;
use super::files::{Capture, create_folder};
use super::frames::{Captured, Faults, Frames, Generator, Sent};
use super::report::{CardReport, Facts, SentReport};
use crate::output::print_report;
use crate::{Result, signals};
use shotline_instrument::card::{Incoming, Interface, Server, Settings, Sink, Source, Totals};
use shotline_rtl::card::Outcome;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Frames that are read from a capture ahead.
const AHEAD: usize = 1024;
/// Bytes of the FCS, which captures do not have.
const FCS: usize = 4;
/// Queues of software that sends.
const QUEUES: usize = 256;

/// Serves drivers until a signal comes or, with `--once`, the first has gone.
pub(super) fn run(args: &Card) -> Result {
    if let Some(name) = &args.wire {
        let wire = Interface::open(name)?;
        let done = serve(args, Interface::now_ns(), &mut wire.clone(), &mut wire.clone())?;
        let report = report(args, done, 0).of_interface(&wire);
        return print_report(args.json, &report);
    }
    let frames = Frames::of(args)?;
    let mut truncated = 0;
    let mut start_ns = 0;
    let source: Box<dyn Source> = match frames {
        Frames::Captured(captured) => {
            (truncated, start_ns) = (captured.truncated * args.repeat, captured.start_ns);
            Box::new(Replay::start(captured, args.repeat))
        }
        Frames::Lengths(lengths) => {
            let generator = |length: u16| Generator::new(args.seed ^ u64::from(length) << 32, vec![(length, 1)]);
            Box::new(Generated::new(lengths.into_iter().map(generator), args.packets))
        }
        Frames::Mix(shares) => Box::new(Generated::new([Generator::new(args.seed, shares)], args.packets)),
    };
    let mut files = Files::new(args.out.as_deref())?;
    let mut source = Faulty { source, faults: Faults::of(args) };
    let done = serve(args, start_ns, &mut source, &mut files);
    files.finish()?;
    print_report(args.json, &report(args, done?, truncated))
}

fn serve(args: &Card, start_ns: u64, source: &mut dyn Source, sink: &mut dyn Sink) -> Result<Totals> {
    let stop = signals::stop_flag()?;
    let settings = Settings {
        gbps: args.rate,
        start_ns,
        channels: args.channels.map_or(1, usize::from),
        pause: args.pause,
        once: args.once,
        seed: args.seed,
    };
    let (server, path) = match (&args.listen, &args.window, &args.memory) {
        (Some(socket), ..) => (Server::bind(socket, settings)?, socket),
        (None, Some(window), Some(memory)) => (Server::attach(window, memory, settings)?, window),
        _ => return Err("expected --listen, or --window and --memory".into()),
    };
    errln!("the card waits for a driver on {}", path.display());
    signals::notify_ready();
    Ok(server.run(source, sink, &stop, &mut |notice| errln!("{notice}"))?)
}

/// Returns the report: channels with packets, and queues with frames.
fn report(args: &Card, totals: Totals, truncated: u64) -> CardReport {
    let Totals { connections, frames, distributed, channels, sent, clocks, simulated_s } = totals;
    let facts = Facts {
        line_gbps: args.rate,
        link: None,
        truncated,
        lengths: Vec::new(),
        table_entries: None,
        clocks,
        simulated_s,
    };
    let sent = sent.iter().enumerate().map(|(queue, sent)| SentReport::of(queue, sent));
    let sent = sent.filter(|sent| !sent.is_empty()).collect();
    let connections = args.listen.is_some().then_some(connections);
    CardReport::of(&Outcome { frames, distributed, channels }, facts).of_driver(connections, sent)
}

/// The frames of a capture, read by another thread.
struct Replay {
    frames: Receiver<std::result::Result<Sent, String>>,
    is_over: bool,
}

impl Replay {
    /// Starts to read a capture, `repeat` times.
    fn start(captured: Captured, repeat: u64) -> Self {
        let (to, frames) = sync_channel(AHEAD);
        thread::spawn(move || {
            let mut offset_ns = 0;
            for _ in 0..repeat {
                let (mut last_ns, mut is_wanted) = (0, true);
                let done = captured.for_each(|frame| {
                    last_ns = frame.at_ns;
                    let at_ns = frame.at_ns.saturating_add(offset_ns);
                    is_wanted = is_wanted && to.send(Ok(Sent { at_ns, ..frame })).is_ok();
                });
                if let Err(error) = done {
                    // The receiver has gone, or it shows the error.
                    let _ = to.send(Err(error.to_string()));
                    return;
                }
                if !is_wanted {
                    return;
                }
                offset_ns += last_ns;
            }
        });
        Self { frames, is_over: false }
    }
}

impl Source for Replay {
    fn next(&mut self) -> std::result::Result<Option<Incoming>, String> {
        match self.frames.recv() {
            Ok(frame) => frame.map(|Sent { bytes, at_ns }| Some(Incoming { bytes, at_ns })),
            Err(_) => {
                self.is_over = true;
                Ok(None)
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// Generated frames: as many of each generator, one generator after the other.
struct Generated {
    generators: Vec<Generator>,
    packets: u64,
    /// Frames of the last generator that are left.
    left: u64,
}

impl Generated {
    fn new(generators: impl IntoIterator<Item = Generator>, packets: u64) -> Self {
        let mut generators = generators.into_iter().collect::<Vec<_>>();
        generators.reverse();
        Self { generators, packets, left: packets }
    }
}

impl Source for Generated {
    fn next(&mut self) -> std::result::Result<Option<Incoming>, String> {
        if self.left == 0 {
            self.generators.pop();
            self.left = self.packets;
        }
        let Some(generator) = self.generators.last_mut() else { return Ok(None) };
        self.left -= 1;
        let Sent { bytes, at_ns } = generator.frame();
        Ok(Some(Incoming { bytes, at_ns }))
    }

    fn is_over(&self) -> bool {
        self.generators.is_empty() || (self.left == 0 && self.generators.len() == 1)
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// Frames with faults of the wire.
struct Faulty {
    source: Box<dyn Source>,
    faults: Faults,
}

impl Source for Faulty {
    fn next(&mut self) -> std::result::Result<Option<Incoming>, String> {
        let frame = self.source.next()?;
        Ok(frame.map(|Incoming { bytes, at_ns }| Incoming { bytes: self.faults.apply(bytes), at_ns }))
    }

    fn is_over(&self) -> bool {
        self.source.is_over()
    }

    fn discard(&mut self) {
        self.source.discard();
    }

    fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }
}

/// A capture of each queue through which software has sent.
struct Files {
    folder: Option<PathBuf>,
    captures: BTreeMap<usize, Capture>,
}

impl Files {
    /// Creates the folder, in which no capture may be.
    fn new(folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            create_folder(folder)?;
            if let Some(path) = (0..QUEUES).map(|queue| Self::path(folder, queue)).find(|path| path.exists()) {
                return Err(format!("{} exists: choose another folder with --out", path.display()).into());
            }
        }
        Ok(Self { folder: folder.map(Into::into), captures: BTreeMap::new() })
    }

    fn path(folder: &Path, queue: usize) -> PathBuf {
        folder.join(format!("queue-{queue:03}.pcapng"))
    }

    fn write(&mut self, queue: usize, time_ns: u64, frame: &[u8]) -> Result {
        let Some(folder) = &self.folder else { return Ok(()) };
        let capture = match self.captures.entry(queue) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let comment = "frames that software sent through the simulated card; times are of the simulation";
                let (path, name) = (Self::path(folder, queue), format!("queue {queue}"));
                place.insert(Capture::create(path, name, "shotline_card_port", comment)?)
            }
        };
        capture.write(time_ns, frame)
    }

    fn finish(&mut self) -> Result {
        self.captures.values_mut().try_for_each(Capture::finish)
    }
}

impl Sink for Files {
    fn sent(&mut self, queue: usize, time_ns: u64, frame: &[u8]) -> std::result::Result<(), String> {
        let (frame, _) = frame.split_at(frame.len().saturating_sub(FCS));
        self.write(queue, time_ns, frame).map_err(|error| error.to_string())
    }
}
