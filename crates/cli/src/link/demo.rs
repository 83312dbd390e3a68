//! Two ends of a link in this program, with traffic on all virtual channels from one to the other.

use super::source::{MAX_SLEEP, Source};
use crate::Result;
use shotline_spacefibre::frames::{FrameConfig, FrameLink, Nanos, Output, Sink, Source as PacketSource};
use shotline_spacefibre::link::BroadcastMessage;
use shotline_transport::carrier::Carrier as _;
use shotline_transport::carrier::faulty::{Faults, Faulty};
use shotline_transport::carrier::inproc::{self, InprocCarrier};
use shotline_verbs::spacefibre::{LinkSelector, LinkStatus, LinksStatus, SpaceFibreCounters, time_slot};
use shotline_wire::spacefibre::datagram::PacketEnd;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Bytes of a packet.
const PACKET_BYTES: usize = 4096;
/// Data frames of a datagram.
const DATAGRAM_FRAMES: usize = 4;
/// Datagrams in flight.
const DATAGRAMS: usize = 64;
/// Time that the line may be idle before its unused rate is lost.
const MAX_LAG: Nanos = 10_000_000;
/// Time between two steps when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(100);

/// Offered load of a channel, as a multiple of its share of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load(f64);

impl FromStr for Load {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let load = text.parse().ok().filter(|load| (0.0..=1000.0).contains(load));
        load.map(Self)
            .ok_or_else(|| format!("expected a load from 0 to 1000 times the share, such as 0.9, found {text}"))
    }
}

/// Packets of the virtual channels that wait to be sent.
struct Traffic {
    channels: Vec<Channel>,
    packets: u64,
}

struct Channel {
    /// Bytes that are offered in a nanosecond; `None`: always more than the link can send.
    rate: Option<f64>,
    /// Bytes that wait.
    waiting: f64,
    /// Bytes of the present packet that are sent.
    offset: usize,
}

impl Channel {
    fn is_ready(&self) -> bool {
        // A packet that has begun was offered whole.
        self.rate.is_none() || self.offset > 0 || self.waiting >= PACKET_BYTES as f64
    }
}

impl Traffic {
    /// Offers the packets of `elapsed` time.
    fn offer(&mut self, elapsed: Nanos) {
        for channel in &mut self.channels {
            channel.waiting += channel.rate.unwrap_or(0.0) * elapsed as f64;
        }
    }
}

impl PacketSource for Traffic {
    fn ready(&self) -> u32 {
        let bit = |(vc, channel): (usize, &Channel)| u32::from(channel.is_ready()) << vc;
        self.channels.iter().enumerate().map(bit).sum()
    }

    fn read(&mut self, vc: u8, max: usize) -> (&[u8], Option<PacketEnd>) {
        static PACKET: [u8; PACKET_BYTES] = [0; PACKET_BYTES];
        let channel = &mut self.channels[usize::from(vc)];
        let rest = &PACKET[channel.offset..];
        if rest.len() >= max {
            channel.offset += max;
            return (&rest[..max], None);
        }
        channel.offset = 0;
        channel.waiting -= PACKET_BYTES as f64;
        self.packets += 1;
        (rest, Some(PacketEnd::Eop))
    }

    fn on_reset(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.offset = 0);
    }
}

/// The receiver, which counts packets.
#[derive(Default)]
struct Counter {
    packets: u64,
}

impl Sink for Counter {
    fn write(&mut self, _vc: u8, _data: &[u8], end: Option<PacketEnd>) -> bool {
        self.packets += u64::from(end == Some(PacketEnd::Eop));
        true
    }
    fn broadcast(&mut self, _message: &BroadcastMessage) {}
    fn on_reset(&mut self) {}
}

/// One end of the link.
struct End {
    link: FrameLink,
    carrier: Faulty<InprocCarrier>,
    traffic: Traffic,
    sink: Counter,
}

/// The datagram that is being built, and the bytes that the line may still carry.
struct Datagram<'a> {
    carrier: &'a mut Faulty<InprocCarrier>,
    left: usize,
    written: usize,
}

