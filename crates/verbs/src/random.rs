//! Numbers and keys from the operating system's random source, so that an attacker cannot guess them.

use rustix::rand::{GetRandomFlags, getrandom};
use shotline_transport::IoError;

/// Range of usable queue pair numbers: 0 and 1 are the management queue pairs, 0xFFFFFF is for multicast groups (IBTA
/// volume 1, 3.5.10).
const QP_NUMBERS: std::ops::Range<u32> = 2..0x00FF_FFFF;

/// Returns bytes of the operating system's random source.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], IoError> {
    let mut bytes = [0; N];
    let failed = |source: std::io::Error| IoError::System {
        what: "cannot read the operating system's random source".into(),
        source,
        hint: "",
    };
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        Err(source) => Err(failed(source.into())),
    }
}

/// Returns a random 24-bit queue pair number that is not in use.
pub(crate) fn fresh_number(is_used: impl Fn(u32) -> bool) -> Result<u32, IoError> {
    first_free(bytes, is_used)
}

/// Returns a random Q_Key with its high bit clear: that bit is for privileged queue pairs (IBTA volume 1, 3.5.3).
pub(crate) fn fresh_q_key() -> Result<u32, IoError> {
    Ok(u32::from_be_bytes(bytes()?) & 0x7FFF_FFFF)
}

/// Draws numbers until one is valid and not in use.
fn first_free(
    mut draw: impl FnMut() -> Result<[u8; 3], IoError>,
    is_used: impl Fn(u32) -> bool,
) -> Result<u32, IoError> {
    loop {
        let [a, b, c] = draw()?;
        let number = u32::from_be_bytes([0, a, b, c]);
        if QP_NUMBERS.contains(&number) && !is_used(number) {
            return Ok(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_used_numbers_are_drawn_again() {
        for (draws, expected) in [
            ([[0, 0, 0], [0, 0, 1], [0, 0, 2]], 2),
            ([[255, 255, 255], [255, 255, 255], [255, 255, 254]], 0xFF_FFFE),
            ([[0, 1, 0], [0, 1, 0], [1, 2, 3]], 0x01_0203),
        ] {
            let mut draws = draws.into_iter();
            let draw = || Ok(draws.next().expect("no more than these are drawn"));
            assert_eq!(first_free(draw, |number| number == 0x100).unwrap(), expected);
        }
    }

    #[test]
    fn fresh_numbers_and_keys_are_in_range() {
        for _ in 0..100 {
            assert!(QP_NUMBERS.contains(&fresh_number(|_| false).unwrap()));
            assert!(fresh_q_key().unwrap() >> 31 == 0);
        }
    }
}
