//! Where frames come from, and where those that software sends go.

/// A frame for the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its bytes with FCS.
    pub bytes: Vec<u8>,
    /// Time since the first frame, in nanoseconds, before which it does not begin.
    pub at_ns: u64,
}

/// The other end of the wire as a sender.
pub trait Source {
    /// Returns the next frame, `None` if there is none now.
    ///
    /// # Errors
    /// If there should be one, but it cannot be had.
    fn next(&mut self) -> Result<Option<Incoming>, String>;

    /// Returns `true` if no more frames will come.
    fn is_over(&self) -> bool;

    /// Discards the frames that came while no software received. The default does nothing: a capture waits for software.
    fn discard(&mut self) {}

    /// Returns the TAI time that the card has at least while it is idle: 0 unless the source goes on in real time.
    fn now_ns(&self) -> u64;
}

/// The other end of the wire as a receiver.
pub trait Sink {
    /// Takes a frame with FCS that software sent through a queue at a TAI time.
    ///
    /// # Errors
    /// If it cannot be stored or passed on.
    fn sent(&mut self, queue: usize, time_ns: u64, frame: &[u8]) -> Result<(), String>;
}
