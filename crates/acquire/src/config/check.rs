//! Settings that cannot be meant.

use super::{Align, Bytes, Nanoseconds, Settings};
use shotline_store::shot::MAX_LINKS;
use shotline_wire::shot::MAX_SHOTS;

/// No run, and no part of one, is asked to last longer: 30 years.
const MOST_SECONDS: f64 = 1e9;
/// More threads than any machine that this runs on has processors.
const MOST_THREADS: usize = 1024;

impl Settings {
    /// Refuses what cannot be meant, wherever it was written: flags have some of these checks of their own, keys of a
    /// file have not.
    pub fn check(&self) -> Result<(), String> {
        self.check_ranges()?;
        self.codec()?;
        self.check_source()?;
        if self.align_window.is_some() && self.align != Some(Align::Stamp) {
            return Err("--align-window is for stamps: add --align stamp".into());
        }
        let parts = self.out.as_ref().is_some_and(|outs| outs.len() > 1)
            || [self.roll_size, self.keep].iter().any(Option::is_some)
            || self.roll_seconds.is_some()
            || self.roll_shots.is_some();
        if self.align == Some(Align::Stamp) && (parts || self.pre_trigger.is_some()) {
            return Err("--align stamp records one plain file: rolling, several drives and --pre-trigger need links that share their numbers".into());
        }
        if self.compress_threads.is_some_and(|threads| threads > MOST_THREADS) {
            return Err(format!("expected at most {MOST_THREADS} threads that compress"));
        }
        if self.pre_trigger.is_none() && (self.post_trigger.is_some() || self.trigger.is_some()) {
            return Err("--post-trigger and --trigger say when to record beside --pre-trigger: add that one".into());
        }
        self.check_sink()
    }

    /// Refuses what the source that is named knows nothing of.
    fn check_source(&self) -> Result<(), String> {
        let of_listening = [
            ("--queue-pair", self.queue_pair.is_some(), "set-up assigns the queue pair of a probe"),
            ("--q-key", self.q_key.is_some(), "set-up assigns the key of a probe"),
            ("--pages", self.pages.is_some(), "a probe has no ring of pages"),
            ("--idle-s", self.idle_s.is_some(), "a probe says when it ends, and --seconds ends it"),
        ];
        if self.probe.is_some()
            && let Some((name, _, why)) = of_listening.into_iter().find(|(_, given, _)| *given)
        {
            return Err(format!("{name} is for a sender that is listened to (--listen): {why}, leave it out"));
        }
        if self.listen.is_some() && self.transmit_sequence.is_some() {
            return Err("--transmit-sequence is for a --probe: no other sender can be told its events".into());
        }
        Ok(())
    }

    /// Refuses to discard what is to be recorded.
    fn check_sink(&self) -> Result<(), String> {
        let recording = [
            ("--out", self.out.is_some()),
            ("--recycle", self.recycle == Some(true)),
            ("--durable", self.durable == Some(true)),
            ("--compress", self.compress.as_deref().is_some_and(|codec| codec != "none")),
            ("--capacity", self.capacity.is_some()),
            ("--roll-size", self.roll_size.is_some()),
            ("--roll-seconds", self.roll_seconds.is_some()),
            ("--roll-shots", self.roll_shots.is_some()),
            ("--keep", self.keep.is_some()),
            ("--pre-trigger", self.pre_trigger.is_some()),
        ];
        match recording.into_iter().find(|(_, given)| self.discard == Some(true) && *given) {
            Some((name, _)) => Err(format!("--discard keeps nothing, and {name} says how to record: leave one out")),
            None => Ok(()),
        }
    }

    /// These settings over those of a file, where to discard and to record exclude one another.
    pub fn over_file(self, file: Self) -> Self {
        let (discards, records) = (self.discard == Some(true), self.out.is_some());
        self.over(match (discards, records) {
            (true, _) => Self {
                out: None,
                recycle: None,
                durable: None,
                compress: None,
                compress_level: None,
                capacity: None,
                roll_size: None,
                roll_seconds: None,
                roll_shots: None,
                keep: None,
                pre_trigger: None,
                post_trigger: None,
                trigger: None,
                ..file
            },
            (false, true) => Self { discard: None, ..file },
            (false, false) => file,
        })
    }

