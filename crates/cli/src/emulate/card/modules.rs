//! Modules of the card, each with a wire, a bus and channels of its own.

use super::args::Card;
use shotline_rtl::card::{Found, Outcome, Receiver, Setup};

/// The modules. A frame goes to the wire that is free first.
pub(super) struct Modules {
    receivers: Vec<Receiver>,
    /// Channels of a module.
    channels: usize,
}

impl Modules {
    /// Starts all channels.
    pub fn new(args: &Card, start_ns: u64, max_length: u16) -> Result<Self, String> {
        let setup = |seed| Setup {
            gbps: args.rate,
            channels: args.channels().into(),
            buffer: args.buffer,
            header: args.header_split,
            pad: false,
            max_length,
            start_ns,
            link: args.pcie,
            seed,
        };
        let modules = (0..u64::from(args.modules)).map(|module| Receiver::new(&setup(args.seed ^ module << 48)));
        Ok(Self { receivers: modules.collect::<Result<_, _>>()?, channels: args.channels().into() })
    }

    /// Sends a frame with FCS, but not before a time since the first frame.
    pub fn send(&mut self, frame: Vec<u8>, at_ns: u64) -> Result<(), String> {
        let first = self.receivers.iter_mut().min_by_key(|receiver| receiver.free_ns());
        first.map_or(Ok(()), |receiver| receiver.send(frame, at_ns))
    }

    /// Returns the frames that were found in memory since the last call. Channels are counted over all modules.
    pub fn found(&mut self) -> impl Iterator<Item = Found> {
        let channels = self.channels;
        let of = move |(module, receiver): (usize, &'_ mut Receiver)| {
            receiver
                .found()
                .map(|found| Found { channel: module * channels + found.channel, ..found })
                .collect::<Vec<_>>()
        };
        self.receivers.iter_mut().enumerate().flat_map(of)
    }

    /// Runs until all frames have been received or dropped.
    pub fn settle(&mut self) -> Result<(), String> {
        self.receivers.iter_mut().try_for_each(Receiver::settle)
    }

    /// Settles, checks that all counters balance, and returns their sums.
    pub fn finish(&mut self) -> Result<Outcome, String> {
        let mut sum = Outcome::default();
        for receiver in &mut self.receivers {
            let Outcome { frames, distributed, channels } = receiver.finish()?;
            sum.frames += frames;
            sum.distributed += distributed;
            sum.channels.extend(channels);
        }
        Ok(sum)
    }

    /// Returns the entries of the table of channels of a module.
    pub fn entries(&self) -> usize {
        self.receivers.first().map_or(0, Receiver::entries)
    }

    /// Returns the clocks of the longest simulation.
    pub fn clocks(&self) -> u64 {
        self.receivers.iter().map(Receiver::clocks).max().unwrap_or(0)
    }

    /// Returns the time from the first frame until now in seconds.
    pub fn seconds(&self) -> f64 {
        self.receivers.iter().map(Receiver::seconds).fold(0.0, f64::max)
    }
}
