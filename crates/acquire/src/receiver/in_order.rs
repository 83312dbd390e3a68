//! What landed where a device put it.

use super::Steering;
use shotline_memory::Sge;
use shotline_transport::{Done, Landed};
use shotline_wire::shot::DropCause;

impl Steering {
    /// Takes packets that landed in the order of their places, and moves those that did not land in their own.
    pub(super) fn landed_in_order(&mut self, batch: &[Done<'_>]) {
        for done in batch {
            let Landed::Slot(at) = done.landed else { continue };
            let Some(owner) = self.streams.iter().position(|stream| stream.ids().contains(&at)) else { continue };
            let Some(line) = &mut self.streams[owner].line else { continue };
            line.land(at);
            self.recount(owner, at, done);
            let admitted = self.admit(done);
            let is_strange = matches!(admitted, Err(DropCause::UnknownStream | DropCause::Malformed));
            if !is_strange && self.streams[owner].is_counting() {
                self.streams[owner].count_on();
            }
            let stream = &mut self.streams[owner];
            match admitted {
                Ok(target) => {
                    let id = stream.id(target.entry, target.index);
                    let from = stream.landing_place(at);
                    let place = stream.place(target.entry, target.index);
                    let to = stream.line.as_mut().zip(place).and_then(|(line, place)| line.bring(id, place));
                    if let Some((from, to)) = from.zip(to) {
                        self.regions.copy(Sge { len: done.len, ..from }, to);
                        stream.books.repaired += 1;
                        stream.books.repaired_bytes += u64::from(done.len);
                    }
                }
                Err(_) => stream.line.iter_mut().for_each(|line| line.refuse()),
            }
            // Nothing is left in the place: what belongs there may come.
            let Some(from) = stream.line.as_mut().and_then(|line| line.fetch(at)) else { continue };
            let (entry, index) = stream.slot(at);
            let Some(to) = stream.place(entry, index) else { continue };
            self.regions.copy(Sge { len: to.len, ..from }, to);
            stream.books.repaired_bytes += u64::from(to.len);
        }
    }

    /// Sets a stream's count by a packet that ends a shot, where packets say nothing of their place.
    fn recount(&mut self, owner: usize, at: u32, done: &Done<'_>) {
        let stream = &mut self.streams[owner];
        let is_its_own = self.framing.key(done.header).is_ok_and(|key| key == stream.config.key);
        if stream.is_counting() && is_its_own && stream.knows(done.source, self.now_ns) {
            stream.recount(at, done.len);
        }
    }
}
