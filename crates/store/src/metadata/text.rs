//! String attributes, read from their bytes.
//!
//! libhdf5 believes what a reference into a global heap says: a damaged one makes it read where nothing is. Here
//! everything is bounded by the bytes that were read, and a string is UTF-8 or refused.

use super::header::{HeaderError, bytes, messages, u16_at, u32_at, u64_at};
use crate::positioned::ReadAt;

const MESSAGE_ATTRIBUTE: u16 = 0x000C;
/// A reference to a string: its length, the address of its collection, its number there.
const REFERENCE_BYTES: usize = 16;
/// Collections of ours have a few kilobytes; the run's configuration may be longer.
const MAX_COLLECTION: u64 = 1 << 28;
const HEAD: usize = 16;

/// The string attribute `name` of the object whose header is at `address`; none if it has no such attribute.
pub fn text(file: &(impl ReadAt + ?Sized), address: u64, name: &str) -> Result<Option<String>, HeaderError> {
    for message in messages(file, address)? {
        if message.kind != MESSAGE_ATTRIBUTE {
            continue;
        }
        let Some(data) = data_of(&message.body, name) else { continue };
        let Some(reference) = data.get(..REFERENCE_BYTES) else {
            return Err(HeaderError::at(message.at, "a string in a global heap", "other data"));
        };
        let (len, heap, number) = (u32_at(reference, 0) as usize, u64_at(reference, 4), u32_at(reference, 12));
        if len == 0 {
            return Ok(Some(String::new()));
        }
        let object = object(file, heap, number)?;
        let string = object.get(..len).and_then(|string| std::str::from_utf8(string).ok());
        let string = string.ok_or_else(|| HeaderError::at(heap, "a string in UTF-8", "other bytes"))?;
        return Ok(Some(string.trim_end_matches('\0').to_owned()));
    }
    Ok(None)
}

/// An attribute's data, if it has this name. Versions 1, 2 and 3 of the message differ in their padding only.
fn data_of<'a>(body: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let version = *body.first()?;
    let (start, unit) = match version {
        1 => (8, 8),
        2 => (8, 1),
        3 => (9, 1),
        _ => return None,
    };
    let size = |at: usize| body.get(at..at + 2).map(|size| usize::from(u16_at(size, 0)));
    let (name_size, type_size, space_size) = (size(2)?, size(4)?, size(6)?);
    let found = body.get(start..start + name_size)?;
    if found.strip_suffix(&[0])? != name.as_bytes() {
        return None;
    }
    let behind = [name_size, type_size, space_size].map(|size| size.next_multiple_of(unit));
    body.get(start + behind.iter().sum::<usize>()..)
}

/// An object of a global heap's collection.
fn object(file: &(impl ReadAt + ?Sized), address: u64, number: u32) -> Result<Vec<u8>, HeaderError> {
    let head = bytes(file, address, HEAD)?;
    let size = u64_at(&head, 8);
    if &head[..5] != b"GCOL\x01" || size > MAX_COLLECTION {
        return Err(HeaderError::at(address, "a global heap", "other bytes"));
    }
    let collection = bytes(file, address, size as usize)?;
    let mut at = HEAD;
    while let Some(head) = collection.get(at..at + HEAD) {
        let (found, size) = (u32::from(u16_at(head, 0)), u64_at(head, 8));
        let object = usize::try_from(size).ok().and_then(|size| collection.get(at + HEAD..)?.get(..size));
        // Object 0 is the free space at the end.
        let Some(object) = object.filter(|_| found != 0) else { break };
        if found == number {
            return Ok(object.to_vec());
        }
        at += HEAD + object.len().next_multiple_of(8);
    }
    Err(HeaderError::at(address, &format!("object {number} in this global heap"), "none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAP: usize = 256;

    /// An object header with one attribute `name` = `value`, and the heap that the value lies in.
    fn object_with(value: &[u8]) -> Vec<u8> {
        let mut body = vec![1, 0, 5, 0, 8, 0, 8, 0];
        body.extend(b"name\0\0\0\0");
        body.extend([0; 16]); // type and space
        body.extend((value.len() as u32).to_le_bytes());
        body.extend((HEAP as u64).to_le_bytes());
        body.extend(1_u32.to_le_bytes());
        let mut out = vec![1, 0, 1, 0, 1, 0, 0, 0];
        out.extend((8 + body.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend(MESSAGE_ATTRIBUTE.to_le_bytes());
        out.extend((body.len() as u16).to_le_bytes());
        out.extend([0; 4]);
        out.extend(body);
        out.resize(HEAP, 0);
        out.extend(b"GCOL\x01\0\0\0");
        out.extend(4096_u64.to_le_bytes());
        out.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        out.extend((value.len() as u64).to_le_bytes());
        out.extend(value);
        out.resize(HEAP + 4096, 0);
        out
    }

    #[test]
    fn a_string_is_found_by_its_name() {
        let file = object_with("Größe".as_bytes());
        assert_eq!(text(&file[..], 0, "name"), Ok(Some("Größe".into())));
        assert_eq!(text(&file[..], 0, "nam"), Ok(None));
    }

    #[test]
    fn what_is_no_utf_8_or_no_object_is_refused() {
        assert!(text(&object_with(b"\xff")[..], 0, "name").is_err());
        let mut file = object_with(b"text");
        file[HEAP + 16] = 2;
        assert_eq!(
            text(&file[..], 0, "name").unwrap_err().to_string(),
            "expected object 1 in this global heap at 256, found none"
        );
    }

    proptest! {
        #[test]
        fn damage_gives_an_error_or_a_string_and_never_a_panic(at in 0..400_usize, byte: u8, cut in 0..4400_usize) {
            let mut file = object_with(b"some text");
            file[at] = byte;
            file.truncate(cut);
            let _ = text(&file[..], 0, "name");
        }
    }
}
