//! The target behind its control connections: exported memory, and parts in measurements.

use super::guests::GuestCounts;
use super::play::Player;
use super::report::{InitiatorState, RegionState, State};
use crate::Result as Outcome;
use rustix::fd::BorrowedFd;
use shotline_verbs::cm::message::{Accept, Cause, Offer, Playing, Refusal, Regions, Statistics, Welcome};
use shotline_verbs::cm::{Endpoint, Exports, Host, SessionId, Tally};
use std::collections::HashMap;
use std::net::IpAddr;

/// What a target's loop drives.
pub trait Serving: Host {
    /// Receives, answers, sends, plays. Returns whether there was anything to do.
    fn progress(&mut self) -> Outcome<bool>;
    /// Whether somebody has to look at memory to see what is to be done, so that nobody may sleep.
    fn must_poll(&self) -> bool;
    /// Asks to be woken for messages. Returns whether there is something to do already.
    fn prepare_sleep(&mut self) -> Outcome<bool>;
    /// Tells everybody who came by another door that this is the end.
    fn close(&mut self) -> Outcome {
        Ok(())
    }
    /// What to sleep on.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    /// How it is.
    fn state(&self) -> State;
}

/// Another way to the same memory, beside the control connection.
pub trait Door<P> {
    /// Lets in who asks, and answers. Returns whether there was anything to do.
    fn progress(&mut self, exports: &mut Exports<P>) -> Outcome<bool>;
    /// What happened at the door.
    fn counts(&self) -> GuestCounts;
    /// What happened to the queue pair behind the door.
    fn tally(&self, exports: &Exports<P>) -> Tally;
    /// Tells all who came by it that this is the end.
    fn close(&mut self, exports: &mut Exports<P>) -> Outcome;
}

/// Exports, with queue pairs that do more than to serve memory.
pub struct Served<P: Endpoint> {
    exports: Exports<P>,
    door: Option<Box<dyn Door<P>>>,
    players: HashMap<SessionId, Vec<Player>>,
    /// Whether initiators may ask for messages to be taken and for parts to be played.
    plays: bool,
}

impl<P: Endpoint> Served<P> {
    /// With these exports.
    pub fn new(exports: Exports<P>, plays: bool) -> Self {
        Self { exports, door: None, players: HashMap::new(), plays }
    }

    /// With another door, if there is one.
    pub fn with_door(self, door: Option<Box<dyn Door<P>>>) -> Self {
        Self { door, ..self }
    }

    /// What happened to the endpoint as a whole.
    pub fn total(&self) -> Tally {
        self.exports.provider().total()
    }

    fn forget(&mut self, session: SessionId, qp: Option<u32>) {
        let Some(players) = self.players.get_mut(&session) else { return };
        players.retain(|player| {
            let goes = qp.is_none_or(|qp| player.qp() == qp);
            if goes {
                player.end(self.exports.provider_mut());
            }
            !goes
        });
        if players.is_empty() {
            self.players.remove(&session);
        }
    }
}

impl<P: Endpoint> Serving for Served<P> {
    fn progress(&mut self) -> Outcome<bool> {
        let provider = self.exports.provider_mut();
        let mut busy = provider.progress()?;
        while provider.next_event().is_some() {}
        for player in self.players.values_mut().flatten() {
            busy |= player.progress(self.exports.provider_mut());
        }
        if let Some(door) = &mut self.door {
            busy |= door.progress(&mut self.exports)?;
        }
        Ok(busy)
    }

    fn close(&mut self) -> Outcome {
        self.door.as_mut().map_or(Ok(()), |door| door.close(&mut self.exports))
    }

    fn must_poll(&self) -> bool {
        self.players.values().flatten().any(Player::polls)
    }

    fn prepare_sleep(&mut self) -> Outcome<bool> {
        for player in self.players.values().flatten() {
            self.exports.provider_mut().arm_cq(player.cq(), false)?;
        }
        // What came before it was armed wakes nobody.
        if self.players.is_empty() { Ok(false) } else { self.progress() }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.exports.provider().fd()]
    }

    fn state(&self) -> State {
        let exports = &self.exports;
        let initiators = exports.initiators().map(|(session, initiator)| InitiatorState {
            session,
            address: initiator.peer,
            queue_pairs: initiator.queue_pairs(),
            regions: exports.usage(initiator),
            tally: exports.tally(initiator),
        });
        State {
            provider: exports.provider().capabilities().name,
            regions: exports.exports().iter().map(RegionState::of).collect(),
            usage: exports.total_usage(),
            initiators: initiators.collect(),
            queue_pairs: {
                let mut sum = exports.total_tally();
                self.door.iter().for_each(|door| sum.add(&door.tally(exports)));
                sum
            },
            endpoint: exports.provider().total(),
            account: exports.account.state(),
            rdma_cm: self.door.as_ref().map(|door| door.counts()),
        }
    }
}

impl<P: Endpoint> Host for Served<P> {
    fn welcome(&mut self) -> Welcome {
        Welcome { plays: self.plays, ..self.exports.welcome() }
    }

    fn regions(&mut self) -> Regions {
        self.exports.regions()
    }

    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        let plays = offer.receives.count > 0 || offer.sends > 0;
        if plays && !self.plays {
            let words = "this target serves memory only: start it with --messages to have it take messages";
            return Err(Refusal::new(Cause::Unsupported, words));
        }
        let accept = self.exports.connect(session, peer, offer)?;
        if plays && let Some(connected) = self.exports.connected(session, accept.qp.get()) {
            let account = self.exports.account.clone();
            let loan = account.lend(session, Player::memory_of(offer.receives), "messages");
            let provider = self.exports.provider_mut();
            match loan.and_then(|loan| Player::new(provider, connected, offer.receives, loan)) {
                Ok(player) => self.players.entry(session).or_default().push(player),
                Err(refusal) => {
                    self.exports.disconnect(session, accept.qp.get())?;
                    return Err(refusal);
                }
            }
        }
        Ok(accept)
    }

    fn play(&mut self, session: SessionId, playing: &Playing) -> Result<(), Refusal> {
        let exports = self.exports.exports().to_vec();
        let players = self.players.get_mut(&session).into_iter().flatten();
        let player = players.into_iter().find(|player| player.qp() == playing.qp.get());
        let player = player.ok_or_else(|| Refusal::new(Cause::Unknown, "this queue pair has no room to play"))?;
        let account = self.exports.account.clone();
        let lend = |bytes| account.lend(session, bytes, "a stream's operations");
        player.begin(self.exports.provider_mut(), playing.part, &exports, lend)
    }

    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.exports.disconnect(session, qp)?;
        self.forget(session, Some(qp));
        Ok(())
    }

    fn statistics(&mut self, session: SessionId) -> Statistics {
        let players = || self.players.get(&session).into_iter().flatten();
        let (played, played_bytes) = (players().map(|p| p.operations).sum(), players().map(|p| p.bytes).sum());
        Statistics { played, played_bytes, ..self.exports.statistics(session) }
    }

    fn left(&mut self, session: SessionId) {
        // What was registered for its messages first: then nothing uses its protection domain any more.
        self.forget(session, None);
        self.exports.left(session);
    }
}
