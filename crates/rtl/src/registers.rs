//! The register map of the RTL: byte addresses on its AXI-Lite port, masks and places of fields.
//!
//! Made by hdl/scripts/registers.py from hdl/registers.toml: do not edit.

/// Block `sender` of `roce_ud_tx`. Configuration is written at any time and taken over, all of it at once, by `control.apply`: between two shots, when everything before has left.
pub mod sender {
    /// `SHTX`: this is a sender.
    pub const ID: u16 = 0x000;
    /// `id` after reset.
    pub const ID_RESET: u32 = 0x53485458;
    /// Version of this map.
    pub const VERSION: u16 = 0x004;
    /// `version` after reset.
    pub const VERSION_RESET: u32 = 0x00000001;
    /// What to do now.
    pub const CONTROL: u16 = 0x008;
    /// `control`: Take over the configuration. Reads 1 until that is done; payload waits meanwhile.
    pub const CONTROL_APPLY: u32 = 1 << 0;
    /// `control`: With `apply`: the next packet's sequence number comes from `psn`; otherwise it goes on.
    pub const CONTROL_LOAD_PSN: u32 = 1 << 1;
    /// `control`: Set all counters to zero. Reads 0.
    pub const CONTROL_CLEAR_COUNTERS: u32 = 1 << 2;
    /// What is going on.
    pub const STATUS: u16 = 0x00C;
    /// `status`: A shot is under way, or packets have not left yet.
    pub const STATUS_BUSY: u32 = 1 << 0;
    /// `status`: An `apply` waits for the shot under way.
    pub const STATUS_APPLY_PENDING: u32 = 1 << 1;
    /// How payload becomes packets.
    pub const FORMAT: u16 = 0x010;
    /// `format`: 0 `ud`, 1 `counted`, 2 `udp`.
    pub const FORMAT_FRAMING: u32 = 0x00000003;
    /// Lowest bit of [`FORMAT_FRAMING`].
    pub const FORMAT_FRAMING_LSB: u32 = 0;
    /// `format`: IPv6 instead of IPv4.
    pub const FORMAT_IPV6: u32 = 1 << 4;
    /// `format`: 0: an input frame is a shot, closed by a record and cut into packets. 1: an input frame is a packet.
    pub const FORMAT_PACKET_MODE: u32 = 1 << 8;
    /// `format`: The stream comes from `stream` instead of the port `s_shot_stream`.
    pub const FORMAT_STREAM_HERE: u32 = 1 << 12;
    /// `format`: Take payload. 0 after reset.
    pub const FORMAT_ENABLE: u32 = 1 << 16;
    /// Payload bytes of a full packet: a multiple of 64 from 64 to 4096.
    pub const MTU: u16 = 0x014;
    /// `mtu` after reset.
    pub const MTU_RESET: u32 = 0x00001000;
    /// `mtu`: The multiple; bits 5:0 are zero. 64 · 64 = 4096 is the largest.
    pub const MTU_BYTES: u32 = 0x00001FC0;
    /// Lowest bit of [`MTU_BYTES`].
    pub const MTU_BYTES_LSB: u32 = 6;
    /// First two bytes of the receiver's Ethernet address.
    pub const DESTINATION_MAC_HIGH: u16 = 0x018;
    /// `destination_mac_high`: First byte in bits 15:8.
    pub const DESTINATION_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`DESTINATION_MAC_HIGH_BYTES`].
    pub const DESTINATION_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Its other four bytes.
    pub const DESTINATION_MAC_LOW: u16 = 0x01C;
    /// First two bytes of our Ethernet address.
    pub const SOURCE_MAC_HIGH: u16 = 0x020;
    /// `source_mac_high`: First byte in bits 15:8.
    pub const SOURCE_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`SOURCE_MAC_HIGH_BYTES`].
    pub const SOURCE_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Its other four bytes.
    pub const SOURCE_MAC_LOW: u16 = 0x024;
    /// UDP ports.
    pub const PORTS: u16 = 0x028;
    /// `ports` after reset.
    pub const PORTS_RESET: u32 = 0xC00012B7;
    /// `ports`: Ours; 0xC000 to 0xFFFF by custom.
    pub const PORTS_SOURCE: u32 = 0xFFFF0000;
    /// Lowest bit of [`PORTS_SOURCE`].
    pub const PORTS_SOURCE_LSB: u32 = 16;
    /// `ports`: The receiver's, 4791 for RoCEv2.
    pub const PORTS_DESTINATION: u32 = 0x0000FFFF;
    /// Lowest bit of [`PORTS_DESTINATION`].
    pub const PORTS_DESTINATION_LSB: u32 = 0;
    /// Fields of the IP header that the ICRC does not cover.
    pub const HOP: u16 = 0x02C;
    /// `hop` after reset.
    pub const HOP_RESET: u32 = 0x00000040;
    /// `hop`: Type of service, or traffic class.
    pub const HOP_CLASS: u32 = 0x0000FF00;
    /// Lowest bit of [`HOP_CLASS`].
    pub const HOP_CLASS_LSB: u32 = 8;
    /// `hop`: Time to live, or hop limit.
    pub const HOP_LIMIT: u32 = 0x000000FF;
    /// Lowest bit of [`HOP_LIMIT`].
    pub const HOP_LIMIT_LSB: u32 = 0;
    /// The receiver's address, first four bytes first. IPv4 uses the last of the four words alone.
    pub const DESTINATION_IP: [u16; 4] = [0x030, 0x034, 0x038, 0x03C];
    /// Our address, in the same way.
    pub const SOURCE_IP: [u16; 4] = [0x040, 0x044, 0x048, 0x04C];
    /// The receiver's queue pair.
    pub const DESTINATION_QP: u16 = 0x050;
    /// `destination_qp`: Its number.
    pub const DESTINATION_QP_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`DESTINATION_QP_NUMBER`].
    pub const DESTINATION_QP_NUMBER_LSB: u32 = 0;
    /// Our queue pair, as the reply to Configure tells it.
    pub const SOURCE_QP: u16 = 0x054;
    /// `source_qp`: Its number.
    pub const SOURCE_QP_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`SOURCE_QP_NUMBER`].
    pub const SOURCE_QP_NUMBER_LSB: u32 = 0;
    /// Queue key of the receiver's queue pair.
    pub const QUEUE_KEY: u16 = 0x058;
    /// Partition.
    pub const PARTITION: u16 = 0x05C;
    /// `partition` after reset.
    pub const PARTITION_RESET: u32 = 0x0000FFFF;
    /// `partition`: Partition key, 0xFFFF for the default one.
    pub const PARTITION_KEY: u32 = 0x0000FFFF;
    /// Lowest bit of [`PARTITION_KEY`].
    pub const PARTITION_KEY_LSB: u32 = 0;
    /// Sequence number of the first packet after an apply with `control.load_psn`.
    pub const PSN: u16 = 0x060;
    /// `psn`: Counts by itself from there, modulo 2^24.
    pub const PSN_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`PSN_NUMBER`].
    pub const PSN_NUMBER_LSB: u32 = 0;
    /// Sequence number of the next packet.
    pub const NEXT_PSN: u16 = 0x064;
    /// `next_psn`: The number.
    pub const NEXT_PSN_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`NEXT_PSN_NUMBER`].
    pub const NEXT_PSN_NUMBER_LSB: u32 = 0;
    /// Stream of the record and of framing `udp`, if `format.stream_here`.
    pub const STREAM: u16 = 0x068;
    /// Fields of the end-of-shot record.
    pub const SHAPE: u16 = 0x06C;
    /// `shape`: Channels.
    pub const SHAPE_CHANNELS: u32 = 0xFFFF0000;
    /// Lowest bit of [`SHAPE_CHANNELS`].
    pub const SHAPE_CHANNELS_LSB: u32 = 16;
    /// `shape`: Bits of a sample that mean something.
    pub const SHAPE_BITS: u32 = 0x0000FF00;
    /// Lowest bit of [`SHAPE_BITS`].
    pub const SHAPE_BITS_LSB: u32 = 8;
    /// `shape`: Packing.
    pub const SHAPE_PACKING: u32 = 0x000000FF;
    /// Lowest bit of [`SHAPE_PACKING`].
    pub const SHAPE_PACKING_LSB: u32 = 0;
    /// Samples per channel, for the record.
    pub const SAMPLES: u16 = 0x070;
    /// Sample rate in Hz, for the record; 0 unknown.
    pub const SAMPLE_RATE: u16 = 0x074;
    /// Bytes of samples in a shot, without padding: for the record, for framing `udp` (which tells the size of the shot in its first packet), and to check what comes.
    pub const SAMPLE_BYTES: u16 = 0x078;
    /// `sample_bytes`: The bytes.
    pub const SAMPLE_BYTES_BYTES: u32 = 0x0FFFFFFF;
    /// Lowest bit of [`SAMPLE_BYTES_BYTES`].
    pub const SAMPLE_BYTES_BYTES_LSB: u32 = 0;
    /// Frames that have left. 48 bits: read this word first, then the one behind.
    pub const FRAMES: u16 = 0x080;
    /// Their bytes, from the Ethernet header to the ICRC. 48 bits: read this word first, then the one behind.
    pub const FRAME_BYTES: u16 = 0x088;
    /// Input frames taken whole: shots, or packets in packet mode. 48 bits: read this word first, then the one behind.
    pub const SHOTS: u16 = 0x090;
    /// Clocks in which a word could have left and there was no packet to send. 48 bits: read this word first, then the one behind.
    pub const STALL_PAYLOAD: u16 = 0x098;
    /// Clocks in which the MAC did not take the word offered. 48 bits: read this word first, then the one behind.
    pub const STALL_MAC: u16 = 0x0A0;
    /// Clocks in which payload was offered and the FIFO had no room. 48 bits: read this word first, then the one behind.
    pub const STALL_FIFO: u16 = 0x0A8;
    /// Shots whose bytes were not `sample_bytes`; in packet mode, input frames of more than `mtu`, which are cut. 48 bits: read this word first, then the one behind.
    pub const MISFITS: u16 = 0x0B0;
}

