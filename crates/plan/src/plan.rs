//! A plan: what is measured, and the stages that its bytes pass. It exists only if it makes sense.

use crate::formula::bus::Pcie;
use crate::formula::link::Framing;
use crate::formula::queue::Stall;
use crate::formula::shot;
use shotline_wire::shot::Geometry;

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it is of.
    pub title: String,
    /// The paper whose figures stand beside the plan's own.
    pub paper: Option<u8>,
    /// Whether a stage works on the next burst while the one behind it works on the last.
    pub pipelined: bool,
    /// What is measured.
    pub source: Source,
    /// Who receives it.
    pub receiver: Receiver,
    /// The stages that every byte passes, in their order.
    pub stages: Vec<Stage>,
    /// Trigger rates to look at, in hertz.
    pub sweep_hz: Vec<f64>,
    /// Lengths of single packets to look at, in bytes.
    pub lengths: Vec<u32>,
}

/// Instruments that send bursts.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Instruments.
    pub probes: u32,
    /// Links of each, each a stream of its own.
    pub links: u32,
    /// What one burst of one link is.
    pub burst: Burst,
    /// What starts a burst.
    pub start: Start,
    /// Whether all instruments start together; else at times of their own.
    pub together: bool,
    /// Whether bursts come at random (Poisson) instead of evenly.
    pub random: bool,
    /// Bytes that each link of an instrument keeps of bursts that the first stage has not taken yet.
    pub buffer_bytes: f64,
}

/// What a link sends at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Burst {
    /// A shot.
    Shot {
        /// Its shape.
        geometry: Geometry,
        /// From one shot's last sample to the next one's first, in seconds.
        dead_time_s: f64,
    },
    /// Bytes that are no shot.
    Transfer {
        /// Bytes.
        bytes: u64,
        /// Bytes of its packets but the last.
        packet: u32,
    },
}

/// What starts a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// The end of the last: an instrument's own pace; of plain transfers, as fast as the slowest stage takes them.
    Free,
    /// A trigger or a timer of so many hertz.
    Periodic(f64),
}

/// The receiver's part that is no stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Receivers; instrument `i` sends to receiver `i` modulo this.
    pub count: u32,
    /// Shots of a stream that may be under assembly at once.
    pub window: u32,
    /// Shots on their way into the file at once.
    pub in_flight: u32,
    /// Longest time for which the receive thread may be kept from its packets, in seconds.
    pub away_s: f64,
    /// Longest time for which what follows assembly may stop, in seconds.
    pub pause_s: f64,
    /// Memory for shot buffers of each receiver, in bytes; none: what the plan finds.
    pub pool_bytes: Option<f64>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// What it is, and the numbers that its formula needs.
    pub kind: Kind,
    /// Of what there is one group of units each.
    pub per: Per,
    /// Units that share the work in each group.
    pub count: u32,
    /// A measured limit of one unit in bits per second; the lower of formula and measurement holds.
    pub measured_bits_per_s: Option<f64>,
    /// What waits before one unit may have so many bytes; none: no bound.
    pub buffer_bytes: Option<f64>,
    /// What gives when that is full.
    pub policy: Policy,
    /// Stops now and then.
    pub stall: Option<Stall>,
    /// Standard deviation of the logarithm of the time a burst takes; 0: always the same.
    pub spread: f64,
}

/// What a stage is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A cable.
    Link {
        /// Line rate in bits per second.
        bits_per_s: f64,
        /// Headers.
        framing: Framing,
        /// IPv6 instead of IPv4.
        ipv6: bool,
    },
    /// SpaceFibre lanes.
    Spacefibre {
        /// Lanes.
        lanes: u32,
        /// Signalling rate of one lane in bits per second.
        lane_bits_per_s: f64,
        /// Data flow both ways at once.
        both_ways: bool,
    },
    /// The output of a switch towards one receiver.
    Switch {
        /// Line rate of the output in bits per second.
        bits_per_s: f64,
        /// Headers.
        framing: Framing,
        /// IPv6 instead of IPv4.
        ipv6: bool,
        /// Outputs that share one buffer.
        ports: u32,
    },
    /// A DMA engine that moves words.
    Dma {
        /// Bytes of a word.
        word_bytes: u32,
        /// Words per second.
        clock_hz: f64,
    },
    /// A PCIe slot.
    Pcie(Pcie),
    /// A receive thread on sockets.
    Receive {
        /// Seconds for one packet.
        packet_s: f64,
    },
    /// Main memory, or that of an accelerator.
    Memory {
        /// Bits per second.
        bits_per_s: f64,
        /// How often each byte crosses it.
        passes: f64,
    },
    /// A processor of whole bursts: an accelerator, a conversion, a program.
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
    /// The names in plans, in the order of a usual chain.
    pub const NAMES: [&str; 9] =
        ["link", "spacefibre", "switch", "dma", "pcie", "receive", "memory", "accelerator", "drive"];

    /// Its name in plans.
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

    /// Whether an instrument before it drives it: a packet goes when the last has left.
    pub fn is_line(&self) -> bool {
        matches!(self, Self::Link { .. } | Self::Spacefibre { .. })
    }

    /// Whether it takes whole bursts, which begin to exist when their last packet has been placed.
    pub fn takes_bursts(&self) -> bool {
        matches!(self, Self::Accelerator { .. } | Self::Drive { .. })
    }
}

/// Of what there is one group of units each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Every link of every instrument.
    Link,
    /// Every instrument.
    Probe,
    /// Every receiver.
    Receiver,
    /// The whole plan.
    Plan,
}

impl Per {
    /// Names in plans.
    pub const NAMES: &[(&str, Self)] =
        &[("link", Self::Link), ("probe", Self::Probe), ("receiver", Self::Receiver), ("plan", Self::Plan)];
}

