//! Execution of the commands by which accelerators exchange bytes.

use crate::command::{Connect, Exchange, Outcome};
use crate::error::NodeError;
use crate::neighbour::{Dial, Neighbour};
use shotline_memory::Region;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

/// Time between two looks at a signal: first, and at most. Reading it may take a copy engine.
const FIRST_NAP: Duration = Duration::from_micros(10);
const MAX_NAP: Duration = Duration::from_micros(500);

/// The memory of an accelerator, and its connections to others.
pub(crate) struct Exchanges {
    /// The memory as peers access it: bytes for a neighbour leave by the same path.
    memory: Arc<Region>,
    /// The memory as the accelerator accesses it.
    own: Arc<Region>,
    dial: Option<Box<dyn Dial>>,
    /// Neighbours by command queue and number.
    neighbours: HashMap<(usize, u32), Box<dyn Neighbour>>,
}

impl Exchanges {
    /// Returns those of an accelerator that has no neighbours yet. Without a `dial` it never has any.
    pub(crate) fn new(memory: Arc<Region>, own: Arc<Region>, dial: Option<Box<dyn Dial>>) -> Self {
        Self { memory, own, dial, neighbours: HashMap::new() }
    }

    /// Ends the connections of a command queue.
    pub(crate) fn close(&mut self, queue: usize) {
        self.neighbours.retain(|(owner, _), _| *owner != queue);
    }

    /// Connects to a neighbour, instead of the one before. What fails is written where its address was.
    pub(crate) fn connect(&mut self, queue: usize, to: &Connect) -> Outcome {
        self.neighbours.remove(&(queue, to.neighbour));
        if to.address_bytes == 0 {
            return Outcome::Done;
        }
        match self.dial(to) {
            Ok(neighbour) => {
                self.neighbours.insert((queue, to.neighbour), neighbour);
                Outcome::Done
            }
            Err(reason) => {
                let mut text = reason.into_bytes();
                text.resize(to.address_bytes as usize, 0);
                self.own.write(to.address as usize, &text);
                Outcome::NeighbourLost
            }
        }
    }

