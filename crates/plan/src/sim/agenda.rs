//! What happens next: a tournament between all that can happen.
//!
//! Each actor has at most one time. The tree's shape is fixed, so that to set a time is a short walk without surprises,
//! and allocates nothing. Of equal times the actor with the lower number is first, which makes runs repeatable.

use super::Time;

/// No time at all.
const NEVER: Time = Time::MAX;

/// Times of all actors.
#[derive(Debug)]
pub(super) struct Agenda {
    times: Vec<Time>,
    /// The earlier actor of each node's two; node 1 is the root, node `i` has the nodes `2 i` and `2 i + 1`, and from
    /// the length on they are the actors.
    winners: Vec<u32>,
}

impl Agenda {
    pub(super) fn new(actors: usize) -> Self {
        let size = actors.next_power_of_two().max(2);
        let mut agenda = Self { times: vec![NEVER; size], winners: vec![0; size] };
        for node in (1..size).rev() {
            agenda.winners[node] = agenda.winner(2 * node);
        }
        agenda
    }

    /// The earliest actor below a node.
    fn winner(&self, node: usize) -> u32 {
        let actors = self.winners.len();
        if node < actors { self.winners[node] } else { (node - actors) as u32 }
    }

    /// Sets when an actor acts next.
    pub(super) fn set(&mut self, actor: usize, time: Time) {
        self.times[actor] = time;
        let mut node = (self.winners.len() + actor) / 2;
        while node > 0 {
            let (left, right) = (self.winner(2 * node), self.winner(2 * node + 1));
            let earlier = if self.times[right as usize] < self.times[left as usize] { right } else { left };
            if self.winners[node] == earlier && earlier as usize != actor {
                break; // nothing above has changed
            }
            self.winners[node] = earlier;
            node /= 2;
        }
    }

    /// An actor does nothing more until it is set again.
    pub(super) fn clear(&mut self, actor: usize) {
        self.set(actor, NEVER);
    }

    /// Who is next, and when.
    pub(super) fn next(&self) -> Option<(Time, usize)> {
        let actor = self.winners[1] as usize;
        let time = self.times[actor];
        (time != NEVER).then_some((time, actor))
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn the_earliest_actor_is_always_next_whatever_was_set() {
        let mut random = Random::new(3);
        for actors in [1, 2, 3, 17, 64] {
            let mut agenda = Agenda::new(actors);
            let mut times = vec![NEVER; actors];
            for _ in 0..10_000 {
                let actor = (random.unit() * actors as f64) as usize % actors;
                let time = if random.unit() < 0.3 { NEVER } else { (random.unit() * 50.0) as Time };
                times[actor] = time;
                agenda.set(actor, time);
                let first = times.iter().enumerate().min_by_key(|(_, time)| **time);
                let expected = first.filter(|(_, time)| **time != NEVER).map(|(actor, time)| (*time, actor));
                assert_eq!(agenda.next(), expected);
            }
        }
    }
}
