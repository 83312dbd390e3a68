//! Plans: instruments, receivers and the stages that data pass. A [`Plan`] is always valid.

use crate::formula::bus::Pcie;
use crate::formula::link::Framing;
use crate::formula::queue::Stall;
use crate::formula::shot;
use shotline_wire::shot::Geometry;

/// Model of a measurement system.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Title.
    pub title: String,
    /// Number of the paper to compare with ([`crate::papers`]).
    pub paper: Option<u8>,
    /// Stages work concurrently on consecutive bursts.
    pub pipelined: bool,
    /// Instruments.
    pub source: Source,
    /// Receivers.
    pub receiver: Receiver,
    /// Stages that all data pass, in order.
    pub stages: Vec<Stage>,
    /// Trigger rates to evaluate, in Hz.
    pub sweep_hz: Vec<f64>,
    /// Packet lengths to evaluate, in bytes.
    pub lengths: Vec<u32>,
}

/// Instruments that send bursts.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Number of instruments.
    pub probes: u32,
    /// Links per instrument; each link is a stream.
    pub links: u32,
    /// Burst of one link.
    pub burst: Burst,
    /// Start of bursts.
    pub start: Start,
    /// All instruments start bursts simultaneously; otherwise with random phases.
    pub synchronised: bool,
    /// Bursts have Poisson arrivals instead of a fixed period.
    pub random: bool,
    /// Buffer per link in the instrument for bursts that the first stage has not accepted, in bytes.
    pub buffer_bytes: f64,
}

/// Unit of data that a link sends at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Burst {
    /// A shot.
    Shot {
        /// Geometry of the shot.
        geometry: Geometry,
        /// Time from a shot's last sample to the next shot's first in seconds.
        dead_time_s: f64,
    },
    /// A plain transfer.
    Transfer {
        /// Length in bytes.
        bytes: u64,
        /// Length of all packets but the last, in bytes.
        packet: u32,
    },
}

/// Start of bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// At the instrument's own pace; plain transfers as fast as the slowest stage accepts them.
    Free,
    /// By a trigger or timer with this rate in Hz.
    Periodic(f64),
}

/// Parameters of receivers that do not belong to a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Number of receivers; instrument `i` sends to receiver `i % count`.
    pub count: u32,
    /// Maximum number of shots per stream in assembly, in addition to the newest.
    pub window: u32,
    /// Maximum number of shots in flight to the file.
    pub in_flight: u32,
    /// Maximum time for which the receive thread may be preempted, in seconds.
    pub preempted_s: f64,
    /// Maximum stall of the stages after assembly, which consume the shots, in seconds.
    pub consumer_stall_s: f64,
    /// Memory for shot buffers per receiver in bytes; `None` for the computed requirement.
    pub pool_bytes: Option<f64>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Name.
    pub name: String,
    /// Kind, with the parameters of its formula.
    pub kind: Kind,
    /// Scope of one group of units.
    pub per: Per,
    /// Units per group, which share its load.
    pub count: u32,
    /// Measured limit of one unit in bits per second; the lower of formula and measurement applies.
    pub measured_bits_per_s: Option<f64>,
    /// Queue capacity per unit in bytes. `None`: not compared with the backlog in the report; in the simulation,
    /// [`crate::sim::DEFAULT_BUFFER_BYTES`] for packets and no limit but the pool for bursts.
    pub buffer_bytes: Option<f64>,
    /// Policy when the queue is full.
    pub policy: Policy,
    /// Periodic stalls.
    pub stall: Option<Stall>,
    /// Standard deviation of the logarithm of the service time of a burst; 0 for a constant time.
    pub spread: f64,
}

