//! Rules for valid settings.

use super::choices::{Sender, is_capture};
use super::invalid::{InvalidSetting, invalid};
use super::resolved::ResolvedSettings;
use super::settings::{Key, Settings};
use super::units::{Bytes, Nanoseconds};
use super::values::{Align, Compression, queue_pair};
use crate::cpu;
use crate::sink::Policy;
use shotline_backends::{Options, Role, Transport};
use shotline_memory::RegionKind;
use shotline_store::shot::MAX_LINKS;
use shotline_verbs::ud::QueuePair;
use shotline_wire::framing::Kind;
use shotline_wire::framing::description::{Keys, SetUp};
use shotline_wire::setup::Sequence;
use shotline_wire::shot::MAX_SHOTS;

/// Maximum duration of a run, or part of one, in seconds: 30 years.
const MAX_SECONDS: f64 = 1e9;
/// Maximum time around a trigger, in seconds.
const MAX_TRIGGER_S: f64 = 1e6;
/// Maximum number of threads: more than the processors of any machine that this runs on.
const MAX_THREADS: usize = 1024;

/// Settings that can only be requested from a probe.
const PROBE_ONLY: [Key; 5] = [Key::rate_hz, Key::gbps, Key::external_trigger, Key::bind, Key::transmit_sequence];
/// Settings of a sender without set-up, and why a probe does not need them.
const LISTEN_ONLY: [(Key, &str); 4] = [
    (Key::queue_pair, "set-up assigns the queue pair of a probe"),
    (Key::q_key, "set-up assigns the key of a probe"),
    (Key::pages, "a probe has no ring of pages"),
    (Key::idle_s, "a probe reports its end, and --seconds limits the run"),
];
/// Start conditions of a probe's shots, which exclude each other.
const START_KEYS: [Key; 3] = [Key::rate_hz, Key::gbps, Key::external_trigger];
/// Settings that describe a sender with one of the built-in framings.
const FRAMING_KEYS: [Key; 9] = [
    Key::framing,
    Key::channels,
    Key::samples,
    Key::bits,
    Key::sample_format,
    Key::sample_rate_hz,
    Key::queue_pair,
    Key::q_key,
    Key::pages,
];
/// Settings that concern a file, and contradict `--discard`.
const RECORDING_KEYS: [Key; 10] = [
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
/// Settings without effect where those of [`RECORDING_KEYS`] are missing.
const RECORDING_OPTIONS: [Key; 3] = [Key::compress_level, Key::post_trigger, Key::trigger];
/// Settings of recordings that packet captures do not support.
const NOT_FOR_CAPTURES: [Key; 11] = [
    Key::pre_trigger,
    Key::compress,
    Key::durable,
    Key::recycle,
    Key::buffered,
    Key::capacity,
    Key::commit_ms,
    Key::roll_size,
    Key::roll_seconds,
    Key::roll_shots,
    Key::keep,
];

/// Returns an error if a rule is broken.
fn refuse_if(broken: bool, key: Key, message: impl Into<String>) -> Result<(), InvalidSetting> {
    if broken { Err(invalid(key, message)) } else { Ok(()) }
}

/// Returns the kind of a pool that a device in another process writes, `None` if there is no such kind.
fn shared_pool(kind: &RegionKind) -> Option<RegionKind> {
    kind.shareable_kind().filter(RegionKind::is_mapped)
}

impl Settings {
    /// Checks settings and returns the choices that they make. Rules that depend on the probe or the machine's drives
    /// are checked later.
    ///
    /// # Errors
    /// For the first broken rule.
    pub fn check(&self) -> Result<ResolvedSettings<'_>, InvalidSetting> {
        let (sender, framing) = (self.sender()?, self.framing());
        self.check_ranges()?;
        let queue_pair = match sender {
            Sender::Probe(_) => {
                self.check_probe()?;
                None
            }
            Sender::Listen(_) => {
                self.check_listening()?;
                self.check_framing()?
            }
        };
        let resolved = self.resolve(sender, framing.description().large_shots)?;
        Ok(ResolvedSettings { framing: Some(framing), queue_pair, ..resolved })
    }

    /// Checks settings for a sender that the caller describes; `large_shots` selects the defaults for large shots.
    ///
    /// # Errors
    /// For the first broken rule, and if settings also describe the sender.
    pub fn check_described(&self, large_shots: bool) -> Result<ResolvedSettings<'_>, InvalidSetting> {
        let sender = self.sender()?;
        refuse_if(
            self.probe.is_some(),
            Key::probe,
            "set-up does not support a framing of the caller: specify the local address that the sender sends to with --listen",
        )?;
        if let Some(key) = FRAMING_KEYS.into_iter().find(|key| self.has(*key)) {
            let message = format!("{key} describes a sender that the caller has already described: omit it");
            return Err(invalid(key, message));
        }
        self.check_ranges()?;
        self.check_listening()?;
        self.resolve(sender, large_shots)
    }

    /// Checks the rules that do not depend on the sender, and returns the choices.
    fn resolve(&self, sender: Sender, large_shots: bool) -> Result<ResolvedSettings<'_>, InvalidSetting> {
        self.check_alignment()?;
        self.check_threads()?;
        self.check_discard()?;
        self.check_triggers()?;
        self.check_captures()?;
        self.check_transport()?;
        self.check_pool_memory()?;
        Ok(ResolvedSettings {
            settings: self,
            sender,
            framing: None,
            queue_pair: None,
            shot_start: self.shot_start()?,
            sink: self.sink()?,
            codec: self.codec()?,
            pool_bytes: self.pool_bytes(large_shots),
            in_flight: self.writes_in_flight(large_shots),
        })
    }

    /// Returns these settings over those of a file. Keys of the file that contradict a flag are ignored.
    pub(super) fn over_file(self, file: Self) -> Self {
        let listen_only = LISTEN_ONLY.map(|(key, _)| key);
        let start_given = START_KEYS.into_iter().any(|key| self.requests(key));
        let rules: [(bool, &[Key]); 8] = [
            (self.discard == Some(true), &RECORDING_KEYS),
            (self.discard == Some(true), &RECORDING_OPTIONS),
            (self.out.is_some(), &[Key::discard]),
            (self.probe.is_some(), &[Key::listen]),
            (self.probe.is_some(), &listen_only),
            (self.listen.is_some(), &[Key::probe]),
            (self.listen.is_some(), &PROBE_ONLY),
            (start_given, &START_KEYS),
        ];
        let contradicted = rules.into_iter().filter(|(is_given, _)| *is_given);
        self.over(contradicted.fold(file, |file, (_, keys)| file.without(keys)))
    }

    /// Returns `true` if a setting is given and requests something, which `false` and `none` do not.
    fn requests(&self, key: Key) -> bool {
        let declined = match key {
            Key::external_trigger => self.external_trigger == Some(false),
            Key::recycle => self.recycle == Some(false),
            Key::durable => self.durable == Some(false),
            Key::buffered => self.buffered == Some(false),
            Key::compress => self.compress == Some(Compression::None),
            _ => false,
        };
        self.has(key) && !declined
    }

    /// Returns the whole numbers with their maxima. The minimum is 1.
    pub(super) fn whole_ranges(&self) -> [(Key, Option<u64>, u64); 21] {
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        let ns = |time: Option<Nanoseconds>| time.map(|time| time.0);
        [
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
            (Key::align_timeout, ns(self.align_timeout), u64::MAX),
            (Key::quorum, self.quorum.map(|links| links as u64), MAX_LINKS as u64),
        ]
    }

    /// Checks the ranges of numbers: 0 does not mean "unlimited".
    pub(super) fn check_ranges(&self) -> Result<(), InvalidSetting> {
        for (key, value, max) in self.whole_ranges() {
            let Some(value) = value.filter(|value| !(1..=max).contains(value)) else { continue };
            return Err(match max {
                u64::MAX => invalid(key, format!("expected {key} above 0, found {value}")),
                _ => invalid(key, format!("expected {key} from 1 to {max}, found {value}")),
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

    /// Refuses settings that only senders without set-up need, and those that a probe does not support.
    fn check_probe(&self) -> Result<(), InvalidSetting> {
        if let Some((key, why)) = LISTEN_ONLY.into_iter().find(|(key, _)| self.has(*key)) {
            let message = format!("{key} is for a sender without set-up (--listen): {why}; omit it");
            return Err(invalid(key, message));
        }
        self.framing().for_set_up().map_err(|error| invalid(Key::framing, error.to_string()))?;
        self.links.map_or(Ok(()), |links| self.check_quorum(links))?;
        let sequence = self.transmit_sequence.as_deref().map_or(Ok(Sequence::NONE), Sequence::new);
        sequence.map(drop).map_err(|error| invalid(Key::transmit_sequence, error.to_string()))
    }

    /// Refuses settings that a sender without set-up does not support.
    fn check_listening(&self) -> Result<(), InvalidSetting> {
        match PROBE_ONLY.into_iter().find(|key| self.requests(*key)) {
            Some(key) => Err(invalid(
                key,
                format!(
                    "{key} is for a --probe: a sender without set-up takes no requests, and --listen is the local address"
                ),
            )),
            None => self.check_quorum(self.links.unwrap_or(1)),
        }
    }

    /// Refuses framings that need set-up, and returns the queue pair in the packets, if the framing has one.
    fn check_framing(&self) -> Result<Option<QueuePair>, InvalidSetting> {
        let (framing, links) = (self.framing(), self.links.unwrap_or(1));
        let description = framing.description();
        match description.set_up {
            SetUp::Required { .. } => Err(invalid(
                Key::framing,
                format!(
                    "{framing} packets carry only a count, and only set-up specifies its start: record from a --probe, or use the framing ud"
                ),
            )),
            SetUp::Learned if links != 1 && !description.shares_address => {
                Err(invalid(Key::links, format!("a {framing} sender has one link: run one receiver for each address")))
            }
            SetUp::Learned => Ok(None),
            SetUp::Optional { .. } => match description.keys {
                Keys::None | Keys::QueuePair => Ok(None),
                Keys::QueuePairAndQKey => self.configured_queue_pair(framing).map(Some),
            },
        }
    }

    /// Returns the configured queue pair and key of a sender's packets.
    fn configured_queue_pair(&self, framing: Kind) -> Result<QueuePair, InvalidSetting> {
        let missing = |key| {
            invalid(
                key,
                format!(
                    "specify the queue pair and key that the sender's {framing} packets contain with --queue-pair and --q-key: other packets are dropped"
                ),
            )
        };
        let number = self.queue_pair.ok_or_else(|| missing(Key::queue_pair))?;
        let q_key = self.q_key.ok_or_else(|| missing(Key::q_key))?;
        Ok(QueuePair { number, q_key })
    }

    /// Refuses a quorum above the number of links.
    pub(crate) fn check_quorum(&self, links: u8) -> Result<(), InvalidSetting> {
        match self.quorum.filter(|quorum| *quorum > usize::from(links)) {
            None => Ok(()),
            Some(quorum) => Err(invalid(
                Key::quorum,
                format!(
                    "expected a quorum of at most {links}, the number of links, found {quorum}: no event would be recorded"
                ),
            )),
        }
    }

    /// Returns `true` if the transport certainly has a receive buffer of configurable size, on any machine.
    pub(crate) fn has_receive_buffer(&self) -> bool {
        let options = Options { receive_buffer: Some(1), ..Options::default() };
        let transport = self.transport.clone().unwrap_or_default();
        transport != Transport::Auto && transport.check(Role::Receiver, &options).is_ok()
    }

    /// Refuses a transport that is not in this build, and flags that the transport does not use.
    fn check_transport(&self) -> Result<(), InvalidSetting> {
        let (transport, none) = (self.transport.clone().unwrap_or_default(), Options::default());
        let given = [
            (Key::transport, none.clone()),
            (Key::mtu, Options { mtu: self.mtu, ..none.clone() }),
            (Key::peer_mac, Options { peer_mac: self.peer_mac.clone(), ..none.clone() }),
            (Key::eal, Options { eal: self.eal.clone(), ..none.clone() }),
            (Key::receive_buffer, Options { receive_buffer: self.receive_buffer.map(|bytes| bytes.0), ..none }),
        ];
        given.into_iter().try_for_each(|(key, options)| {
            transport.check(Role::Receiver, &options).map_err(|error| invalid(key, error))
        })
    }

    /// Refuses memory for the pool that another process cannot write, if the transport needs that.
    fn check_pool_memory(&self) -> Result<(), InvalidSetting> {
        let kind = self.pool_memory.clone().unwrap_or(RegionKind::Heap);
        refuse_if(
            self.pool_region_kind().is_none(),
            Key::pool_memory,
            format!("expected memfd, found {kind}: with this transport a device in another process writes the shots"),
        )
    }

    /// Returns the kind of the pool's memory. `None` if a device in another process must write it and cannot.
    pub(crate) fn pool_region_kind(&self) -> Option<RegionKind> {
        let kind = self.pool_memory.clone().unwrap_or(RegionKind::Heap);
        let is_shared = self.transport.as_ref().is_some_and(Transport::writes_shared_memory);
        if is_shared { shared_pool(&kind) } else { Some(kind) }
    }

    /// Refuses alignment settings that the other settings exclude.
    fn check_alignment(&self) -> Result<(), InvalidSetting> {
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
            "--align stamp records one plain file: rolling, several drives and --pre-trigger need links with common shot numbers",
        )
    }

    /// Refuses to discard shots that other settings would record.
    fn check_discard(&self) -> Result<(), InvalidSetting> {
        match RECORDING_KEYS.into_iter().find(|key| self.requests(*key)) {
            Some(key) if self.discard == Some(true) => {
                let message = format!("--discard stores nothing, and {key} is for recordings: omit one of them");
                Err(invalid(key, message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses settings of triggers without `--pre-trigger`.
    fn check_triggers(&self) -> Result<(), InvalidSetting> {
        for key in [Key::post_trigger, Key::trigger] {
            refuse_if(
                self.pre_trigger.is_none() && self.has(key),
                key,
                "--post-trigger and --trigger are used together with --pre-trigger: add --pre-trigger",
            )?;
        }
        refuse_if(
            self.sequential == Some(true) && (self.policy != Some(Policy::Block) || self.pre_trigger.is_some()),
            Key::sequential,
            "--sequential stops receiving while the drive writes: use it with --policy block, on a transport with credits, and without --pre-trigger",
        )
    }

    /// Refuses a processor that this program cannot run on, and an excessive number of threads.
    fn check_threads(&self) -> Result<(), InvalidSetting> {
        if let Some(threads) = self.compress_threads.filter(|threads| *threads > MAX_THREADS) {
            let message = format!("expected --compress-threads of at most {MAX_THREADS}, found {threads}");
            return Err(invalid(Key::compress_threads, message));
        }
        self.cpu.map_or(Ok(()), cpu::check).map_err(|error| invalid(Key::cpu, error))
    }

    /// Refuses settings that a packet capture does not support.
    fn check_captures(&self) -> Result<(), InvalidSetting> {
        let outs = self.out.as_deref().unwrap_or_default();
        if !outs.iter().any(|out| is_capture(out)) {
            return Ok(());
        }
        let unfit = NOT_FOR_CAPTURES.into_iter().find(|key| self.requests(*key));
        match unfit.or((outs.len() > 1).then_some(Key::out)) {
            None => Ok(()),
            Some(key) => Err(invalid(
                key,
                "a packet capture is one plain file without layout, commits, durability, compression, rolling and triggers: record to .h5, and create the capture from it with `shotline export`",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