impl Output for Datagram<'_> {
    fn remaining(&mut self) -> usize {
        self.left
    }
    fn append(&mut self, bytes: &[u8]) {
        self.left -= bytes.len();
        self.written += bytes.len();
        self.carrier.append(bytes);
    }
}

impl End {
    /// Sends a datagram. Returns its length, 0 if there is none.
    fn transmit(&mut self, now: Nanos) -> Result<usize> {
        let max = FrameLink::datagram_bytes(self.link.lanes(), DATAGRAM_FRAMES);
        let left = max.min(self.carrier.remaining());
        let mut datagram = Datagram { carrier: &mut self.carrier, left, written: 0 };
        let has_space = left >= FrameLink::datagram_bytes(self.link.lanes(), 1);
        if !has_space || !self.link.transmit(now, &mut self.traffic, &mut datagram) {
            return Ok(0);
        }
        let written = datagram.written;
        self.carrier.finish()?;
        self.carrier.flush()?;
        Ok(written)
    }

    /// Receives all datagrams. Returns `true` if there were any.
    fn receive(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some(datagram) = self.carrier.receive()? {
            self.link.receive(datagram, &mut self.traffic, &mut self.sink);
            any = true;
        }
        Ok(any)
    }
}

/// Two ends, of which the first one sends.
pub struct Demo {
    ends: [End; 2],
    start: Instant,
    /// Time of the last step, since the start.
    now: Nanos,
    /// Rate of the line in bytes per nanosecond.
    rate: f64,
    /// Bytes that the line may carry; negative after a datagram that was longer.
    budget: f64,
}

impl Demo {
    /// Creates a link with this rate in Gbit/s, and a load for all channels or one for each; without, they always have
    /// packets.
    pub fn new(selector: &LinkSelector, loads: &[Load], gbps: f64) -> Result<Self> {
        let options = selector.options();
        let channels = options.channels.len();
        if loads.len() > 1 && loads.len() != channels {
            let found = loads.len();
            return Err(format!("expected one --load, or one for each of {channels} channels, found {found}").into());
        }
        let rate = gbps / 8.0;
        let offered = |vc: usize| {
            let share = f64::from(options.channels[vc].qos.share.parts()) / 65_536.0;
            Some(loads.get(vc).or(loads.first())?.0 * share * rate)
        };
        let idle = |_| Some(0.0);
        let (a, b) = inproc::pair(DATAGRAMS)?;
        let end = |carrier, seed, rates: Vec<Option<f64>>| -> Result<End> {
            let config = FrameConfig { lanes: options.lanes, scrambled: options.scrambled, seed };
            let faults = Faults { seed, bit_error_rate: selector.bit_error_rate, ..Faults::default() };
            let channel = |rate| Channel { rate, waiting: 0.0, offset: 0 };
            Ok(End {
                link: FrameLink::new(config, &options.channels)?,
                carrier: Faulty::new(carrier, faults),
                traffic: Traffic { channels: rates.into_iter().map(channel).collect(), packets: 0 },
                sink: Counter::default(),
            })
        };
        let sender = end(a, 1, (0..channels).map(offered).collect())?;
        let receiver = end(b, 2, (0..channels).map(idle).collect())?;
        Ok(Self { ends: [sender, receiver], start: Instant::now(), now: 0, rate, budget: 0.0 })
    }

    /// Sends and receives at this time. Returns `true` if there was anything to do.
    fn step(&mut self, now: Nanos) -> Result<bool> {
        let elapsed = now - std::mem::replace(&mut self.now, now);
        self.budget = (self.budget + elapsed as f64 * self.rate).min(MAX_LAG as f64 * self.rate);
        let [sender, receiver] = &mut self.ends;
        sender.traffic.offer(elapsed);
        // It is one of the schedule's.
        let _ = sender.link.link().access().set_slot(time_slot(now));
        let mut busy = false;
        while self.budget > 0.0 {
            let bytes = sender.transmit(now)?;
            if bytes == 0 {
                break;
            }
            self.budget -= bytes as f64;
            busy = true;
        }
        busy |= receiver.receive()?;
        while receiver.transmit(now)? > 0 {
            busy = true;
        }
        Ok(sender.receive()? | busy)
    }