    /// Refuses numbers that mean nothing: a zero is no way to say "without end".
    fn check_ranges(&self) -> Result<(), String> {
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        let ns = |time: Option<Nanoseconds>| time.map(|time| time.0);
        let whole = [
            ("--shots", self.shots, MAX_SHOTS),
            ("--capacity", self.capacity, MAX_SHOTS),
            ("--roll-shots", self.roll_shots, MAX_SHOTS),
            ("--samples", self.samples.map(u64::from), u32::MAX.into()),
            ("--channels", self.channels.map(u64::from), u16::MAX.into()),
            ("--bits", self.bits.map(u64::from), 64),
            ("--sample-rate-hz", self.sample_rate_hz.map(u64::from), u32::MAX.into()),
            ("--pages", self.pages.map(u64::from), u32::MAX.into()),
            ("--links", self.links.map(u64::from), u8::MAX.into()),
            ("--mtu", self.mtu.map(u64::from), u16::MAX.into()),
            ("--commit-ms", self.commit_ms, 60_000),
            ("--in-flight", self.in_flight.map(u64::from), 4096),
            ("--window", self.window, 1 << 20),
            ("--timeout-ms", self.timeout_ms, 3_600_000),
            ("--pool", bytes(self.pool), u64::MAX),
            ("--receive-buffer", bytes(self.receive_buffer), i32::MAX as u64),
            ("--roll-size", bytes(self.roll_size), u64::MAX),
            ("--keep", bytes(self.keep), u64::MAX),
            ("--align-window", ns(self.align_window), u64::MAX),
            ("--align-patience", ns(self.align_patience), u64::MAX),
            ("--quorum", self.quorum.map(|links| links as u64), MAX_LINKS as u64),
        ];
        for (name, value, most) in whole {
            if let Some(value) = value.filter(|value| !(1..=most).contains(value)) {
                return Err(match most {
                    u64::MAX => format!("expected {name} above 0, found {value}"),
                    _ => format!("expected {name} from 1 to {most}, found {value}"),
                });
            }
        }
        let real = [("--seconds", self.seconds), ("--idle-s", self.idle_s), ("--roll-seconds", self.roll_seconds)];
        for (name, value) in real {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= MOST_SECONDS)) {
                return Err(format!("expected {name} above 0, up to {MOST_SECONDS:e} s, found {value}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_recorded_is_not_discarded_unless_flags_overrule_a_file() {
        let of = |text: &str| toml::from_str::<Settings>(text).unwrap();
        let (discard, out) =
            (of("discard = true"), of("out = \"run.h5\"\nkeep = \"4GiB\"\npost_trigger = 1.0\npre_trigger = 1.0"));
        for text in [
            "out = \"run.h5\"",
            "durable = true",
            "compress = \"lz4\"",
            "capacity = 5",
            "roll_shots = 5",
            "pre_trigger = 1.0",
        ] {
            let both = of(&format!("discard = true\n{text}"));
            assert!(both.check().is_err_and(|error| error.starts_with("--discard keeps nothing")), "{text}");
        }
        assert_eq!(discard.clone().over_file(out.clone()).check(), Ok(()));
        assert_eq!(discard.clone().over_file(out.clone()).out, None);
        let recorded = of("out = \"other.h5\"").over_file(discard.clone());
        assert_eq!((recorded.check(), recorded.discard), (Ok(()), None));
        assert!(of("capacity = 5").over_file(discard).check().is_err(), "neither was said on the command line");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_file_too() {
        let check = |text: &str| toml::from_str::<Settings>(text).unwrap().check();
        assert_eq!(check("out = [\"a.h5\", \"b.h5\"]\npre_trigger = 1.0\npost_trigger = 2.0"), Ok(()));
        for (text, word) in [
            ("post_trigger = 2.0", "--pre-trigger"),
            ("compress = \"lz4\"\ncompress_threads = 100000", "threads"),
            ("compress = \"zstd\"\ncompress_level = 99", "level"),
            ("shots = 0", "--shots from 1"),
            ("seconds = 0.0", "--seconds above 0"),
            ("seconds = nan", "--seconds above 0"),
            ("idle_s = 0.0", "--idle-s above 0"),
            ("roll_seconds = 2e9", "--roll-seconds above 0"),
            ("window = 0", "--window from 1"),
            ("timeout_ms = 0", "--timeout-ms from 1"),
            ("timeout_ms = 18446744073710", "--timeout-ms from 1"),
            ("in_flight = 0", "--in-flight from 1"),
            ("in_flight = 5000", "--in-flight from 1 to 4096, found 5000"),
            ("commit_ms = 0", "--commit-ms from 1"),
            ("keep = 0", "--keep above 0, found 0"),
            ("receive_buffer = \"3GiB\"", "--receive-buffer from 1"),
            ("probe = \"[::1]:9\"\nqueue_pair = 17", "--queue-pair is for a sender that is listened to"),
            ("probe = \"[::1]:9\"\nq_key = 17", "--q-key is for a sender"),
            ("probe = \"[::1]:9\"\npages = 4", "--pages is for a sender"),
            ("probe = \"[::1]:9\"\nidle_s = 4.0", "--seconds"),
            ("listen = \"[::1]:9\"\ntransmit_sequence = [1, 2]", "--transmit-sequence is for a --probe"),
        ] {
            assert!(check(text).is_err_and(|error| error.contains(word)), "{text}");
        }
    }
}
