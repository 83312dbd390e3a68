//! Errors of earlier datagrams.

use std::io;

/// Makes a system call, and makes it again after an error. The next call of any kind on a connected socket reports an
/// ICMP message about an earlier datagram, once: a firewall that rejects it, for example. An error of the call itself
/// comes again.
pub(super) fn without_icmp<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    call().or_else(|error| if error.kind() == io::ErrorKind::WouldBlock { Err(error) } else { call() })
}
