//! A path that loses packets, for trials of what happens then.

use crate::{IoError, PacketIo, Send};
use shotline_random::SplitMix64;
use std::net::SocketAddr;

/// Loses some of the packets that are sent, at random but the same for the same seed. What is received is not touched.
#[derive(Debug)]
pub struct Lossy<P> {
    io: P,
    rate: f64,
    random: SplitMix64,
    /// Packets that still pass before one is lost.
    left: u64,
    lost: u64,
}

impl<P> Lossy<P> {
    /// Loses each packet with the probability `rate`, from 0 to 1.
    pub fn new(io: P, rate: f64, seed: u64) -> Self {
        let mut lossy = Self { io, rate, random: SplitMix64::new(seed), left: 0, lost: 0 };
        lossy.left = lossy.draw();
        lossy
    }

    /// Packets lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The transport below.
    pub fn io(&self) -> &P {
        &self.io
    }

    /// How many packets pass until one is lost: one draw a loss, and none a packet.
    fn draw(&mut self) -> u64 {
        let uniform = self.random.next_f64();
        if self.rate <= 0.0 {
            return u64::MAX;
        }
        ((1.0 - uniform).ln() / (1.0 - self.rate.min(1.0)).ln()) as u64 // a cast never overflows: it saturates
    }
}

impl<P: PacketIo> PacketIo for Lossy<P> {
    crate::delegate_packet_io!(io; except send);

    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let mut taken = 0;
        while taken < packets.len() {
            if self.left == 0 {
                self.lost += 1;
                self.left = self.draw();
                taken += 1;
                continue;
            }
            let rest = &packets[taken..];
            let run = rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let sent = self.io.send(to, &rest[..run])?;
            self.left -= sent as u64;
            taken += sent;
            if sent < run {
                break;
            }
        }
        Ok(taken)
    }
}
