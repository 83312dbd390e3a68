//! Transport for complete frames.

use shotline_memory::{Regions, Sge};
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::{IoError, PacketIo, TxPacket};
use shotline_wire::{ethernet, ipv4, ipv6, udp};
use std::net::SocketAddr;

/// Ethernet addresses for frames whose headers the kernel rebuilds. They appear only in captures of the RTL's frames.
const PLACEHOLDER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Sends each packet's payload, which is a complete frame, without copying: the entire frame if the backend takes
/// complete frames, else the bytes after the UDP header.
#[derive(Debug)]
pub struct WholeFrameIo<P> {
    io: P,
}

impl<P: PrebuiltIo> WholeFrameIo<P> {
    /// Wraps a backend, which must not add an ICRC.
    pub fn new(io: P) -> Self {
        Self { io }
    }

    /// Returns the Ethernet addresses of this host and of the next hop to `to`. The backend writes them into `scratch`,
    /// which must have at least 128 bytes.
    ///
    /// # Errors
    /// If the destination's address cannot be resolved.
    pub fn ethernet(&mut self, to: SocketAddr, regions: &Regions, scratch: Sge) -> Result<[[u8; 6]; 2], IoError> {
        self.io.prebuild(to, Sge { len: 128, ..scratch })?;
        if self.io.headroom() == 0 {
            return Ok(PLACEHOLDER_MACS);
        }
        let mut found = [[0; 6]; 2];
        for (index, address) in found.iter_mut().rev().enumerate() {
            regions.get(scratch.region).read(scratch.offset as usize + 6 * index, address);
        }
        Ok(found)
    }

    /// Returns the part of a frame that is passed to the backend.
    fn part(&self, to: SocketAddr, frame: Sge) -> Sge {
        let ip = if to.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        let skip = if self.io.headroom() == 0 { ethernet::Header::LEN + ip + udp::Header::LEN } else { 0 };
        Sge { offset: frame.offset + skip as u64, len: frame.len.saturating_sub(skip as u32), ..frame }
    }
}

impl<P: PrebuiltIo> PacketIo for WholeFrameIo<P> {
    shotline_transport::delegate_packet_io!(io; except send);

    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let mut accepted = 0;
        while accepted < packets.len() {
            let run = run(packets[accepted..].iter().map(|packet| self.part(to, packet.gather[0])));
            let sent = self.io.send_prebuilt(to, run)?;
            accepted += sent;
            if sent < run.count as usize {
                break;
            }
        }
        Ok(accepted)
    }
}

/// Returns the longest prefix of the pieces that forms one run: equal lengths at a constant stride.
fn run(mut pieces: impl Iterator<Item = Sge>) -> FrameRun {
    let Some(first) = pieces.next() else {
        return FrameRun { region: Sge::EMPTY.region, offset: 0, stride: 0, len: 0, count: 0 };
    };
    let mut run = FrameRun { region: first.region, offset: first.offset, stride: first.len, len: first.len, count: 1 };
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
    fn only_send_differs_from_the_wrapped_backend() {
        let wrapper = Wrapper { name: "WholeFrameIo", overrides: &["send"], steer: None };
        delegation::check(&wrapper, WholeFrameIo::new).unwrap();
    }

    #[test]
    fn equidistant_frames_form_one_run() {
        let counted = |pieces: &[Sge]| {
            let run = run(pieces.iter().copied());
            (0..run.count).for_each(|index| assert_eq!(run.frame(index), pieces[index as usize]));
            run.count
        };
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(300, 40)]), 3);
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(300, 39)]), 2, "the last is shorter");
        assert_eq!(counted(&[at(100, 40), at(200, 40), at(301, 40)]), 2);
        assert_eq!(counted(&[at(300, 40), at(100, 40)]), 1, "the ring wraps around");
        assert_eq!(counted(&[at(300, 40), at(300, 40)]), 1, "the same frame twice");
        assert_eq!(counted(&[at(100, 40)]), 1);
        assert_eq!(run([].into_iter()).count, 0);
    }
}
