//! The target behind its control connections: exported memory, and parts in measurements.

use super::play::{Budget, Player};
use super::report::{GuestCounts, InitiatorState, RegionState, State};
use crate::Result as Outcome;
use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_verbs::cm::message::{Accept, Cause, Offer, Playing, Refusal, Regions, Statistics, Welcome};
use shotline_verbs::cm::{Endpoint, Exports, Host, SessionId, EndpointCounters};
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
    fn close(&mut self) -> Outcome;
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
    fn tally(&self, exports: &Exports<P>) -> EndpointCounters;
    /// Tells all who came by it that this is the end.
    fn close(&mut self, exports: &mut Exports<P>) -> Outcome;
}

/// Exports, with queue pairs that do more than to serve memory.
pub struct Served<P: Endpoint> {
    exports: Exports<P>,
    door: Option<Box<dyn Door<P>>>,
    players: HashMap<SessionId, Vec<Player>>,
    rounds: usize,
    /// Whether initiators may ask for messages to be taken and for parts to be played.
    plays: bool,
}

impl<P: Endpoint> Served<P> {
    /// With these exports.
    pub fn new(exports: Exports<P>, plays: bool) -> Self {
        Self { exports, door: None, players: HashMap::new(), rounds: 0, plays }
    }

    /// With another door, if there is one.
    pub fn with_door(self, door: Option<Box<dyn Door<P>>>) -> Self {
        Self { door, ..self }
    }

    /// What happened to the endpoint as a whole.
    pub fn total(&self) -> EndpointCounters {
        self.exports.provider().total_counters()
    }

    /// As [`Serving::progress`]; players post no more than is left of a budget.
    pub fn round(&mut self, budget: &mut Budget) -> Outcome<bool> {
        let provider = self.exports.provider_mut();
        let mut busy = provider.progress()?;
        while provider.next_event().is_some() {}
        self.rounds = self.rounds.wrapping_add(1);
        for player in in_turn(self.players.values_mut().flatten(), self.rounds) {
            busy |= player.progress(self.exports.provider_mut(), budget);
        }
        if let Some(door) = &mut self.door {
            busy |= door.progress(&mut self.exports)?;
        }
        Ok(busy)
    }

    /// The endpoint itself.
    pub fn provider_mut(&mut self) -> &mut P {
        self.exports.provider_mut()
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

/// All of them, in each round beginning with another one: the first of them may use up what there is for all.
pub fn in_turn<T>(all: impl Iterator<Item = T>, round: usize) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    let first = round.checked_rem(all.len()).unwrap_or(0);
    all.rotate_left(first);
    all
}

impl<P: Endpoint> Serving for Served<P> {
    fn progress(&mut self) -> Outcome<bool> {
        self.round(&mut Budget::of_a_round())
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
            endpoint: exports.provider().total_counters(),
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
            let loan = account.reserve(session, Player::memory_of(offer.receives), "messages");
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

    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal> {
        self.exports.link(session, socket)
    }

    fn play(&mut self, session: SessionId, playing: &Playing) -> Result<(), Refusal> {
        let exports = self.exports.exports().to_vec();
        let players = self.players.get_mut(&session).into_iter().flatten();
        let player = players.into_iter().find(|player| player.qp() == playing.qp.get());
        let player = player.ok_or_else(|| Refusal::new(Cause::Unknown, "this queue pair has no room to play"))?;
        let account = self.exports.account.clone();
        let lend = |bytes| account.reserve(session, bytes, "a stream's operations");
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

    fn session_ended(&mut self, session: SessionId) {
        // What was registered for its messages first: then nothing uses its protection domain any more.
        self.forget(session, None);
        self.exports.session_ended(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Access, Addressing, Region};
    use shotline_verbs::api::{
        Modify, Mtu, Provider as _, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend, VerbsError,
    };
    use shotline_verbs::cm::message::{Bits24, Kind, PathMtu, Play, Receives, RegisteredMemory};
    use shotline_verbs::shm::ShmEndpoint;
    use shotline_wire::aeth::RnrTimer;
    use std::time::Duration;

    const SESSION: SessionId = 1;
    const MIB: u64 = 1 << 20;
    const PSN: u32 = 5;

    fn bring_up(side: &mut ShmEndpoint, qp: Qp, peer: Bits24) -> Result<(), VerbsError> {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse().unwrap(), peer.get())),
            mtu: Mtu::B4096,
            psn: PSN,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let timeout = Duration::from_secs(1);
        let send = ReadyToSend { psn: PSN, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        let steps = [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)];
        steps.into_iter().try_for_each(|step| side.modify_qp(qp, step))
    }

    #[test]
    fn a_round_copies_so_much_whatever_is_streamed_and_all_have_their_turn() {
        const PAIRS: u64 = 6;
        const GROUP: u16 = 16;
        const ROUNDS: u64 = 64;
        let (mut initiator, target) = ShmEndpoint::pair().unwrap();
        let mut served = Served::new(Exports::new(target), true);
        let pd = initiator.alloc_pd().unwrap();
        let cq = initiator.create_cq(16).unwrap();
        let region = Region::memfd("theirs", usize::from(GROUP) << 20).unwrap();
        let len = region.len() as u64;
        let mr = initiator.reg_mr(pd, &region, 0, len, Access::ALL, Addressing::ZeroBased).unwrap();
        for _ in 0..PAIRS {
            let qp = initiator.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
            let offer = Offer {
                kind: Kind::Rc,
                address: None,
                qp: Bits24::new(qp.0).unwrap(),
                psn: Bits24::new(PSN).unwrap(),
                mtu: PathMtu(Mtu::B4096),
                max_dest_rd_atomic: 1,
                max_rd_atomic: 1,
                receives: Receives::default(),
                sends: GROUP,
            };
            let accept = served.connect(SESSION, None, &offer).unwrap();
            bring_up(&mut initiator, qp, accept.qp).unwrap();
            let memory = RegisteredMemory { address: mr.address, bytes: len, rkey: mr.rkey };
            let part = Play::Stream { read: false, bytes: MIB as u32, group: GROUP, memory };
            served.play(SESSION, &Playing { qp: accept.qp, part }).unwrap();
        }
        for _ in 0..ROUNDS {
            assert!(served.progress().unwrap(), "there is always more to stream");
        }
        // Operations count when their group is whole.
        let copied: Vec<u64> = served.players[&SESSION].iter().map(|player| player.bytes).collect();
        assert!(copied.iter().sum::<u64>() <= ROUNDS * 4 * MIB, "{copied:?}");
        assert!(copied.iter().all(|bytes| *bytes > 0), "{copied:?}");
    }
}
