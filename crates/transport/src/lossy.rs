//! A wrapper that drops packets on send, to test recovery from loss.

use crate::{IoError, PacketIo, TxPacket, geometric};
use shotline_random::SplitMix64;
use std::net::SocketAddr;

/// Drops some of the sent packets at random, reproducibly for a given seed. Received packets are not affected.
#[derive(Debug)]
pub struct Lossy<P> {
    io: P,
    rate: f64,
    random: SplitMix64,
    /// Packets to pass before the next one is dropped.
    left: u64,
    lost: u64,
}

impl<P> Lossy<P> {
    /// Creates a wrapper that drops each packet with probability `rate`, from 0 to 1.
    pub fn new(io: P, rate: f64, seed: u64) -> Self {
        let mut lossy = Self { io, rate, random: SplitMix64::new(seed), left: 0, lost: 0 };
        lossy.left = geometric::draw(&mut lossy.random, rate);
        lossy
    }

    /// Returns the number of packets dropped so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the wrapped transport.
    pub fn io(&self) -> &P {
        &self.io
    }
}

impl<P: PacketIo> PacketIo for Lossy<P> {
    crate::delegate_packet_io!(io; except send);

    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let mut taken = 0;
        while taken < packets.len() {
            if self.left == 0 {
                self.lost += 1;
                self.left = geometric::draw(&mut self.random, self.rate);
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