    fn dial(&self, to: &Connect) -> Result<Box<dyn Neighbour>, String> {
        let dial = self.dial.as_ref().ok_or("this accelerator cannot connect to others")?;
        let mut text = vec![0; to.address_bytes as usize];
        self.own.read(to.address as usize, &mut text);
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let address = std::str::from_utf8(text).map_err(|_| "its address is no text")?;
        let mut neighbour = dial.dial(address, to.token, &self.memory)?;
        match neighbour.read(to.identity_at) {
            Ok(identity) if identity == to.identity => Ok(neighbour),
            Ok(_) => {
                Err(format!("seen from here, {address} is another node: use an address that means the same everywhere"))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes to a neighbour, and waits until it has everything.
    pub(crate) fn put(
        &mut self,
        (queue, number): (usize, u32),
        exchange: &Exchange,
        is_closed: &AtomicBool,
    ) -> Outcome {
        let Some(neighbour) = self.neighbours.get_mut(&(queue, number)) else { return Outcome::NeighbourLost };
        let end = Deadline::new(exchange, is_closed);
        let mut write = || -> Result<Outcome, NodeError> {
            neighbour.put(exchange)?;
            while !neighbour.is_done()? {
                if end.has_come() {
                    return Ok(Outcome::TimedOut);
                }
            }
            Ok(Outcome::Done)
        };
        let outcome = write().unwrap_or(Outcome::NeighbourLost);
        if outcome != Outcome::Done {
            self.neighbours.remove(&(queue, number));
        }
        outcome
    }

    /// Waits for a signal, then copies.
    pub(crate) fn wait(&self, exchange: &Exchange, is_closed: &AtomicBool) -> Outcome {
        let end = Deadline::new(exchange, is_closed);
        let mut nap = FIRST_NAP;
        loop {
            let mut signal = [0; 8];
            self.own.read(exchange.signal as usize, &mut signal);
            if u64::from_le_bytes(signal) >= exchange.value {
                break;
            }
            if end.has_come() || self.own.failure().is_some() {
                return Outcome::TimedOut;
            }
            std::thread::sleep(nap);
            nap = MAX_NAP.min(nap * 2);
        }
        // The bytes were written before the signal, by another thread or process.
        fence(Ordering::Acquire);
        self.own.copy_from(exchange.to as usize, &self.own, exchange.from as usize, exchange.bytes as usize);
        Outcome::Done
    }
}

/// When an exchange ends in any case.
struct Deadline<'a> {
    begin: Instant,
    timeout: Duration,
    /// The initiator has gone.
    is_closed: &'a AtomicBool,
}

impl<'a> Deadline<'a> {
    fn new(exchange: &Exchange, is_closed: &'a AtomicBool) -> Self {
        Self { begin: Instant::now(), timeout: Duration::from_millis(exchange.timeout_ms), is_closed }
    }

    fn has_come(&self) -> bool {
        self.begin.elapsed() >= self.timeout || self.is_closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_verbs::cm::Token;

    const QUEUE: usize = 3;
    const IDENTITY: u64 = 0x1234;

    /// Nodes by their addresses. What is put is acknowledged only by those with `/live`.
    struct Nodes(Arc<Region>);

    struct Node {
        memory: Arc<Region>,
        from: Arc<Region>,
        is_live: bool,
    }

    impl Dial for Nodes {
        fn dial(&self, address: &str, _: Token, from: &Arc<Region>) -> Result<Box<dyn Neighbour>, String> {
            let node = Node { memory: Arc::clone(&self.0), from: Arc::clone(from), is_live: address == "/live" };
            if address.starts_with('/') { Ok(Box::new(node)) } else { Err(format!("cannot reach {address}")) }
        }
    }

    impl Neighbour for Node {
        fn read(&mut self, offset: u64) -> Result<u64, NodeError> {
            let mut bytes = [0; 8];
            self.memory.read(offset as usize, &mut bytes);
            Ok(u64::from_le_bytes(bytes))
        }
        fn put(&mut self, Exchange { from, to, bytes, signal, value, .. }: &Exchange) -> Result<(), NodeError> {
            if *to as usize >= self.memory.len() {
                return Err(NodeError::Closed);
            }
            self.memory.copy_from(*to as usize, &self.from, *from as usize, *bytes as usize);
            self.memory.write(*signal as usize, &value.to_le_bytes());
            Ok(())
        }
        fn is_done(&mut self) -> Result<bool, NodeError> {
            Ok(self.is_live)
        }
    }

    /// Returns the exchanges of an accelerator with 4096 bytes, its memory, and that of all other nodes.
    fn exchanges() -> (Exchanges, Arc<Region>, Arc<Region>) {
        let (own, other) = (Region::heap(4096).unwrap(), Region::heap(4096).unwrap());
        other.write(64, &IDENTITY.to_le_bytes());
        let dial = Some(Box::new(Nodes(Arc::clone(&other))) as _);
        (Exchanges::new(Arc::clone(&own), Arc::clone(&own), dial), own, other)
    }

    fn connect(exchanges: &mut Exchanges, own: &Region, address: &str, identity: u64) -> (Outcome, String) {
        own.zero(1024, 256);
        own.write(1024, address.as_bytes());
        let token = Token::from_bytes([0; 16]);
        let to = Connect { neighbour: 1, token, address: 1024, address_bytes: 256, identity_at: 64, identity };
        let outcome = exchanges.connect(QUEUE, &to);
        let mut text = [0; 256];
        own.read(1024, &mut text);
        (outcome, String::from_utf8(text.to_vec()).unwrap().trim_end_matches('\0').to_owned())
    }

    const PUT: Exchange = Exchange { from: 0, to: 512, bytes: 100, signal: 8, value: 5, timeout_ms: 60_000 };

    #[test]
    fn bytes_arrive_before_their_signal_ends_the_wait() {
        let (mut exchanges, own, other) = exchanges();
        own.write(0, &[7; 100]);
        assert_eq!(connect(&mut exchanges, &own, "/live", IDENTITY).0, Outcome::Done);
        let closed = AtomicBool::new(false);
        assert_eq!(exchanges.put((QUEUE, 1), &PUT, &closed), Outcome::Done);
        let receiver = Exchanges::new(Arc::clone(&other), Arc::clone(&other), None);
        let wait = Exchange { from: 512, to: 2048, ..PUT };
        assert_eq!(receiver.wait(&wait, &closed), Outcome::Done);
        assert_eq!(receiver.wait(&Exchange { value: 4, ..wait }, &closed), Outcome::Done);
        let mut bytes = [0; 100];
        other.read(2048, &mut bytes);
        assert_eq!(bytes, [7; 100]);
    }

    #[test]
    fn waits_end_at_their_timeout_and_when_the_initiator_goes() {
        let (mut exchanges, own, _) = exchanges();
        let (open, closed) = (AtomicBool::new(false), AtomicBool::new(true));
        let at_once = Exchange { timeout_ms: 0, ..PUT };
        assert_eq!(exchanges.wait(&at_once, &open), Outcome::TimedOut);
        assert_eq!(exchanges.wait(&PUT, &closed), Outcome::TimedOut);
        for (exchange, closed) in [(at_once, &open), (PUT, &closed)] {
            assert_eq!(connect(&mut exchanges, &own, "/silent", IDENTITY).0, Outcome::Done);
            assert_eq!(exchanges.put((QUEUE, 1), &exchange, closed), Outcome::TimedOut);
            // It may still write what it has: it is not used again.
            assert_eq!(exchanges.put((QUEUE, 1), &exchange, closed), Outcome::NeighbourLost);
        }
    }

    #[test]
    fn neighbours_that_fail_are_lost_with_the_reason() {
        let (mut exchanges, own, _) = exchanges();
        let open = AtomicBool::new(false);
        let mut reason = |address: &str, identity| {
            let (outcome, text) = connect(&mut exchanges, &own, address, identity);
            assert_eq!(outcome, Outcome::NeighbourLost);
            assert_eq!(exchanges.put((QUEUE, 1), &PUT, &open), Outcome::NeighbourLost);
            text
        };
        assert_eq!(reason("10.0.0.1:5", IDENTITY), "cannot reach 10.0.0.1:5");
        assert!(reason("/live", IDENTITY + 1).starts_with("seen from here, /live is another node"));
        // It is cut at the bytes of the address.
        assert_eq!(reason(&"x".repeat(256), IDENTITY).len(), 256);
        assert_eq!(connect(&mut exchanges, &own, "/live", IDENTITY).0, Outcome::Done);
        assert_eq!(exchanges.put((QUEUE, 1), &Exchange { to: 9999, ..PUT }, &open), Outcome::NeighbourLost);
        let mut none = Exchanges::new(Arc::clone(&own), Arc::clone(&own), None);
        assert_eq!(connect(&mut none, &own, "/live", IDENTITY).1, "this accelerator cannot connect to others");
    }

    #[test]
    fn neighbours_go_with_their_queue() {
        let (mut exchanges, own, _) = exchanges();
        let open = AtomicBool::new(false);
        assert_eq!(connect(&mut exchanges, &own, "/live", IDENTITY).0, Outcome::Done);
        assert_eq!(exchanges.put((QUEUE + 1, 1), &PUT, &open), Outcome::NeighbourLost);
        exchanges.close(QUEUE + 1);
        assert_eq!(exchanges.put((QUEUE, 1), &PUT, &open), Outcome::Done);
        let token = Token::from_bytes([0; 16]);
        let none = Connect { neighbour: 1, token, address: 0, address_bytes: 0, identity_at: 0, identity: 0 };
        assert_eq!(exchanges.connect(QUEUE, &none), Outcome::Done);
        assert_eq!(exchanges.put((QUEUE, 1), &PUT, &open), Outcome::NeighbourLost);
        assert_eq!(connect(&mut exchanges, &own, "/live", IDENTITY).0, Outcome::Done);
        assert_eq!(exchanges.put((QUEUE, 1), &PUT, &open), Outcome::Done);
        exchanges.close(QUEUE);
        assert_eq!(exchanges.put((QUEUE, 1), &PUT, &open), Outcome::NeighbourLost);
    }
}
