//! Invariants of arbitrary datagrams from the far end of a SpaceFibre link of whole frames.

use crate::ends::{Counts, Packets, VCS};
use shotline_spacefibre::frames::{FrameConfig, FrameLink, Output};
use shotline_spacefibre::link::{MAX_UNACKNOWLEDGED, VcConfig};
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::datagram::{Header, Record};

const INPUT_WORDS: u32 = 1024;
/// Session of the far end.
const SESSION: u32 = 7;

struct Datagram(Vec<u8>);

impl Output for Datagram {
    fn remaining(&mut self) -> usize {
        4096 - self.0.len()
    }
    fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// One end, and the state of a far end that sends what the input says.
pub struct Attack {
    link: FrameLink,
    source: Packets,
    sink: Counts,
    /// Time in nanoseconds.
    now: u64,
    /// Number of the far end's next datagram.
    number: u32,
    /// Session of the end.
    session: u32,
}

impl Attack {
    /// Creates an end of a link that is up.
    pub fn new(lanes: u8) -> Self {
        let half = Share::from_percent(50).expect("50 % is a share");
        let channel = VcConfig { qos: VcQos::new(0, half), input_words: INPUT_WORDS };
        let config = FrameConfig { lanes, scrambled: true, seed: 1 };
        let link = FrameLink::new(config, &[channel; VCS as usize]).expect("shares of 100 %");
        let (source, sink) = (Packets::default(), Counts::default());
        let mut attack = Self { link, source, sink, now: 0, number: 0, session: 0 };
        attack.initialise();
        assert!(attack.link.is_up());
        attack
    }

    /// Initialises the link as the far end does after its own reset.
    fn initialise(&mut self) {
        let lanes = self.link.lanes();
        let header = |peer_session| Header {
            initialises: true,
            scrambled: true,
            lanes,
            number: 0,
            session: SESSION,
            peer_session,
        };
        self.now += 1_000_000_000;
        self.receive(&mut header(0).emit());
        self.transmit();
        self.receive(&mut header(self.session).emit());
        self.number = 0;
    }

    fn receive(&mut self, datagram: &mut [u8]) {
        self.link.receive(datagram, &mut self.source, &mut self.sink);
    }

    /// Sends what the end has to send, and learns its session.
    fn transmit(&mut self) {
        for count in 0.. {
            assert!(count < 200, "an end sends without an end");
            let mut out = Datagram(Vec::new());
            if !self.link.transmit(self.now, &mut self.source, &mut out) {
                break;
            }
            let (header, _) = Header::parse(&out.0).expect("an end sends valid headers");
            self.session = header.session;
        }
    }

    /// Passes records to the end in a datagram that is valid otherwise; `gap` datagrams before it are lost.
    fn records(&mut self, records: &[u8], gap: u32) {
        let (lanes, peer_session) = (self.link.lanes(), self.session);
        self.number += gap;
        let header =
            Header { initialises: false, scrambled: true, lanes, number: self.number, session: SESSION, peer_session };
        self.number += 1;
        self.receive(&mut [&header.emit(), records].concat());
    }

    fn check(&mut self) {
        let counters = *self.link.link_counters();
        assert_eq!(self.sink.words, counters.words_in);
        assert_eq!(self.sink.broadcasts, counters.broadcasts_in);
        assert_eq!(self.sink.resets, counters.link_resets);
        assert!(self.link.link().unacknowledged() <= MAX_UNACKNOWLEDGED);
        for (vc, held) in (0..).zip(self.sink.held) {
            let granted = self.link.link().credit(vc).map_or(0, |(_, granted)| granted);
            assert!(granted + held <= INPUT_WORDS, "channel {vc}: {granted} granted, {held} not released");
        }
    }
}

/// Runs pieces: a byte of kind, the length in bytes, and as many bytes.
pub fn spacefibre_frame_link(data: &[u8]) {
    let Some((lanes, mut rest)) = data.split_first() else { return };
    let mut attack = Attack::new(lanes % 4 + 1);
    while let Some(([kind, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min((*len).into()));
        match kind % 8 {
            0 => attack.receive(&mut bytes.to_vec()),
            1 => attack.records(bytes, 0),
            2 => attack.records(bytes, bytes.len() as u32),
            3 => attack.source.left += 3,
            4 => {
                for (vc, held) in (0..).zip(std::mem::take(&mut attack.sink.held)) {
                    attack.link.release(vc, held);
                }
            }
            5 => attack.initialise(),
            // A record header with its CRC, which the fuzzer would have to guess.
            _ => {
                let mut record = bytes.to_vec();
                if let Some([head @ .., crc]) = record.first_chunk_mut::<{ Record::HEADER_LEN }>() {
                    *crc = crc8(head);
                }
                attack.records(&record, 0);
            }
        }
        attack.now += u64::from(*len) * 100_000;
        attack.transmit();
        attack.check();
        rest = after;
    }
}