/// Kind of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A cable.
    Link {
        /// Line rate in bits per second.
        bits_per_s: f64,
        /// Framing.
        framing: Framing,
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// SpaceFibre lanes.
    Spacefibre {
        /// Number of lanes.
        lanes: u32,
        /// Signalling rate of one lane in bits per second.
        lane_bits_per_s: f64,
        /// Data flow in both directions at once.
        both_ways: bool,
    },
    /// The output of a switch towards one receiver.
    Switch {
        /// Line rate of the output in bits per second.
        bits_per_s: f64,
        /// Framing.
        framing: Framing,
        /// IPv6 instead of IPv4.
        ipv6: bool,
        /// Number of outputs that share one buffer.
        ports: u32,
    },
    /// A DMA engine.
    Dma {
        /// Word size in bytes.
        word_bytes: u32,
        /// Clock rate in Hz; one word per cycle.
        clock_hz: f64,
    },
    /// A PCIe slot.
    Pcie(Pcie),
    /// A receive thread on sockets.
    Receive {
        /// Time per packet in seconds.
        packet_s: f64,
    },
    /// Main memory or accelerator memory.
    Memory {
        /// Bits per second.
        bits_per_s: f64,
        /// Number of times that each byte crosses the interface.
        passes: f64,
    },
    /// A processing step on whole bursts: an accelerator, a conversion, a program.
    Accelerator {
        /// Bits per second.
        bits_per_s: f64,
    },
    /// A drive.
    Drive {
        /// Bits per second.
        bits_per_s: f64,
    },
}

impl Kind {
    /// Names in plans, in the order of a typical chain.
    pub const NAMES: [&str; 9] =
        ["link", "spacefibre", "switch", "dma", "pcie", "receive", "memory", "accelerator", "drive"];

    /// Returns the name in plans.
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Link { .. } => 0,
            Self::Spacefibre { .. } => 1,
            Self::Switch { .. } => 2,
            Self::Dma { .. } => 3,
            Self::Pcie(_) => 4,
            Self::Receive { .. } => 5,
            Self::Memory { .. } => 6,
            Self::Accelerator { .. } => 7,
            Self::Drive { .. } => 8,
        }]
    }

    /// Returns `true` for lines, which an instrument feeds packet by packet: the next one starts when the last has
    /// left.
    pub fn is_line(&self) -> bool {
        matches!(self, Self::Link { .. } | Self::Spacefibre { .. })
    }

    /// Returns `true` for stages of whole bursts, which receive a burst after its last packet has been placed.
    pub fn takes_bursts(&self) -> bool {
        matches!(self, Self::Accelerator { .. } | Self::Drive { .. })
    }
}

/// Scope of one group of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// One group per link of each instrument.
    Link,
    /// One group per instrument.
    Probe,
    /// One group per receiver.
    Receiver,
    /// One group in the whole plan.
    Plan,
}

impl Per {
    /// Names in plans.
    pub const NAMES: &[(&str, Self)] =
        &[("link", Self::Link), ("probe", Self::Probe), ("receiver", Self::Receiver), ("plan", Self::Plan)];
}

/// Policy when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Drop the arriving packet or burst.
    DropNewest,
    /// Drop the oldest burst (stages of whole bursts only).
    DropOldest,
    /// Drop nothing: arrivals wait before the stage.
    Block,
}

impl Policy {
    /// Names in plans, as in `shotline record`.
    pub const NAMES: &[(&str, Self)] =
        &[("drop-newest", Self::DropNewest), ("drop-oldest", Self::DropOldest), ("block", Self::Block)];
}

impl Burst {
    /// Returns the length on the wire in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Shot { geometry, .. } => geometry.shot_bytes().into(),
            Self::Transfer { bytes, .. } => *bytes,
        }
    }

    /// Returns the number of packets.
    pub fn packets(&self) -> u32 {
        match self {
            Self::Shot { geometry, .. } => geometry.packets(),
            // Fits 32 bits: parsing refuses more packets.
            Self::Transfer { bytes, packet } => bytes.div_ceil((*packet).into()) as u32,
        }
    }

    /// Returns the payload bytes of all packets but the last, and of the last.
    pub fn packet_bytes(&self) -> (u32, u32) {
        match self {
            Self::Shot { geometry, .. } => (geometry.packet_bytes(0), geometry.packet_bytes(geometry.packets() - 1)),
            Self::Transfer { bytes, packet } => {
                let last = (bytes - u64::from(self.packets() - 1) * u64::from(*packet)) as u32;
                (if self.packets() == 1 { last } else { *packet }, last)
            }
        }
    }

    /// Returns the size of its slot in memory and in the file, in bytes.
    pub fn slot_bytes(&self) -> u64 {
        match self {
            Self::Shot { geometry, .. } => geometry.slot_bytes().into(),
            Self::Transfer { bytes, .. } => bytes.next_multiple_of(4096),
        }
    }

    /// Returns the bits of samples, without padding and record, which papers count as data.
    pub fn sample_bits(&self) -> f64 {
        match self {
            Self::Shot { geometry, .. } => f64::from(geometry.sample_bytes()) * 8.0,
            Self::Transfer { bytes, .. } => *bytes as f64 * 8.0,
        }
    }

    /// Returns the sum of `f` over all packets' payload bytes.
    pub fn sum(&self, f: impl Fn(u32) -> f64) -> f64 {
        let (bytes, last) = self.packet_bytes();
        f(bytes) * f64::from(self.packets() - 1) + f(last)
    }
}

