//! Waiting for nodes.

use crate::node::Node;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use shotline_verbs::cm::Endpoint;
use std::time::Duration;

/// Longest sleep between two looks at the clock.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// Sleeps until a node has something to do.
pub(super) fn sleep<'a, P: Endpoint + 'a>(nodes: impl Iterator<Item = &'a Node<P>>) {
    let mut fds: Vec<_> = nodes.map(|node| PollFd::from_borrowed_fd(node.fd(), PollFlags::IN)).collect();
    let time = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as _ };
    // A signal ends the sleep early.
    let _ = rustix::event::poll(&mut fds, Some(&time));
}
