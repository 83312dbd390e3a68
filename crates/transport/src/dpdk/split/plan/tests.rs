//! The plan with a model of the device, in which memory has marks instead of payloads.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Buffers that the device takes at a time.
const GROUP: usize = 8;
/// Buffers that the device has at most.
const RING: usize = 64;
/// Length of payloads and receives.
const BYTES: u32 = 4096;
/// Number of receives.
const RECEIVES: u32 = 96;

/// What arrives.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next packet of the stream.
    Next,
    /// The next packet is lost before it arrives.
    Lost,
    /// A packet of another host, in this number of buffers.
    Foreign(usize),
    /// A short packet in place of the next one.
    Short,
    /// A packet without payload: its buffer comes back unused.
    Empty,
}

struct Bench {
    plan: Plan,
    /// Buffers that were chosen and not taken by the device, and those that it has.
    chosen: VecDeque<NextBuffer>,
    ring: VecDeque<NextBuffer>,
    /// Marks in the memory of receives, and in that of buffers.
    receives: HashMap<u32, u64>,
    own: HashMap<u32, u64>,
    /// Packets of each shot, in buffers.
    shot: Vec<usize>,
    position: usize,
    posted: usize,
    mark: u64,
    /// Deliveries: in place, copied.
    delivered: [u64; 2],
    lost: u64,
}

impl Bench {
    fn new(shot: &[usize]) -> Self {
        let mut bench = Self {
            plan: Plan::new((RING + 4 * GROUP) as u32),
            chosen: VecDeque::new(),
            ring: VecDeque::new(),
            receives: HashMap::new(),
            own: HashMap::new(),
            shot: shot.to_vec(),
            position: 0,
            posted: 0,
            mark: 0,
            delivered: [0; 2],
            lost: 0,
        };
        (0..RECEIVES).for_each(|id| bench.post(id));
        bench.refill();
        bench
    }

    fn post(&mut self, id: u32) {
        let buffers = self.shot[self.posted % self.shot.len()];
        self.posted += 1;
        self.plan.post(id, BYTES, buffers, true);
    }

    fn refill(&mut self) {
        while self.chosen.len() < 2 * GROUP
            && let Some(next) = self.plan.give()
        {
            self.chosen.push_back(next);
        }
        while self.ring.len() + GROUP <= RING && self.chosen.len() >= GROUP {
            self.ring.extend(self.chosen.drain(..GROUP));
        }
    }

    /// The device writes a packet with a new mark, and the receiver takes it. Returns whether there were buffers.
    fn arrives(&mut self, buffers: usize, is_ours: bool) -> bool {
        if self.ring.len() < buffers {
            return false;
        }
        self.mark += 1;
        let taken: Vec<_> = self.ring.drain(..buffers).collect();
        let (mark, first) = (self.mark, taken[0]);
        for (index, next) in taken.iter().enumerate() {
            let mark = if index == 0 { mark } else { 0 };
            match next.receive {
                Some(id) => self.receives.insert(id, mark),
                None => self.own.insert(next.buffer, mark),
            };
        }
        let numbers: Vec<_> = taken.iter().map(|next| next.buffer).collect();
        if !is_ours {
            self.plan.discard(&numbers);
        } else if let Some(Delivery { id, in_place }) = self.plan.deliver(&numbers, BYTES, true) {
            self.delivered[usize::from(!in_place)] += 1;
            if in_place {
                assert_eq!(first.receive, Some(id));
            } else {
                let has = |next: &NextBuffer| next.receive == Some(id);
                assert!(!self.ring.iter().chain(&self.chosen).any(has), "copied to memory that the device has");
                self.receives.insert(id, mark);
            }
            assert_eq!(self.receives.get(&id), Some(&mark), "the payload is not where it was delivered");
            self.post(id);
        } else {
            self.lost += 1;
        }
        numbers.iter().for_each(|buffer| self.plan.free(*buffer));
        self.refill();
        true
    }

    fn step(&mut self, event: Event) {
        let expected = self.shot[self.position % self.shot.len()];
        match event {
            Event::Next => {
                self.position += usize::from(self.arrives(expected, true));
            }
            Event::Lost => self.position += 1,
            Event::Foreign(buffers) => {
                self.arrives(buffers, false);
            }
            Event::Short => self.position += usize::from(self.arrives(1, true)),
            Event::Empty => {
                if let Some(next) = self.ring.pop_front() {
                    self.plan.free(next.buffer);
                    self.refill();
                }
            }
        }
    }

    /// Runs the stream without disturbance and returns how many payloads were copied.
    fn copied(&mut self, packets: usize) -> u64 {
        let before = self.delivered;
        (0..packets).for_each(|_| self.step(Event::Next));
        assert_eq!(self.delivered.iter().sum::<u64>() - before.iter().sum::<u64>(), packets as u64);
        self.delivered[1] - before[1]
    }
}