    /// Returns the status of the end that sends.
    pub fn links(&self) -> LinksStatus {
        let [sender, receiver] = &self.ends;
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let packets = SpaceFibreCounters {
            packets_out: sender.traffic.packets,
            packets_in: receiver.sink.packets,
            ..SpaceFibreCounters::default()
        };
        LinksStatus {
            packets,
            open: 1,
            links: vec![LinkStatus::of(0, nowhere, &sender.link)],
            ..LinksStatus::default()
        }
    }
}

impl Source for Demo {
    fn status(&mut self) -> Result<LinksStatus> {
        Ok(self.links())
    }

    fn run(&mut self, end: Instant) -> Result {
        let end = end.min(Instant::now() + MAX_SLEEP);
        while Instant::now() < end {
            let now = self.start.elapsed().as_nanos() as Nanos;
            if !self.step(now)? || self.budget <= 0.0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a demonstration for a simulated time. Returns the part of the words of each channel.
    fn run(selector: &str, loads: &[f64], milliseconds: u64) -> (Demo, Vec<f64>) {
        let loads: Vec<_> = loads.iter().map(|load| Load(*load)).collect();
        let mut demo = Demo::new(&selector.parse().unwrap(), &loads, 1.0).unwrap();
        for step in 1..=milliseconds * 20 {
            demo.step(step * 50_000).unwrap();
        }
        let link = &demo.links().links[0];
        assert!(link.is_up);
        let sum: u64 = link.channels.iter().map(|channel| channel.counters.words_out).sum();
        assert_eq!(sum, link.counters.words_out);
        let parts = link.channels.iter().map(|channel| channel.counters.words_out as f64 / sum as f64).collect();
        (demo, parts)
    }

    fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance);
        assert!(close && found.len() == expected.len(), "expected {expected:?}, found {found:?}");
    }

    #[test]
    fn saturated_channels_have_their_shares() {
        let (demo, parts) = run("lanes=4,vc=50%/0,vc=30%/1,vc=20%/2", &[], 1000);
        // Until its credit has settled, a channel of a high priority has somewhat more.
        assert_close(&parts, &[0.5, 0.3, 0.2], 0.015);
        let words = demo.links().links[0].counters.words_out as f64;
        // The line carries 125 MB in a second, frames' own words included.
        assert!((0.85 * 125e6..125e6).contains(&(4.0 * words)), "{words}");
    }

    #[test]
    fn bandwidth_that_a_channel_does_not_use_goes_to_others() {
        let (_, parts) = run("vc=50%/0,vc=50%/0", &[0.2, 10.0], 200);
        assert_close(&parts, &[0.11, 0.89], 0.03);
    }

    #[test]
    fn bit_errors_are_repaired_and_every_packet_arrives() {
        let (mut demo, _) = run("lanes=2,vc=60%,vc=40%,ber=1e-6", &[0.5], 200);
        // Without new packets, everything is acknowledged in the end.
        demo.ends[0].traffic.channels.iter_mut().for_each(|channel| channel.rate = Some(0.0));
        for step in 1..=4000 {
            demo.step(200_000_000 + step * 100_000).unwrap();
        }
        let status = demo.links();
        let counters = status.links[0].counters;
        assert!(counters.retries > 0 && counters.items_resent > 0, "{counters:?}");
        assert_eq!(status.links[0].unacknowledged, 0);
        assert!(status.packets.packets_out > 100 && status.packets.packets_in == status.packets.packets_out);
        assert!(status.repairs().unwrap().contains(" retries, "));
    }

    #[test]
    fn loads_must_match_the_channels() {
        let loads = [Load(0.5); 2];
        let error = Demo::new(&"vcs=3".parse().unwrap(), &loads, 1.0).err().unwrap().to_string();
        assert!(error.contains("one for each of 3 channels, found 2"), "{error}");
        for text in ["", "-1", "nan", "1001", "x"] {
            assert!(text.parse::<Load>().unwrap_err().contains("times the share"), "{text}");
        }
    }
}
