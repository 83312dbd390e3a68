//! Splitting of operations longer than the protocol allows.

use super::{Element, Operation, Remote};

/// Splits a WRITE or READ of any length into operations of at most `max` bytes each, in order, with the elements of
/// each: RoCE's length field is limited to 2^31 ([`super::Capabilities::max_operation`]). Immediate data is sent with
/// the last one, so the receiver is notified when all bytes have arrived. Post them as one group with only the last one
/// signalled: queue pairs keep the order, and an error of any of them posts a completion.
///
/// Messages and atomic operations cannot be split and are returned unchanged; so are operations that are short enough.
///
/// # Panics
/// If `max` is 0.
pub fn split(operation: Operation, elements: &[Element], max: u64) -> Vec<(Operation, Vec<Element>)> {
    assert!(max > 0, "max must not be 0");
    let total: u64 = elements.iter().map(|element| u64::from(element.len)).sum();
    let part: fn(Operation, u64, bool) -> Operation = match operation {
        Operation::Write(_) | Operation::WriteImm(..) | Operation::Read(_) if total > max => at_offset,
        _ => return vec![(operation, elements.to_vec())],
    };
    let (mut parts, mut done) = (Vec::new(), 0);
    let mut rest = elements.iter().copied();
    let mut element = rest.next();
    while done < total {
        let len = max.min(total - done);
        let (mut space, mut list) = (len, Vec::new());
        while let Some(current) = element.filter(|_| space > 0) {
            let count = space.min(u64::from(current.len)) as u32;
            if count > 0 {
                list.push(Element { len: count, ..current });
            }
            space -= u64::from(count);
            element = if count == current.len {
                rest.next()
            } else {
                Some(Element {
                    address: current.address.wrapping_add(count.into()),
                    len: current.len - count,
                    ..current
                })
            };
        }
        parts.push((part(operation, done, done + len == total), list));
        done += len;
    }
    parts
}

/// Returns the part of an operation that starts `offset` bytes after its beginning.
fn at_offset(operation: Operation, offset: u64, last: bool) -> Operation {
    let advance = |remote: Remote| Remote { address: remote.address.wrapping_add(offset), ..remote };
    match operation {
        Operation::WriteImm(remote, imm) if last => Operation::WriteImm(advance(remote), imm),
        Operation::Write(remote) | Operation::WriteImm(remote, _) => Operation::Write(advance(remote)),
        Operation::Read(remote) => Operation::Read(advance(remote)),
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
    fn parts_cover_every_byte_and_the_last_has_the_immediate() {
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
    fn operations_beyond_2_gib_are_split() {
        let elements = [element(0, 3 << 30), element(3 << 30, 3 << 30)];
        let parts = split(Operation::Read(REMOTE), &elements, 1 << 31);
        let lengths: Vec<u64> = parts.iter().map(|(_, list)| list.iter().map(|e| u64::from(e.len)).sum()).collect();
        assert_eq!(lengths, [1 << 31, 1 << 31, 1 << 31]);
        assert_eq!(parts[2].0, Operation::Read(Remote { address: 1000 + (1 << 32), ..REMOTE }));
    }

    #[test]
    fn short_or_unsplittable_operations_are_unchanged() {
        for operation in [Operation::Send, Operation::SendImm(1), Operation::Write(REMOTE)] {
            let len = if matches!(operation, Operation::Write(_)) { 8 } else { 80 };
            assert_eq!(split(operation, &[element(0, len)], 8), [(operation, vec![element(0, len)])]);
        }
        assert_eq!(split(Operation::Read(REMOTE), &[], 8), [(Operation::Read(REMOTE), vec![])]);
    }
}