/// What gives when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// What comes is dropped.
    DropNewest,
    /// What has waited longest is dropped (of whole bursts only).
    DropOldest,
    /// Nothing: what comes waits before the stage.
    Block,
}

impl Policy {
    /// Names in plans, those of `shotline record`.
    pub const NAMES: &[(&str, Self)] =
        &[("drop-newest", Self::DropNewest), ("drop-oldest", Self::DropOldest), ("block", Self::Block)];
}

impl Burst {
    /// Bytes on the wire.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Shot { geometry, .. } => geometry.shot_bytes().into(),
            Self::Transfer { bytes, .. } => *bytes,
        }
    }

    /// Packets.
    pub fn packets(&self) -> u32 {
        match self {
            Self::Shot { geometry, .. } => geometry.packets(),
            // At most 2^32: the plan was refused otherwise.
            Self::Transfer { bytes, packet } => bytes.div_ceil((*packet).into()) as u32,
        }
    }

    /// Payload bytes of every packet but the last, and of the last.
    pub fn packet_bytes(&self) -> (u32, u32) {
        match self {
            Self::Shot { geometry, .. } => (geometry.packet_bytes(0), geometry.packet_bytes(geometry.packets() - 1)),
            Self::Transfer { bytes, packet } => {
                let last = (bytes - u64::from(self.packets() - 1) * u64::from(*packet)) as u32;
                (if self.packets() == 1 { last } else { *packet }, last)
            }
        }
    }

    /// Bytes of the buffer that it takes in memory and in the file.
    pub fn slot_bytes(&self) -> u64 {
        match self {
            Self::Shot { geometry, .. } => geometry.slot_bytes().into(),
            Self::Transfer { bytes, .. } => bytes.next_multiple_of(4096),
        }
    }

    /// Bits of samples alone, without padding and record: what papers count as data.
    pub fn sample_bits(&self) -> f64 {
        match self {
            Self::Shot { geometry, .. } => f64::from(geometry.sample_bytes()) * 8.0,
            Self::Transfer { bytes, .. } => *bytes as f64 * 8.0,
        }
    }

    /// Sum of what `of_packet` says for each packet's bytes.
    pub fn sum(&self, of_packet: impl Fn(u32) -> f64) -> f64 {
        let (bytes, last) = self.packet_bytes();
        of_packet(bytes) * f64::from(self.packets() - 1) + of_packet(last)
    }
}

impl Source {
    /// Streams of all instruments.
    pub fn streams(&self) -> u32 {
        self.probes * self.links
    }

    /// Seconds for which a burst occupies its instrument.
    pub fn busy_s(&self) -> f64 {
        match &self.burst {
            Burst::Shot { geometry, dead_time_s } => {
                shot::busy_s(geometry.samples(), geometry.sample_rate_hz().into(), *dead_time_s)
            }
            Burst::Transfer { .. } => 0.0,
        }
    }

    /// Seconds of sampling before a burst can leave.
    pub fn sampling_s(&self) -> f64 {
        match &self.burst {
            Burst::Shot { geometry, .. } => shot::busy_s(geometry.samples(), geometry.sample_rate_hz().into(), 0.0),
            Burst::Transfer { .. } => 0.0,
        }
    }
}

impl Plan {
    /// The group and unit at `stage` of a stream's packets; of bursts, the first unit of the group that may take them.
    pub fn unit(&self, stage: &Stage, stream: u32) -> u32 {
        let links = self.source.links;
        let (group, member) = match stage.per {
            Per::Link => (stream, 0),
            Per::Probe => (stream / links, stream % links),
            // Streams of one receiver, numbered from 0: its probes are `count` apart.
            Per::Receiver => {
                let probe = stream / links;
                (probe % self.receiver.count, probe / self.receiver.count * links + stream % links)
            }
            Per::Plan => (0, stream),
        };
        group * stage.count + if stage.kind.takes_bursts() { 0 } else { member % stage.count }
    }

    /// Units of a stage in the whole plan.
    pub fn units(&self, stage: &Stage) -> u32 {
        let groups = match stage.per {
            Per::Link => self.source.streams(),
            Per::Probe => self.source.probes,
            Per::Receiver => self.receiver.count,
            Per::Plan => 1,
        };
        groups.saturating_mul(stage.count)
    }

    /// Streams of the receiver that has most.
    pub fn streams_per_receiver(&self) -> u32 {
        self.source.probes.div_ceil(self.receiver.count) * self.source.links
    }

    /// The same with another number of samples per channel, if such a shot can be.
    pub fn with_samples(&self, samples: u32) -> Result<Self, shotline_wire::shot::GeometryError> {
        let mut plan = self.clone();
        if let Burst::Shot { geometry: g, .. } = &mut plan.source.burst {
            *g = Geometry::new(g.channels(), samples, g.bits(), g.packing(), g.sample_rate_hz())?;
        }
        Ok(plan)
    }

    /// The same with transfers of one packet of `bytes`, as many bits of them per second.
    pub fn with_packets_of(&self, bytes: u32) -> Self {
        let mut plan = Self { lengths: Vec::new(), ..self.clone() };
        let before = plan.source.burst.bytes() as f64;
        plan.source.burst = Burst::Transfer { bytes: bytes.into(), packet: bytes };
        if let Start::Periodic(hz) = &mut plan.source.start {
            *hz *= before / f64::from(bytes);
        }
        plan
    }

    /// The same with another trigger.
    pub fn with_start(&self, start: Start) -> Self {
        let mut plan = self.clone();
        plan.source.start = start;
        plan
    }
}
