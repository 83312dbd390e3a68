//! A transport for frames that are whole.

use shotline_memory::{Regions, Sge};
use shotline_transport::prebuilt::{PrebuiltIo, Run};
use shotline_transport::{IoError, PacketIo, Send};
use shotline_wire::{ethernet, ipv4, ipv6, udp};
use std::net::SocketAddr;

/// Ethernet addresses in frames whose headers a kernel makes again: nobody sees them, but in a capture.
const UNSEEN: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Sends each packet's payload, which is its whole frame, as it lies: all of it where the backend takes whole frames,
/// and what stands behind UDP where it takes that.
#[derive(Debug)]
pub struct Whole<P> {
    io: P,
}

impl<P: PrebuiltIo> Whole<P> {
    /// Over this backend, which must not seal.
    pub fn new(io: P) -> Self {
        Self { io }
    }

    /// The Ethernet addresses of this end and of the host that packets go to. The backend writes them into
    /// `somewhere`, memory of 128 bytes or more.
    ///
    /// # Errors
    /// If the host cannot be found.
    pub fn ethernet(&mut self, to: SocketAddr, regions: &Regions, somewhere: Sge) -> Result<[[u8; 6]; 2], IoError> {
        self.io.prebuild(to, Sge { len: 128, ..somewhere })?;
        if self.io.headroom() == 0 {
            return Ok(UNSEEN);
        }
        let mut found = [[0; 6]; 2];
        for (index, address) in found.iter_mut().rev().enumerate() {
            regions.get(somewhere.region).read(somewhere.offset as usize + 6 * index, address);
        }
        Ok(found)
    }

    /// What is sent of a frame.
    fn part(&self, to: SocketAddr, frame: Sge) -> Sge {
        let ip = if to.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        let skip = if self.io.headroom() == 0 { ethernet::Header::LEN + ip + udp::Header::LEN } else { 0 };
        Sge { offset: frame.offset + skip as u64, len: frame.len.saturating_sub(skip as u32), ..frame }
    }
}

impl<P: PrebuiltIo> PacketIo for Whole<P> {
    shotline_transport::delegate_packet_io!(io; except send);

    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let mut taken = 0;
        while taken < packets.len() {
            let run = run(packets[taken..].iter().map(|packet| self.part(to, packet.gather[0])));
            let sent = self.io.send_prebuilt(to, run)?;
            taken += sent;
            if sent < run.count as usize {
                break;
            }
        }
        Ok(taken)
    }
}

/// The first of these pieces, and those behind it that make one run with it.
fn run(mut pieces: impl Iterator<Item = Sge>) -> Run {
    let Some(first) = pieces.next() else {
        return Run { region: Sge::EMPTY.region, offset: 0, stride: 0, len: 0, count: 0 };
    };
    let mut run = Run { region: first.region, offset: first.offset, stride: first.len, len: first.len, count: 1 };
    for piece in pieces {
        if run.count == 1 && piece.offset > run.offset {
            run.stride = u32::try_from(piece.offset - run.offset).unwrap_or(0).max(run.len);
        }
        if piece != run.frame(run.count) {
            break;
        }
        run.count += 1;
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_transport::conformance::delegation::{self, Wrapper};

    fn at(offset: u64, len: u32) -> Sge {
        Sge { offset, len, ..Sge::EMPTY }
    }

    #[test]
    fn whole_frames_change_what_is_sent_alone() {
        let wrapper = Wrapper { name: "Whole", changes: &["send"], steer: None };
        delegation::check(&wrapper, Whole::new).unwrap();
    }

    #[test]
    fn frames_that_follow_each_other_evenly_are_one_run() {
        let counted = |pieces: &[Sge]| {
            let run = run(pieces.iter().copied());
            (0..run.count).for_each(|index| assert_eq!(run.frame(index), pieces[index as usize]));
            run.count
        };
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(300, 40)]), 3);
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(300, 39)]), 2, "the last is shorter");
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(301, 40)]), 2);
        assert_eq!(counted(&[at(300, 40), at(100, 40)]), 1, "a ring begins again");
        assert_eq!(counted(&[at(300, 40), at(300, 40)]), 1, "the same frame twice");
        assert_eq!(counted(&[at(100, 40)]), 1);
        assert_eq!(run([].into_iter()).count, 0);
    }
}
