//! Throughput of both ends of a link over words on one core, with 8b/10b lines, for several numbers of lanes.
//!
//! `cargo run --release -p shotline-spacefibre --example word_throughput -- [--seconds S] [--json] [LANES...]`
//!
//! Each end sends packets of 4096 bytes on one virtual channel as fast as the link carries them. In one word time this
//! core does for each lane, in both directions: the next word of the link, its 8b/10b encoding, its decoding, and its
//! reception, up to the packet in the sink, which consumes it.
//!
//! What is counted: words of all lanes in *one* direction, per second of processor time (user and system) of this core.
//! A lane of 6.25 Gbit/s carries 156.25 M words/s, because a word has 40 line bits; five such lanes, 31.25 Gbit/s, carry
//! 781.25 M words/s. `fraction` is the throughput divided by these: 0.02 is a fiftieth of real time. `fastest` is the
//! throughput in the fastest of many rounds of 2,000 word times, which other programs disturb least.

use shotline_spacefibre::frames::{Sink, Source};
use shotline_spacefibre::link::{BroadcastMessage, VcConfig};
use shotline_spacefibre::multilane::MAX_LANES;
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_spacefibre::words::{Lines, WordConfig, WordLink};
use shotline_wire::spacefibre::datagram::PacketEnd;
use std::error::Error;
use std::time::{Duration, Instant};

/// Words per second of five lanes of 6.25 Gbit/s.
const REAL_TIME: f64 = 781.25e6;
const PACKET_BYTES: usize = 4096;
/// Word times between two looks at the clock.
const ROUND: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut is_json, mut seconds, mut lanes) = (false, 1.0, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--seconds" => seconds = arguments.next().ok_or("--seconds: expected a number")?.parse()?,
            count => lanes.push(count.parse()?),
        }
    }
    if lanes.is_empty() {
        lanes = vec![1, 4];
    }
    for lanes in lanes {
        let Measured { words_per_s, fastest, ns_per_word, gbit_per_s } =
            measure(lanes, Duration::from_secs_f64(seconds))?;
        let fraction = words_per_s / REAL_TIME;
        if is_json {
            println!(
                "{{\"lanes\":{lanes},\"words_per_s\":{words_per_s:.0},\"fastest_words_per_s\":{fastest:.0},\
                 \"ns_per_word\":{ns_per_word:.2},\"payload_gbit_per_s\":{gbit_per_s:.3},\"fraction\":{fraction:.4}}}"
            );
        } else {
            println!(
                "{lanes:2} lanes: {:6.2} M words/s in each direction ({:.2} in the fastest round), \
                 {ns_per_word:5.2} ns a word, {gbit_per_s:.2} Gbit/s of packets, {fraction:.4} of 781.25 M words/s",
                words_per_s / 1e6,
                fastest / 1e6
            );
        }
    }
    Ok(())
}

struct Measured {
    /// Words of all lanes in one direction.
    words_per_s: f64,
    fastest: f64,
    /// Time of one of these words, which includes that of one in the other direction.
    ns_per_word: f64,
    /// Characters of packets in one direction.
    gbit_per_s: f64,
}

fn measure(lanes: usize, duration: Duration) -> Result<Measured, Box<dyn Error>> {
    let config = WordConfig::at_rate(lanes, 6_250_000_000);
    let channel = VcConfig { qos: VcQos::new(0, Share::WHOLE), input_words: 1024 * lanes as u32 };
    let mut ends = [End::new(config, channel)?, End::new(config, channel)?];
    while !ends.iter().all(|end| end.link.is_up()) {
        run(&mut ends, 1, lanes);
    }
    run(&mut ends, ROUND, lanes);
    let before = ends[0].sink.characters;
    let (started, cpu) = (Instant::now(), processor_time()?);
    let (mut words, mut fastest) = (0, 0.0_f64);
    while started.elapsed() < duration {
        let round = Instant::now();
        run(&mut ends, ROUND, lanes);
        let count = ROUND * lanes as u64;
        words += count;
        fastest = fastest.max(count as f64 / round.elapsed().as_secs_f64());
    }
    let elapsed = (processor_time()? - cpu).as_secs_f64();
    let characters = ends[0].sink.characters - before;
    Ok(Measured {
        words_per_s: words as f64 / elapsed,
        fastest,
        ns_per_word: elapsed * 1e9 / words as f64,
        gbit_per_s: characters as f64 * 8.0 / elapsed / 1e9,
    })
}

/// Returns the processor time of this process, user and system, in steps of 10 ms.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name may contain spaces; the fields after it are numbered from 3.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat: expected a name in parentheses")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

struct End {
    link: WordLink,
    lines: Lines,
    source: Packets,
    sink: Consumer,
    /// Line bits that this end has sent.
    bits: [Option<u64>; MAX_LANES],
}

impl End {
    fn new(config: WordConfig, channel: VcConfig) -> Result<Self, Box<dyn Error>> {
        let mut link = WordLink::new(config, &[channel])?;
        link.start();
        let lines = Lines::new(config.lanes.lanes);
        let packet = (0..PACKET_BYTES).map(|index| (index * 7) as u8).collect();
        let source = Packets { packet, offset: 0 };
        Ok(Self { link, lines, source, sink: Consumer::default(), bits: [None; MAX_LANES] })
    }
}

/// Runs both ends for a number of word times.
fn run(ends: &mut [End; 2], word_times: u64, lanes: usize) {
    let [near, far] = ends;
    let mut words = [None; MAX_LANES];
    for _ in 0..word_times {
        for lane in 0..lanes {
            near.lines.receive(&mut near.link, lane, far.bits[lane]);
        }
        near.link.step(&mut near.source, &mut near.sink, &mut words);
        near.lines.encode(&words, &mut near.bits);
        for lane in 0..lanes {
            far.lines.receive(&mut far.link, lane, near.bits[lane]);
        }
        far.link.step(&mut far.source, &mut far.sink, &mut words);
        far.lines.encode(&words, &mut far.bits);
    }
}

/// The same packet again and again.
struct Packets {
    packet: Vec<u8>,
    offset: usize,
}

impl Source for Packets {
    fn ready(&self) -> u32 {
        1
    }
    fn read(&mut self, _vc: u8, max: usize) -> (&[u8], Option<PacketEnd>) {
        let rest = &self.packet[self.offset..];
        if rest.len() < max {
            self.offset = 0;
            return (rest, Some(PacketEnd::Eop));
        }
        self.offset += max;
        (&rest[..max], None)
    }
    fn on_reset(&mut self) {
        self.offset = 0;
    }
}

#[derive(Default)]
struct Consumer {
    characters: u64,
}

impl Sink for Consumer {
    fn write(&mut self, _vc: u8, data: &[u8], _end: Option<PacketEnd>) -> bool {
        self.characters += data.len() as u64;
        true
    }
    fn broadcast(&mut self, _message: &BroadcastMessage) {}
    fn on_reset(&mut self) {}
}
