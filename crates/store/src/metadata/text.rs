//! String attributes, parsed from bytes.
//!
//! libhdf5 does not validate references into a global heap: a damaged one makes it read out of bounds. Here every
//! access is bounds-checked, and a string that is not UTF-8 is an error.

use super::header::{HeaderError, bytes, messages, u16_at, u32_at, u64_at};
use crate::positioned::ReadAt;

const MESSAGE_ATTRIBUTE: u16 = 0x000C;
/// Bytes of a string reference: length, address of the heap collection, object number.
const REFERENCE_BYTES: usize = 16;
/// Maximum size of a heap collection, in bytes. Usual ones have a few kilobytes; the run's configuration may be longer.
const MAX_COLLECTION: u64 = 1 << 28;
/// Size of the header of a heap collection, and of the header of an object in it, in bytes.
const HEAD: usize = 16;

/// Reads the string attribute `name` of the object whose header is at `address`; `None` if there is no such attribute.
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

/// Returns the data of an attribute message, if it has this name. Versions 1, 2 and 3 differ in their padding only.
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
    let parts = [name_size, type_size, space_size].map(|size| size.next_multiple_of(unit));
    body.get(start + parts.iter().sum::<usize>()..)
}

/// Reads an object of a global heap collection.
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

    /// An object header with one attribute `name` = `value`, and the heap that holds the value.
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
    fn string_is_found_by_name() {
        let file = object_with("Größe".as_bytes());
        assert_eq!(text(&file[..], 0, "name"), Ok(Some("Größe".into())));
        assert_eq!(text(&file[..], 0, "nam"), Ok(None));
    }

    #[test]
    fn invalid_utf_8_and_missing_objects_are_errors() {
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
        fn damaged_attributes_never_panic(at in 0..400_usize, byte: u8, cut in 0..4400_usize) {
            let mut file = object_with(b"some text");
            file[at] = byte;
            file.truncate(cut);
            let _ = text(&file[..], 0, "name");
        }
    }
}
