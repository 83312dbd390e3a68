//! Helpers of the checks.

use crate::IoError;
use crate::carrier::{Carrier, wait};
use shotline_conformance::{Failure, ensure, ensure_eq, failed};
use shotline_random::SplitMix64;
use std::time::{Duration, Instant};

/// Time after which a check fails that waits for something. Only a check that hangs reaches it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Time of one sleep of a check that also looks at the clock.
const SLEEP: Duration = Duration::from_millis(50);

/// Returns the contents of a datagram, which differ for each number.
pub(super) fn contents(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SplitMix64::new(number).fill_bytes(&mut bytes);
    bytes
}

/// Waits until the path has space for a datagram.
pub(super) fn await_space(carrier: &mut impl Carrier) -> Result<(), Failure> {
    let end = Instant::now() + TIMEOUT;
    while carrier.remaining() == 0 {
        ensure!(Instant::now() < end, "the path stays full");
        carrier.flush().map_err(failed("pass datagrams on"))?;
        wait(carrier, SLEEP).map_err(failed("wait"))?;
    }
    Ok(())
}

/// Builds a datagram, once there is space for it, and completes it.
pub(super) fn build(carrier: &mut impl Carrier, bytes: &[u8]) -> Result<(), Failure> {
    await_space(carrier)?;
    carrier.append(bytes);
    carrier.finish().map_err(failed("complete a datagram"))
}

/// Builds a datagram and passes it on.
pub(super) fn send(carrier: &mut impl Carrier, bytes: &[u8]) -> Result<(), Failure> {
    build(carrier, bytes)?;
    carrier.flush().map_err(failed("pass datagrams on"))
}

/// Calls `with` with the next datagram, once it has arrived, and returns the result.
pub(super) fn receive_with<T>(carrier: &mut impl Carrier, with: impl FnOnce(&mut [u8]) -> T) -> Result<T, Failure> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(bytes) = carrier.receive().map_err(failed("receive"))? {
            return Ok(with(bytes));
        }
        ensure!(Instant::now() < end, "no datagram arrives");
        carrier.flush().map_err(failed("pass datagrams on"))?;
        wait(carrier, SLEEP).map_err(failed("wait"))?;
    }
}

/// Returns a copy of the next datagram, once it has arrived.
pub(super) fn receive(carrier: &mut impl Carrier) -> Result<Vec<u8>, Failure> {
    receive_with(carrier, |bytes| bytes.to_vec())
}

/// Fails unless the next datagram is this one.
pub(super) fn expect(carrier: &mut impl Carrier, expected: &[u8], what: &str) -> Result<(), Failure> {
    let found = receive(carrier)?;
    ensure_eq!(found.len(), expected.len(), "length of {what}");
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    ensure!(differs.is_none(), "{what} differs at byte {}", differs.unwrap_or_default());
    Ok(())
}

/// Fails unless nothing more arrives.
pub(super) fn expect_nothing(carrier: &mut impl Carrier) -> Result<(), Failure> {
    for _ in 0..3 {
        let found = carrier.receive().map_err(failed("receive"))?;
        ensure!(found.is_none(), "a datagram arrives that was not sent");
        wait(carrier, Duration::from_millis(1)).map_err(failed("wait"))?;
    }
    Ok(())
}

/// Returns `true` if the carrier reports that the peer has gone.
pub(super) fn has_gone(carrier: &mut impl Carrier) -> Result<bool, Failure> {
    match carrier.receive() {
        Ok(None) => Ok(false),
        Ok(Some(_)) => Err("a datagram arrives that was not sent".into()),
        Err(IoError::Disconnected) => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}