const SHOTS: [&[usize]; 5] = [&[2], &[1], &[2, 2, 2, 1], &[2, 1], &[3, 1, 2]];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => Just(Event::Next),
        1 => Just(Event::Lost),
        2 => (1_usize..4).prop_map(Event::Foreign),
        1 => Just(Event::Short),
        1 => Just(Event::Empty),
    ]
}

#[test]
fn packets_as_expected_land_in_place() {
    for shot in SHOTS {
        let mut bench = Bench::new(shot);
        assert_eq!(bench.copied(1000), 0, "{shot:?}");
        assert_eq!((bench.delivered, bench.lost), ([1000, 0], 0), "{shot:?}");
    }
}

#[test]
fn unreachable_receives_are_filled_by_copies() {
    let mut plan = Plan::new(16);
    plan.post(3, BYTES, 2, false);
    plan.post(4, BYTES, 2, true);
    let given: Vec<_> = std::iter::from_fn(|| plan.give()).collect();
    assert_eq!(given.iter().map(|next| next.receive).collect::<Vec<_>>(), [None, None, Some(4), None]);
    let numbers: Vec<_> = given.iter().map(|next| next.buffer).collect();
    assert_eq!(plan.deliver(&numbers[..2], BYTES, true), Some(Delivery { id: 3, in_place: false }));
    assert_eq!(plan.deliver(&numbers[2..], BYTES, true), Some(Delivery { id: 4, in_place: true }));
    assert_eq!((plan.posted.len(), plan.give()), (0, None));
}

#[test]
fn a_packet_longer_than_a_buffer_is_copied() {
    let mut plan = Plan::new(16);
    plan.post(3, BYTES, 2, true);
    let given: Vec<_> = std::iter::from_fn(|| plan.give()).map(|next| next.buffer).collect();
    assert_eq!(plan.deliver(&given, BYTES, false), Some(Delivery { id: 3, in_place: false }));
}

#[test]
fn a_packet_without_a_receive_is_lost() {
    let mut plan = Plan::new(16);
    plan.post(3, BYTES, 2, true);
    plan.post(4, BYTES, 2, true);
    let given: Vec<_> = std::iter::from_fn(|| plan.give()).map(|next| next.buffer).collect();
    assert_eq!(plan.deliver(&given[..1], BYTES, true).map(|delivery| delivery.in_place), Some(true));
    // Short packets: the device still has the memory of the only receive.
    assert_eq!(plan.deliver(&given[1..2], BYTES, true), None);
    assert_eq!(plan.deliver(&given[2..], BYTES, true), Some(Delivery { id: 4, in_place: true }));
}

#[test]
fn a_payload_is_delivered_to_a_receive_that_can_hold_it() {
    let mut plan = Plan::new(16);
    plan.post(3, BYTES - 1, 1, false);
    plan.post(4, BYTES, 1, false);
    let given: Vec<_> = std::iter::from_fn(|| plan.give()).map(|next| next.buffer).collect();
    assert_eq!(plan.deliver(&given[..1], BYTES, true).map(|delivery| delivery.id), Some(4));
    assert_eq!(plan.deliver(&given[1..], BYTES - 1, true).map(|delivery| delivery.id), Some(3));
}

#[test]
fn other_buffers_keep_a_device_running_without_receives() {
    let mut plan = Plan::new(4);
    assert_eq!(plan.give(), None);
    let other = plan.give_other().unwrap();
    plan.post(3, BYTES, 1, true);
    assert_eq!(plan.deliver(&[other.buffer], BYTES, true), Some(Delivery { id: 3, in_place: false }));
}

proptest! {
    #[test]
    fn each_payload_is_where_it_was_delivered(
        shot in proptest::sample::select(SHOTS.to_vec()), events in proptest::collection::vec(event(), 1..600)
    ) {
        let mut bench = Bench::new(shot);
        events.into_iter().for_each(|event| bench.step(event));
        let given = bench.ring.len() + bench.chosen.len();
        prop_assert_eq!(bench.plan.given, given);
        prop_assert_eq!(bench.plan.posted.iter().filter(|posted| posted.is_given).count(),
            bench.ring.iter().chain(&bench.chosen).filter(|next| next.receive.is_some()).count());
    }

    #[test]
    fn payloads_land_in_place_again_after_other_packets(
        shot in proptest::sample::select(SHOTS.to_vec()),
        before in 0_usize..100,
        foreign in proptest::collection::vec((1_usize..4, 0_usize..5), 1..30)
    ) {
        let mut bench = Bench::new(shot);
        prop_assert_eq!(bench.copied(before), 0);
        for (buffers, between) in foreign {
            bench.step(Event::Foreign(buffers));
            (0..between).for_each(|_| bench.step(Event::Next));
        }
        prop_assert_eq!(bench.lost, 0);
        // What was given meanwhile passes through the device twice at most.
        bench.copied(3 * (RING + 2 * GROUP));
        prop_assert_eq!(bench.copied(1000), 0);
    }
}
