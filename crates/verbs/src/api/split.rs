//! Operations longer than the wire allows.

use super::{Element, Operation, Remote};

/// A WRITE or READ of any length as operations of at most `most` bytes each, in their order, with the elements of each:
/// RoCE's length field ends at 2^31 ([`super::Capabilities::max_operation`]). Immediate data go with the last, so its
/// receiver hears when all is there. Post them as one group with only the last one signalled: queue pairs keep the order,
/// and an error of any completes visibly.
///
/// Messages and atomic operations cannot be cut, and come back as they are; so does everything that is short enough.
///
/// # Panics
/// If `most` is 0.
pub fn split(operation: Operation, elements: &[Element], most: u64) -> Vec<(Operation, Vec<Element>)> {
    assert!(most > 0, "operations of no bytes never end");
    let total: u64 = elements.iter().map(|element| u64::from(element.len)).sum();
    let part: fn(Operation, u64, bool) -> Operation = match operation {
        Operation::Write(_) | Operation::WriteImm(..) | Operation::Read(_) if total > most => at,
        _ => return vec![(operation, elements.to_vec())],
    };
    let (mut parts, mut done) = (Vec::new(), 0);
    let mut rest = elements.iter().copied();
    let mut element = rest.next();
    while done < total {
        let len = most.min(total - done);
        let (mut room, mut taken) = (len, Vec::new());
        while let Some(present) = element.filter(|_| room > 0) {
            let now = room.min(u64::from(present.len)) as u32;
            if now > 0 {
                taken.push(Element { len: now, ..present });
            }
            room -= u64::from(now);
            element = if now == present.len {
                rest.next()
            } else {
                Some(Element { address: present.address.wrapping_add(now.into()), len: present.len - now, ..present })
            };
        }
        parts.push((part(operation, done, done + len == total), taken));
        done += len;
    }
    parts
}

/// The part of an operation that begins `done` bytes behind its first.
fn at(operation: Operation, done: u64, last: bool) -> Operation {
    let from = |remote: Remote| Remote { address: remote.address.wrapping_add(done), ..remote };
    match operation {
        Operation::WriteImm(remote, imm) if last => Operation::WriteImm(from(remote), imm),
        Operation::Write(remote) | Operation::WriteImm(remote, _) => Operation::Write(from(remote)),
        Operation::Read(remote) => Operation::Read(from(remote)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: Remote = Remote { address: 1000, rkey: 7 };

    fn element(address: u64, len: u32) -> Element {
        Element { address, len, lkey: 1 }
    }

    #[test]
    fn every_byte_of_a_long_operation_is_in_one_part_and_the_last_wakes_the_peer() {
        let elements = [element(0, 5), element(100, 0), element(200, 12), element(300, 3)];
        let parts = split(Operation::WriteImm(REMOTE, 9), &elements, 8);
        let expected = [
            (Operation::Write(REMOTE), vec![element(0, 5), element(200, 3)]),
            (Operation::Write(Remote { address: 1008, ..REMOTE }), vec![element(203, 8)]),
            (Operation::WriteImm(Remote { address: 1016, ..REMOTE }, 9), vec![element(211, 1), element(300, 3)]),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn operations_beyond_2_gib_are_cut_where_the_wire_ends() {
        let elements = [element(0, 3 << 30), element(3 << 30, 3 << 30)];
        let parts = split(Operation::Read(REMOTE), &elements, 1 << 31);
        let lengths: Vec<u64> = parts.iter().map(|(_, list)| list.iter().map(|e| u64::from(e.len)).sum()).collect();
        assert_eq!(lengths, [1 << 31, 1 << 31, 1 << 31]);
        assert_eq!(parts[2].0, Operation::Read(Remote { address: 1000 + (1 << 32), ..REMOTE }));
    }

    #[test]
    fn what_is_short_or_cannot_be_cut_stays_as_it_is() {
        for operation in [Operation::Send, Operation::SendImm(1), Operation::Write(REMOTE)] {
            let len = if matches!(operation, Operation::Write(_)) { 8 } else { 80 };
            assert_eq!(split(operation, &[element(0, len)], 8), [(operation, vec![element(0, len)])]);
        }
        assert_eq!(split(Operation::Read(REMOTE), &[], 8), [(Operation::Read(REMOTE), vec![])]);
    }
}