impl Source {
    /// Returns the number of streams of all instruments.
    pub fn streams(&self) -> u32 {
        self.probes * self.links
    }

    /// Returns the time for which a burst occupies its instrument, in seconds.
    pub fn busy_s(&self) -> f64 {
        match &self.burst {
            Burst::Shot { geometry, dead_time_s } => {
                shot::busy_s(geometry.samples(), geometry.sample_rate_hz().into(), *dead_time_s)
            }
            Burst::Transfer { .. } => 0.0,
        }
    }

    /// Returns the sampling time before a burst can be sent, in seconds.
    pub fn sampling_s(&self) -> f64 {
        match &self.burst {
            Burst::Shot { geometry, .. } => shot::busy_s(geometry.samples(), geometry.sample_rate_hz().into(), 0.0),
            Burst::Transfer { .. } => 0.0,
        }
    }
}

impl Plan {
    /// Returns the index of the unit that serves a stream's packets at `stage`; for stages of bursts, the group's first
    /// unit.
    pub fn unit(&self, stage: &Stage, stream: u32) -> u32 {
        let links = self.source.links;
        let (group, member) = match stage.per {
            Per::Link => (stream, 0),
            Per::Probe => (stream / links, stream % links),
            // Streams of a receiver are numbered from 0; its probes are `count` apart.
            Per::Receiver => {
                let probe = stream / links;
                (probe % self.receiver.count, probe / self.receiver.count * links + stream % links)
            }
            Per::Plan => (0, stream),
        };
        group * stage.count + if stage.kind.takes_bursts() { 0 } else { member % stage.count }
    }

    /// Returns the number of units of a stage in the whole plan.
    pub fn units(&self, stage: &Stage) -> u32 {
        let groups = match stage.per {
            Per::Link => self.source.streams(),
            Per::Probe => self.source.probes,
            Per::Receiver => self.receiver.count,
            Per::Plan => 1,
        };
        groups.saturating_mul(stage.count)
    }

    /// Returns the maximum number of streams per receiver.
    pub fn streams_per_receiver(&self) -> u32 {
        self.source.probes.div_ceil(self.receiver.count) * self.source.links
    }

    /// Returns the plan with another number of samples per channel.
    ///
    /// # Errors
    /// If the geometry is invalid.
    pub fn with_samples(&self, samples: u32) -> Result<Self, shotline_wire::shot::GeometryError> {
        let mut plan = self.clone();
        if let Burst::Shot { geometry: g, .. } = &mut plan.source.burst {
            *g = Geometry::new(g.channels(), samples, g.bits(), g.packing(), g.sample_rate_hz())?;
        }
        Ok(plan)
    }

    /// Returns the plan with transfers of one packet of `bytes`, at the same bit rate.
    pub fn with_packets_of(&self, bytes: u32) -> Self {
        let mut plan = Self { lengths: Vec::new(), ..self.clone() };
        let before = plan.source.burst.bytes() as f64;
        plan.source.burst = Burst::Transfer { bytes: bytes.into(), packet: bytes };
        if let Start::Periodic(hz) = &mut plan.source.start {
            *hz *= before / f64::from(bytes);
        }
        plan
    }

    /// Returns the plan with another start of bursts.
    pub fn with_start(&self, start: Start) -> Self {
        let mut plan = self.clone();
        plan.source.start = start;
        plan
    }
}
