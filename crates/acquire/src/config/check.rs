//! Settings that no run can have.

use super::choices::{Begin, Sender, Sink, is_capture};
use super::invalid::{Invalid, invalid};
use super::settings::{Key, Settings};
use super::units::{Bytes, Nanoseconds};
use super::values::{Align, Compression, queue_pair};
use crate::cpu;
use crate::sink::Policy;
use shotline_store::shot::MAX_LINKS;
use shotline_wire::framing::description::SetUp;
use shotline_wire::setup::Sequence;
use shotline_wire::shot::MAX_SHOTS;

/// Longest run, or part of one, in seconds: 30 years.
const MAX_SECONDS: f64 = 1e9;
/// Longest time around a trigger, in seconds.
const MAX_TRIGGER_S: f64 = 1e6;
/// More threads than any machine that this runs on has processors.
const MAX_THREADS: usize = 1024;

/// Settings that concern a file, and contradict `--discard`.
const RECORDING: [Key; 10] = [
    Key::out,
    Key::recycle,
    Key::durable,
    Key::compress,
    Key::capacity,
    Key::roll_size,
    Key::roll_seconds,
    Key::roll_shots,
    Key::keep,
    Key::pre_trigger,
];
/// Settings without a meaning where those of [`RECORDING`] are missing.
const BESIDE_RECORDING: [Key; 3] = [Key::compress_level, Key::post_trigger, Key::trigger];

/// Refuses where a rule is broken.
fn refuse_if(broken: bool, key: Key, message: impl Into<String>) -> Result<(), Invalid> {
    if broken { Err(invalid(key, message)) } else { Ok(()) }
}

