//! Detection of displays and targets that do nothing.

use std::time::{Duration, Instant};

/// Time without a sign that is reported.
const SILENCE: Duration = Duration::from_secs(2);

/// Watch over something that gives signs of life.
pub struct Watch {
    last_sign: Instant,
    is_reported: bool,
    /// Times that it was silent.
    pub silences: u64,
}

impl Watch {
    /// Begins to watch.
    pub fn new() -> Self {
        Self { last_sign: Instant::now(), is_reported: false, silences: 0 }
    }

    /// Notes a sign.
    pub fn sign(&mut self) {
        (self.last_sign, self.is_reported) = (Instant::now(), false);
    }

    /// Returns `true` if there was no sign since the last silence was reported.
    pub fn is_silent(&self) -> bool {
        self.is_reported
    }

    /// Returns the length of the silence, once for each: if it is longer than that which is reported and `usual`.
    pub fn silence(&mut self, usual: Duration) -> Option<Duration> {
        let silence = self.last_sign.elapsed();
        if self.is_reported || silence < SILENCE + usual {
            return None;
        }
        self.is_reported = true;
        self.silences += 1;
        Some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_silence_is_reported_once() {
        let mut watch = Watch::new();
        assert_eq!(watch.silence(Duration::from_secs(1000)), None);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        for silences in 1..3 {
            watch.last_sign = long_ago;
            assert!(watch.silence(Duration::from_secs(1)).is_some_and(|silence| silence.as_secs() >= 100));
            assert_eq!((watch.silence(Duration::ZERO), watch.silences), (None, silences));
            assert!(watch.is_silent());
            watch.sign();
            assert!(!watch.is_silent());
        }
    }
}
