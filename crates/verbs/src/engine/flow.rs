//! A connection's share of congestion control: what it may send, and whether its peer must be told to slow down.

use super::common::Common;
use super::congestion::{Congestion, Notifier, notification};
use super::{Arrived, Books, Burst, Nanos};
use shotline_wire::bth::Opcode;

#[derive(Debug, Default)]
pub(super) struct Flow {
    congestion: Congestion,
    notifier: Notifier,
    notify: bool,
}

impl Flow {
    /// Whether a packet of so many bytes may be sent now; if so, it is.
    pub fn send(&mut self, now: Nanos, bytes: u32) -> bool {
        let allowed = self.congestion.allow(now, bytes);
        if allowed {
            self.congestion.sent(now, bytes);
        }
        allowed
    }
    /// Whether the rate has no wait just now.
    pub fn ready(&self, now: Nanos) -> bool {
        self.congestion.next(now).is_none()
    }
    /// When the next packet may be sent, if there is a rate.
    pub fn deadline(&self) -> Option<Nanos> {
        self.congestion.next(0)
    }
    /// A packet was accepted; it may have met congestion.
    pub fn accepted(&mut self, now: Nanos, packet: &Arrived<'_>) {
        self.notify |= packet.congested && self.notifier.marked(now);
    }
    /// Whether the peer is to be told.
    pub fn notifies(&self) -> bool {
        self.notify
    }
    /// Tells it, if it is to be told.
    pub fn push_notification(&mut self, burst: &mut Burst, common: &Common, books: &mut Books) {
        if let (true, Some((to, qp))) = (std::mem::take(&mut self.notify), common.peer) {
            burst.push(to, notification(qp), &[]);
            books.cnps_out += 1;
        }
    }
    /// Takes a congestion notification, if this is one.
    pub fn takes(&mut self, now: Nanos, packet: &Arrived<'_>, books: &mut Books) -> bool {
        let notification = packet.bth.opcode == Opcode::CongestionNotification;
        if notification {
            books.cnps_in += 1;
            self.congestion.on_cnp(now);
        }
        notification
    }
}