impl Settings {
    /// Refuses what no run can have, wherever it was written. What depends on the probe or the machine's drives is refused
    /// later.
    ///
    /// # Errors
    /// For the first rule that is broken.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_ranges()?;
        self.codec()?;
        self.check_probe()?;
        self.check_alignment()?;
        self.check_threads()?;
        self.check_discard()?;
        self.check_triggers()?;
        let sink = self.sink()?;
        if let Sink::Capture(_) | Sink::Recording(_) = sink {
            self.check_captures()?;
        }
        match self.sender()? {
            Sender::Probe(_) => self.check_begin(),
            Sender::Listen(_) => self.check_listening(),
        }
    }

    /// These settings over those of a file, where to discard and to record exclude one another.
    pub(super) fn over_file(self, file: Self) -> Self {
        let (discards, records) = (self.discard == Some(true), self.out.is_some());
        self.over(match (discards, records) {
            (true, _) => file.without(&RECORDING).without(&BESIDE_RECORDING),
            (false, true) => file.without(&[Key::discard]),
            (false, false) => file,
        })
    }

    /// Refuses numbers out of range: 0 does not mean "without end".
    fn check_ranges(&self) -> Result<(), Invalid> {
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        let ns = |time: Option<Nanoseconds>| time.map(|time| time.0);
        let whole = [
            (Key::shots, self.shots, MAX_SHOTS),
            (Key::capacity, self.capacity, MAX_SHOTS),
            (Key::roll_shots, self.roll_shots, MAX_SHOTS),
            (Key::samples, self.samples.map(u64::from), u32::MAX.into()),
            (Key::channels, self.channels.map(u64::from), u16::MAX.into()),
            (Key::bits, self.bits.map(u64::from), 64),
            (Key::sample_rate_hz, self.sample_rate_hz.map(u64::from), u32::MAX.into()),
            (Key::pages, self.pages.map(u64::from), u32::MAX.into()),
            (Key::links, self.links.map(u64::from), MAX_LINKS as u64),
            (Key::mtu, self.mtu.map(u64::from), u16::MAX.into()),
            (Key::commit_ms, self.commit_ms, 60_000),
            (Key::in_flight, self.in_flight.map(u64::from), 4096),
            (Key::window, self.window, 1 << 20),
            (Key::timeout_ms, self.timeout_ms, 3_600_000),
            (Key::pool, bytes(self.pool), u64::MAX),
            (Key::receive_buffer, bytes(self.receive_buffer), i32::MAX as u64),
            (Key::roll_size, bytes(self.roll_size), u64::MAX),
            (Key::keep, bytes(self.keep), u64::MAX),
            (Key::align_window, ns(self.align_window), u64::MAX),
            (Key::align_patience, ns(self.align_patience), u64::MAX),
            (Key::quorum, self.quorum.map(|links| links as u64), MAX_LINKS as u64),
        ];
        for (key, value, most) in whole {
            let Some(value) = value.filter(|value| !(1..=most).contains(value)) else { continue };
            return Err(match most {
                u64::MAX => invalid(key, format!("expected {key} above 0, found {value}")),
                _ => invalid(key, format!("expected {key} from 1 to {most}, found {value}")),
            });
        }
        if let Some(first) = self.queue_pair {
            let last = self.links.unwrap_or(1).saturating_sub(1);
            queue_pair(first, 0).and(queue_pair(first, last)).map_err(|error| invalid(Key::queue_pair, error))?;
        }
        let real = [(Key::seconds, self.seconds), (Key::idle_s, self.idle_s), (Key::roll_seconds, self.roll_seconds)];
        for (key, value) in real {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= MAX_SECONDS)) {
                return Err(invalid(key, format!("expected {key} above 0, up to {MAX_SECONDS:e} s, found {value}")));
            }
        }
        for (key, value) in [(Key::pre_trigger, self.pre_trigger), (Key::post_trigger, self.post_trigger)] {
            if let Some(value) = value.filter(|value| !(0.0..=MAX_TRIGGER_S).contains(value)) {
                return Err(invalid(key, format!("expected {key} from 0 to {MAX_TRIGGER_S:e} s, found {value}")));
            }
        }
        Ok(())
    }

    /// Refuses what only senders without set-up need, beside a probe, and the other way round.
    fn check_probe(&self) -> Result<(), Invalid> {
        let of_listening = [
            (Key::queue_pair, "set-up assigns the queue pair of a probe"),
            (Key::q_key, "set-up assigns the key of a probe"),
            (Key::pages, "a probe has no ring of pages"),
            (Key::idle_s, "a probe says when it ends, and --seconds ends it"),
        ];
        if self.probe.is_some()
            && let Some((key, why)) = of_listening.into_iter().find(|(key, _)| self.has(*key))
        {
            let message = format!("{key} is for a sender that is listened to (--listen): {why}, leave it out");
            return Err(invalid(key, message));
        }
        refuse_if(
            self.listen.is_some() && self.transmit_sequence.is_some(),
            Key::transmit_sequence,
            "--transmit-sequence is for a --probe: no other sender can be told its events",
        )?;
        let sequence = self.transmit_sequence.as_deref().map_or(Ok(Sequence::NONE), Sequence::new);
        sequence.map(drop).map_err(|error| invalid(Key::transmit_sequence, error.to_string()))
    }

    /// Refuses two ways of beginning a shot, and rates that cannot be asked for.
    fn check_begin(&self) -> Result<(), Invalid> {
        self.framing().for_set_up().map_err(|error| invalid(Key::framing, error.to_string()))?;
        match self.begin()? {
            // The rate follows from the shape of a shot, which the probe knows.
            Begin::Bandwidth(gbps) => refuse_if(
                !(gbps > 0.0 && gbps.is_finite()),
                Key::gbps,
                format!("expected --gbps above 0, found {gbps}"),
            ),
            begin @ (Begin::FreeRunning | Begin::ExternalTrigger | Begin::Rate(_)) => begin.mode(1.0).map(drop),
        }
    }

    /// Refuses what a sender without set-up cannot be asked for, and framings that only set-up makes sense of.
    fn check_listening(&self) -> Result<(), Invalid> {
        let asked = [
            (Key::rate_hz, self.rate_hz.is_some()),
            (Key::gbps, self.gbps.is_some()),
            (Key::external_trigger, self.external_trigger == Some(true)),
            (Key::bind, self.bind.is_some()),
        ];
        if let Some((key, _)) = asked.into_iter().find(|(_, given)| *given) {
            return Err(invalid(
                key,
                "--rate-hz, --gbps, --external-trigger and --bind are for a --probe: a sender that is listened to does as it does, and --listen is the address",
            ));
        }
        let (framing, links) = (self.framing(), self.links.unwrap_or(1));
        match framing.description().set_up {
            SetUp::Required { .. } => Err(invalid(
                Key::framing,
                format!(
                    "{framing} packets say nothing but a count, and only set-up tells where it begins: record from a --probe, or have the sender use ud"
                ),
            )),
            SetUp::Learned => refuse_if(
                links != 1 && !framing.description().shares_address,
                Key::links,
                format!("a {framing} sender is one link: run one receiver for each address"),
            ),
            SetUp::Optional { .. } => Ok(()),
        }
    }

    /// Refuses ways to align that the rest of the settings does not allow.
    fn check_alignment(&self) -> Result<(), Invalid> {
        let by_stamp = self.align == Some(Align::Stamp);
        refuse_if(
            self.align_window.is_some() && !by_stamp,
            Key::align_window,
            "--align-window is for stamps: add --align stamp",
        )?;
        let parts = self.out.as_ref().is_some_and(|outs| outs.len() > 1) || self.rolls();
        refuse_if(
            by_stamp && (parts || self.pre_trigger.is_some()),
            Key::align,
            "--align stamp records one plain file: rolling, several drives and --pre-trigger need links that share their numbers",
        )
    }

    /// Refuses to discard what is to be recorded.
    fn check_discard(&self) -> Result<(), Invalid> {
        let declined = |key: &Key| match key {
            Key::recycle => self.recycle == Some(false),
            Key::durable => self.durable == Some(false),
            Key::compress => self.compress == Some(Compression::None),
            _ => false,
        };
        match RECORDING.into_iter().find(|key| self.has(*key) && !declined(key)) {
            Some(key) if self.discard == Some(true) => {
                let message = format!("--discard keeps nothing, and {key} says how to record: leave one out");
                Err(invalid(key, message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what triggers need and do not have.
    fn check_triggers(&self) -> Result<(), Invalid> {
        for key in [Key::post_trigger, Key::trigger] {
            refuse_if(
                self.pre_trigger.is_none() && self.has(key),
                key,
                "--post-trigger and --trigger say when to record beside --pre-trigger: add that one",
            )?;
        }
        refuse_if(
            self.sequential == Some(true) && (self.policy != Some(Policy::Block) || self.pre_trigger.is_some()),
            Key::sequential,
            "--sequential stops receiving while the drive writes: that needs --policy block, on a transport with credits, and no --pre-trigger",
        )
    }

    /// Refuses a processor that this program cannot run on, and more threads than there are processors anywhere.
    fn check_threads(&self) -> Result<(), Invalid> {
        if let Some(threads) = self.compress_threads.filter(|threads| *threads > MAX_THREADS) {
            let message = format!("expected --compress-threads of at most {MAX_THREADS}, found {threads}");
            return Err(invalid(Key::compress_threads, message));
        }
        self.cpu.map_or(Ok(()), cpu::check).map_err(|error| invalid(Key::cpu, error))
    }

    /// Refuses what a packet capture cannot do.
    fn check_captures(&self) -> Result<(), Invalid> {
        let outs = self.out.as_deref().unwrap_or_default();
        let layout = [
            (Key::pre_trigger, self.pre_trigger.is_some()),
            (Key::compress, self.compress.is_some()),
            (Key::durable, self.durable == Some(true)),
            (Key::recycle, self.recycle == Some(true)),
            (Key::buffered, self.buffered == Some(true)),
            (Key::capacity, self.capacity.is_some()),
            (Key::commit_ms, self.commit_ms.is_some()),
            (Key::out, outs.len() > 1 || self.rolls()),
        ];
        match layout.into_iter().find(|(_, given)| *given) {
            Some((key, _)) if outs.iter().any(|out| is_capture(out)) => Err(invalid(
                key,
                "a packet capture is one plain file: it has no layout, commits or durability, no compression, rolling or trigger: record to .h5, and make the capture from it with `shotline export`",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_recorded_is_not_discarded_unless_flags_overrule_a_file() {
        let of = |text: &str| toml::from_str::<Settings>(&format!("listen = \"[::1]:9\"\n{text}")).unwrap();
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
            assert!(both.check().is_err_and(|error| error.message.starts_with("--discard keeps nothing")), "{text}");
        }
        assert_eq!(discard.clone().over_file(out.clone()).check(), Ok(()));
        assert_eq!(discard.clone().over_file(out.clone()).out, None);
        let recorded = of("out = \"other.h5\"").over_file(discard.clone());
        assert_eq!((recorded.check(), recorded.discard), (Ok(()), None));
        assert!(of("capacity = 5").over_file(discard).check().is_err(), "neither was said on the command line");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_file_too() {
        let check = |text: &str| {
            let source =
                if text.contains("probe =") || text.contains("listen =") { "" } else { "listen = \"[::1]:9\"\n" };
            let sink = if text.contains("out =") { "" } else { "discard = true\n" };
            toml::from_str::<Settings>(&format!("{source}{sink}{text}")).unwrap().check()
        };
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
            assert!(check(text).is_err_and(|error| error.message.contains(word)), "{text}");
        }
    }
}
