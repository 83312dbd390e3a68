//! 05: A sink of your own. It takes the shots of a run and writes the mean of each channel so far into a CSV file.
//!
//! ```sh
//! cargo run --package shotline-acquire --example 05-custom-sink -- 127.0.0.1:47999 means.csv
//! cargo run --package shotline-acquire --example 06-custom-transport -- 127.0.0.1:47999      # sends
//! ```
//!
//! A shot has 1000 samples of 8 channels, 16 bits each, in packets of the framing `udp`. Without a file the program
//! itself is the sink: while it is slow, shots wait in the pool, and when their places are used up, the setting `policy`
//! decides which are dropped. Every shot is either taken here or in a reported loss.

use shotline_acquire::config::Settings;
use shotline_acquire::consumer::{Consumer, Next};
use shotline_acquire::live::Live;
use shotline_acquire::run::{Outcome, SenderDescription, run_with_description};
use shotline_backends::{Options, Transport};
use shotline_store::shot::Shot;
use shotline_wire::framing::Udp;
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Arc, atomic::AtomicBool};
use std::time::Duration;

const CHANNELS: usize = 8;
const SAMPLES: usize = 1000;

/// The mean of each channel over all shots so far.
#[derive(Default)]
struct Means {
    shots: u64,
    sums: [f64; CHANNELS],
}

impl Means {
    /// Adds a complete shot. Its buffer is the memory into which the packets were received, in the sender's format.
    fn add(&mut self, shot: &Shot) {
        let mut bytes = vec![0; SAMPLES * CHANNELS * 2];
        shot.buffer.read(0, &mut bytes);
        for (at, sample) in bytes.chunks_exact(2).enumerate() {
            self.sums[at % CHANNELS] += f64::from(i16::from_le_bytes([sample[0], sample[1]])) / SAMPLES as f64;
        }
        self.shots += 1;
    }

    fn line(&self, number: u64) -> String {
        let means = self.sums.map(|sum| format!("{:.3}", sum / self.shots as f64));
        format!("{number},{}", means.join(","))
    }
}

/// The sink: takes shots until the run is over. Returns the number of shots in the file, and of those that are not.
fn take_shots(consumer: &Consumer, out: &mut impl Write) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut means, mut missing) = (Means::default(), 0);
    loop {
        match consumer.next(Duration::from_secs(1)) {
            // An event has one shot of each link; here there is one link. The buffer returns to the pool at the end of
            // this block, so do not keep events for long.
            Next::Event(lent) => match lent.event().shots.first() {
                Some(Some(shot)) if shot.meta.is_complete() => {
                    means.add(shot);
                    writeln!(out, "{}", means.line(shot.meta.number))?;
                }
                Some(Some(shot)) => {
                    let (arrived, all) = (shot.meta.valid_bytes, SAMPLES * CHANNELS * 2);
                    println!("shot {} is partial: {arrived} of {all} bytes", shot.meta.number);
                    missing += 1;
                }
                _ => {}
            },
            Next::TimedOut => {} // a program may do something else here
            Next::Ended => break,
        }
    }
    // Shots of which no packet arrived, or that were dropped. They may also be taken while the run goes on.
    for loss in consumer.take_losses() {
        println!("{} shots from {} are lost: {}", loss.count, loss.first, loss.cause);
        missing += loss.count;
    }
    Ok((means.shots, missing))
}

/// Receives with these settings and writes the file. The run has a thread of its own.
pub fn record(settings: &Settings, out: &mut impl Write) -> Result<(Outcome, u64, u64), Box<dyn Error>> {
    let shape = (CHANNELS as u16, SAMPLES as u32);
    let cut = Packetization::uniform(4096);
    let geometry = Geometry::with_packetization(shape, (16, Packing::Int16Le), 0, Trailer::None, cut)?;
    let sender = SenderDescription { framing: Arc::new(Udp), geometry, name: "example 05".into() };
    let consumer = Consumer::new()?;
    let (stop, live) = (AtomicBool::new(false), Live::default().with_consumer(Arc::clone(&consumer)));
    let (transport, options) = (Transport::default(), Options::default()); // UDP sockets
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            run_with_description(settings, sender, &stop, &live, |wanted, regions| {
                transport.open(wanted, &options, regions)
            })
        });
        let taken = take_shots(&consumer, out);
        if taken.is_err() {
            stop.store(true, std::sync::atomic::Ordering::Relaxed); // such as a full disk: end the run
        }
        let outcome = run.join().map_err(|_| "the run panicked")??;
        let (shots, missing) = taken?;
        Ok((outcome, shots, missing))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, path] = words.as_slice() else { return Err("expected the arguments ADDRESS:PORT FILE.csv".into()) };
    // `discard`: no file of Shotline's own. With `out` instead there are both, the recording and this file.
    let settings =
        Settings { listen: Some(listen.parse()?), discard: Some(true), idle_s: Some(5.0), ..Settings::default() };
    let (outcome, shots, missing) = record(&settings, &mut BufWriter::new(File::create(path)?))?;
    println!("{shots} shots in {path}, {missing} are not; {}", outcome.end);
    Ok(())
}