/// Block `packetizer` of `shot_packetizer`. What the set-up messages of the wire format ask of a probe, beside the sender's block. `control.start` is refused (SLVERR) while a run or a shot is under way; the other registers hold at once, so write them at rest. `samples` here, and `shape`, `samples` and `sample_bytes` of the sender must describe the same shot.
pub mod packetizer {
    /// `SHPT`: this is a packetizer.
    pub const ID: u16 = 0x800;
    /// `id` after reset.
    pub const ID_RESET: u32 = 0x53485054;
    /// Version of this map.
    pub const VERSION: u16 = 0x804;
    /// `version` after reset.
    pub const VERSION_RESET: u32 = 0x00000001;
    /// What to do now. Reads as 0.
    pub const CONTROL: u16 = 0x808;
    /// `control`: Begin a run: `shots`, `missed` and the sequence of events begin at 0, no trigger number was seen.
    pub const CONTROL_START: u32 = 1 << 0;
    /// `control`: End the run; the shot under way is finished.
    pub const CONTROL_STOP: u32 = 1 << 1;
    /// `control`: With `start`: the next shot has the number `first_number`; otherwise numbers go on.
    pub const CONTROL_LOAD_NUMBER: u32 = 1 << 2;
    /// `control`: Set `repeated`, `unasked`, `refused` and `damaged` to zero.
    pub const CONTROL_CLEAR_COUNTERS: u32 = 1 << 3;
    /// What is going on.
    pub const STATUS: u16 = 0x80C;
    /// `status`: A run is under way.
    pub const STATUS_RUNNING: u32 = 1 << 0;
    /// `status`: A shot is under way: from its trigger until all its packets have left the sender.
    pub const STATUS_BUSY: u32 = 1 << 1;
    /// `status`: Why the last damaged shot was: 1 the AFE-FIFO was full, 2 octets of a lane were missing, 3 the lanes fell silent.
    pub const STATUS_CAUSE: u32 = 0x00000030;
    /// Lowest bit of [`STATUS_CAUSE`].
    pub const STATUS_CAUSE_LSB: u32 = 4;
    /// `status`: Channels of this instance.
    pub const STATUS_CHANNELS: u32 = 0xFFFF0000;
    /// Lowest bit of [`STATUS_CHANNELS`].
    pub const STATUS_CHANNELS_LSB: u32 = 16;
    /// What begins shots.
    pub const MODE: u16 = 0x810;
    /// `mode`: 0 the end of the last one, 1 every `period`, 2 triggers: the modes of Start.
    pub const MODE_KIND: u32 = 0x00000003;
    /// Lowest bit of [`MODE_KIND`].
    pub const MODE_KIND_LSB: u32 = 0;
    /// `mode`: Rising edges of the trigger input are triggers.
    pub const MODE_PIN: u32 = 1 << 4;
    /// `mode`: Trigger commands from the network are triggers.
    pub const MODE_COMMAND: u32 = 1 << 5;
    /// `mode`: Take trigger commands whatever their destination addresses are.
    pub const MODE_ANY_ADDRESS: u32 = 1 << 8;
    /// Samples per channel of a shot, at least 1.
    pub const SAMPLES: u16 = 0x814;
    /// `samples` after reset.
    pub const SAMPLES_RESET: u32 = 0x00000001;
    /// Clocks of `clk` from one shot to the next in mode 1, at least 1.
    pub const PERIOD: u16 = 0x818;
    /// `period` after reset.
    pub const PERIOD_RESET: u32 = 0x00000001;
    /// Shots of a run, lower half; all 48 bits 0: until stop.
    pub const SHOTS_WANTED_LOW: u16 = 0x820;
    /// Upper half.
    pub const SHOTS_WANTED_HIGH: u16 = 0x824;
    /// `shots_wanted_high`: Bits 47:32.
    pub const SHOTS_WANTED_HIGH_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`SHOTS_WANTED_HIGH_NUMBER`].
    pub const SHOTS_WANTED_HIGH_NUMBER_LSB: u32 = 0;
    /// A shot number for `control.load_number`, lower half.
    pub const FIRST_NUMBER_LOW: u16 = 0x828;
    /// Upper half.
    pub const FIRST_NUMBER_HIGH: u16 = 0x82C;
    /// `first_number_high`: Bits 47:32.
    pub const FIRST_NUMBER_HIGH_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`FIRST_NUMBER_HIGH_NUMBER`].
    pub const FIRST_NUMBER_HIGH_NUMBER_LSB: u32 = 0;
    /// UDP port of trigger commands.
    pub const TRIGGER_PORT: u16 = 0x830;
    /// `trigger_port` after reset.
    pub const TRIGGER_PORT_RESET: u32 = 0x0000BB26;
    /// `trigger_port`: The port.
    pub const TRIGGER_PORT_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`TRIGGER_PORT_NUMBER`].
    pub const TRIGGER_PORT_NUMBER_LSB: u32 = 0;
    /// First two bytes of the Ethernet address that trigger commands come to.
    pub const OWN_MAC_HIGH: u16 = 0x834;
    /// `own_mac_high`: First byte in bits 15:8.
    pub const OWN_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`OWN_MAC_HIGH_BYTES`].
    pub const OWN_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Its other four bytes.
    pub const OWN_MAC_LOW: u16 = 0x838;
    /// The IP address that they come to, first four bytes first; IPv4 a.b.c.d as ::ffff:a.b.c.d.
    pub const OWN_IP: [u16; 4] = [0x840, 0x844, 0x848, 0x84C];
    /// Events of the sequence of transmissions; 0: every shot has event 0.
    pub const EVENT_COUNT: u16 = 0x850;
    /// `event_count`: 0 to 63.
    pub const EVENT_COUNT_NUMBER: u32 = 0x0000003F;
    /// Lowest bit of [`EVENT_COUNT_NUMBER`].
    pub const EVENT_COUNT_NUMBER_LSB: u32 = 0;
    /// Sets one event of the sequence. Reads as 0.
    pub const EVENT: u16 = 0x854;
    /// `event`: Which, from 0.
    pub const EVENT_INDEX: u32 = 0x003F0000;
    /// Lowest bit of [`EVENT_INDEX`].
    pub const EVENT_INDEX_LSB: u32 = 16;
    /// `event`: Its number.
    pub const EVENT_VALUE: u32 = 0x0000FFFF;
    /// Lowest bit of [`EVENT_VALUE`].
    pub const EVENT_VALUE_LSB: u32 = 0;
    /// Number of the shot under way, or of the next one. 48 bits: read this word first, then the one behind.
    pub const NEXT_NUMBER: u16 = 0x880;
    /// Shots that began in this run. 48 bits: read this word first, then the one behind.
    pub const SHOTS: u16 = 0x888;
    /// Triggers of this run that began no shot: they came too early, or their numbers were left out. 48 bits: read this word first, then the one behind.
    pub const MISSED: u16 = 0x890;
    /// Trigger commands whose number was seen before. 48 bits: read this word first, then the one behind.
    pub const REPEATED: u16 = 0x898;
    /// Triggers while no run took them. 48 bits: read this word first, then the one behind.
    pub const UNASKED: u16 = 0x8A0;
    /// Shots that were not begun because the lanes gave no samples; each is missed, too. 48 bits: read this word first, then the one behind.
    pub const REFUSED: u16 = 0x8A8;
    /// Shots whose samples did not all come: zeros stand for them, and the record's CRC is wrong. 48 bits: read this word first, then the one behind.
    pub const DAMAGED: u16 = 0x8B0;
    /// Number of the last of them. 48 bits: read this word first, then the one behind.
    pub const DAMAGED_NUMBER: u16 = 0x8B8;
}
