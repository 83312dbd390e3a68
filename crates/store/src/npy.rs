//! Headers of NumPy `.npy` files, versions 1 to 3.

use crate::import::error::ImportError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum size of a header, in bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// An array in C order in a file.
#[derive(Debug)]
pub struct Array {
    /// The open file.
    pub file: File,
    /// Kind of the numbers: `i`, `u` or `f`, little-endian.
    pub kind: char,
    /// Bytes of a number.
    pub width: usize,
    /// Length of each dimension.
    pub dimensions: Vec<u64>,
    /// Offset of the first number.
    pub start: u64,
    /// Text of the header.
    header: String,
}

impl Array {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a `.npy` file, or the array is not one of little-endian numbers in C order.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let file = File::open(path).map_err(ImportError::io(path))?;
        let (header, start) = header(&file, path)?;
        let wrong = |what: &str| ImportError::format(path, format!("expected {what}, found the header {header}"));
        let (kind, width) = number(field(&header, "descr").unwrap_or_default())
            .ok_or_else(|| wrong("little-endian integers or floating-point numbers"))?;
        if field(&header, "fortran_order") != Some("False") {
            return Err(wrong("an array in C order (numpy.ascontiguousarray)"));
        }
        let shape = header.split_once("'shape'").and_then(|(_, rest)| rest.split_once('(')?.1.split_once(')'));
        let dimensions: Option<Vec<u64>> = shape.and_then(|(inside, _)| {
            inside
                .split(',')
                .map(str::trim)
                .filter(|number| !number.is_empty())
                .map(|number| number.parse().ok())
                .collect()
        });
        let dimensions = dimensions.ok_or_else(|| wrong("the length of each dimension"))?;
        Ok(Self { file, kind, width, dimensions, start, header })
    }

    /// Returns the error that something else was expected of the header.
    pub fn wrong(&self, path: &Path, expected: &str) -> ImportError {
        ImportError::format(path, format!("expected {expected}, found the header {}", self.header))
    }

    /// Checks that the file has all numbers of the array.
    ///
    /// # Errors
    /// If it has not, or cannot be read.
    pub fn check_length(&self, path: &Path) -> Result<(), ImportError> {
        let width = self.width as u64;
        let needed = self.dimensions.iter().fold(width, |bytes, count| bytes.saturating_mul(*count));
        let available = self.file.metadata().map_err(ImportError::io(path))?.len().saturating_sub(self.start);
        if available < needed {
            let expected = format!("{needed} bytes of numbers after its header, which has {available}");
            return Err(self.wrong(path, &expected));
        }
        Ok(())
    }
}

/// Returns the bytes before the numbers of an array: a header of version 1 that ends at a multiple of `align` bytes, a
/// multiple of 64 up to 65536. The shape must have few dimensions.
pub fn header_bytes(kind: char, width: usize, dimensions: &[u64], align: usize) -> Vec<u8> {
    let shape: String = dimensions.iter().map(|count| format!("{count}, ")).collect();
    let text = format!("{{'descr': '<{kind}{width}', 'fortran_order': False, 'shape': ({shape}), }}");
    let total = (10 + text.len() + 1).next_multiple_of(align);
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(((total - 10) as u16).to_le_bytes());
    bytes.extend(text.into_bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Reads the header. Returns its text and the offset of the array.
fn header(file: &File, path: &Path) -> Result<(String, u64), ImportError> {
    let mut first = [0; 12];
    file.read_exact_at(&mut first, 0).map_err(ImportError::io(path))?;
    if !first.starts_with(b"\x93NUMPY") {
        return Err(ImportError::format(path, "expected a NumPy file (.npy), found other bytes"));
    }
    let (bytes, at) = match first[6] {
        1 => (u64::from(u16::from_le_bytes([first[8], first[9]])), 10),
        _ => (u64::from(u32::from_le_bytes([first[8], first[9], first[10], first[11]])), 12),
    };
    if bytes > MAX_HEADER_BYTES {
        return Err(ImportError::format(
            path,
            format!("expected a header of at most {MAX_HEADER_BYTES} bytes, found {bytes}"),
        ));
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(&mut text, at).map_err(ImportError::io(path))?;
    Ok((String::from_utf8_lossy(&text).trim().to_owned(), at + bytes))
}

/// Returns a scalar value of the header dictionary.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let rest = header.split_once(&format!("'{name}':"))?.1.trim_start();
    Some(rest.split([',', '}']).next()?.trim().trim_matches('\''))
}

/// Parses a type descriptor to the kind and the size in bytes.
fn number(descr: &str) -> Option<(char, usize)> {
    let mut letters = descr.chars();
    let (order, kind, width) = (letters.next()?, letters.next()?, letters.as_str().parse().ok()?);
    let known = matches!((kind, width), ('i' | 'u', 1 | 2 | 4 | 8) | ('f', 4 | 8));
    (known && (order == '<' || width == 1)).then_some((kind, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_other_than_little_endian_are_refused() {
        assert_eq!(
            (number("<i2"), number("|u1"), number(">i2"), number("<c8")),
            (Some(('i', 2)), Some(('u', 1)), None, None)
        );
    }

    #[test]
    fn emitted_header_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for (dimensions, align) in [(&[3, 5][..], 64), (&[1 << 40, 1 << 40], 4096), (&[15], 128)] {
            let bytes = header_bytes('f', 4, dimensions, align);
            std::fs::write(&path, [&bytes[..], &[0; 59]].concat()).unwrap();
            let array = Array::open(&path).unwrap();
            assert_eq!((array.kind, array.width, array.start as usize % align), ('f', 4, 0));
            assert_eq!((array.dimensions.as_slice(), array.start as usize), (dimensions, bytes.len()));
            let missing = array.check_length(&path).unwrap_err().to_string();
            assert!(missing.contains("after its header, which has 59"), "{missing}");
        }
    }
}
