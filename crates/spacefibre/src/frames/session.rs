//! Initialisation of a link over a carrier, in place of the capability exchange of the lanes (ECSS 5.7.9).
//!
//! Each end numbers its datagrams within a *session*, a random number. A link reset begins a new one. A link is up once
//! an end knows that the far end knows its session. A datagram of another session is older than the last reset, and is
//! dropped.

use shotline_random::SplitMix64;
use shotline_wire::spacefibre::datagram::Header;

/// Decision about a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It belongs to the present sessions of both ends; so many datagrams before it are missing.
    Accept {
        /// Datagrams lost before it.
        gap: u32,
    },
    /// It initialises the link, and has no other contents.
    Initialise,
    /// The far end has begun a new session: this end must reset the link.
    FarEndReset,
    /// It is of an old session, or was received before.
    Old,
}

/// Sessions and datagram numbers of both ends.
#[derive(Debug)]
pub(super) struct Session {
    random: SplitMix64,
    local: u32,
    peer: u32,
    /// The far end knows the session of this end.
    is_up: bool,
    next_out: u32,
    next_in: u32,
}

impl Session {
    pub(super) fn new(seed: u64) -> Self {
        let mut session =
            Self { random: SplitMix64::new(seed), local: 0, peer: 0, is_up: false, next_out: 0, next_in: 0 };
        session.renew(0);
        session
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Begins a new session; `peer` is that of the far end, 0 if it is not known.
    pub(super) fn renew(&mut self, peer: u32) {
        let old = self.local;
        while self.local == old || self.local == 0 {
            self.local = self.random.next_u64() as u32;
        }
        (self.peer, self.is_up, self.next_out, self.next_in) = (peer, false, 0, 0);
    }

    /// Returns the header of the next datagram. While the link is not up it initialises the link.
    pub(super) fn header(&mut self, lanes: u8, scrambled: bool) -> Header {
        let number = self.next_out;
        self.next_out = self.next_out.wrapping_add(self.is_up.into());
        let initialises = !self.is_up;
        Header { initialises, scrambled, lanes, number, session: self.local, peer_session: self.peer }
    }

    /// Decides about a received datagram.
    pub(super) fn receive(&mut self, header: &Header) -> Verdict {
        let is_peer = header.session == self.peer;
        if header.initialises {
            if !is_peer && self.is_up {
                return Verdict::FarEndReset;
            }
            if !is_peer {
                (self.peer, self.next_in) = (header.session, 0);
            }
            self.is_up |= header.peer_session == self.local;
            return Verdict::Initialise;
        }
        if header.peer_session != self.local || !is_peer && self.peer != 0 {
            return Verdict::Old;
        }
        (self.peer, self.is_up) = (header.session, true);
        let gap = header.number.wrapping_sub(self.next_in);
        if gap > u32::MAX / 2 {
            return Verdict::Old;
        }
        self.next_in = header.number.wrapping_add(1);
        Verdict::Accept { gap }
    }
}
