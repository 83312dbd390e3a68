//! Mutations of the committed seeds of a fuzz target, which run it in the tests without a fuzzer.

use std::fs;
use std::path::Path;

/// Calls `check` with the mutations of every file in a folder: each prefix, also the empty and the whole one, and the
/// file with each single bit flipped.
///
/// Flipped bits reach code behind checks of a magic number or a version, which random bytes seldom pass.
///
/// # Panics
/// If the folder cannot be read, or has no files.
pub fn check_mutations(folder: &Path, check: impl Fn(&[u8])) {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        each_mutation(&bytes, &check);
        files += 1;
    }
    assert!(files > 0, "{}: expected committed seeds, found no file", folder.display());
}

fn each_mutation(bytes: &[u8], check: impl Fn(&[u8])) {
    (0..=bytes.len()).for_each(|len| check(&bytes[..len]));
    let mut changed = bytes.to_vec();
    for (at, bit) in (0..8 * bytes.len()).map(|bit| (bit / 8, bit % 8)) {
        changed[at] ^= 1 << bit;
        check(&changed);
        changed[at] = bytes[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn mutations_are_all_prefixes_and_all_single_bit_flips() {
        let found = RefCell::new(Vec::new());
        each_mutation(&[0x0f, 0x80], |bytes| found.borrow_mut().push(bytes.to_vec()));
        let mut found = found.into_inner();
        let flips = found.split_off(3);
        assert_eq!(found, [vec![], vec![0x0f], vec![0x0f, 0x80]]);
        let numbers: Vec<_> = flips.iter().map(|flip| u16::from_le_bytes([flip[0], flip[1]]) ^ 0x800f).collect();
        assert_eq!(numbers, std::array::from_fn::<_, 16, _>(|bit| 1 << bit));
    }

    #[test]
    #[should_panic(expected = "no-folder")]
    fn folders_that_cannot_be_read_are_reported() {
        check_mutations(Path::new("no-folder"), |_| {});
    }
}
