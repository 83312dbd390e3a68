//! Committed files that a test generates.

use std::fs;
use std::path::Path;

/// Returns `true` if the environment variable `UPDATE` requests that tests rewrite their committed files.
pub fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some_and(|value| !value.is_empty())
}

/// Compares a committed file with its expected contents, or writes it if [`is_update`].
///
/// # Panics
/// If they differ, with the first difference and the command that rewrites the file.
pub fn assert_committed(path: &Path, expected: &[u8]) {
    if is_update() {
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        fs::write(path, expected).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let found = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}; {}", path.display(), hint()));
    if found != expected {
        let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let line = 1 + expected[..at].iter().filter(|byte| **byte == b'\n').count();
        panic!("{} differs from its expected contents, first at byte {at} (line {line}); {}", path.display(), hint());
    }
}

fn hint() -> String {
    format!("if this is intended, rewrite it: UPDATE=1 {}", crate::command())
}
