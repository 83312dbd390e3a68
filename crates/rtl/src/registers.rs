//! Register map of the RTL: byte addresses on its AXI4-Lite port, masks and positions of fields.
//!
//! Made by hdl/scripts/registers.py from hdl/registers.toml: do not edit.

/// Block `sender` of `shotline_roce_ud_tx`. Writes to the configuration take effect together by `control.apply`, between two shots, when all earlier packets have left.
pub mod sender {
    /// Identifier: `SHTX`.
    pub const ID: u16 = 0x000;
    /// `id` after reset.
    pub const ID_RESET: u32 = 0x53485458;
    /// Version of this register map.
    pub const VERSION: u16 = 0x004;
    /// `version` after reset.
    pub const VERSION_RESET: u32 = 0x00000001;
    /// Commands.
    pub const CONTROL: u16 = 0x008;
    /// `control`: Apply the configuration. Reads 1 while pending; payload is stalled meanwhile.
    pub const CONTROL_APPLY: u32 = 1 << 0;
    /// `control`: With `apply`: load the next packet sequence number from `psn`; otherwise the sequence continues.
    pub const CONTROL_LOAD_PSN: u32 = 1 << 1;
    /// `control`: Clear all counters. Reads 0.
    pub const CONTROL_CLEAR_COUNTERS: u32 = 1 << 2;
    /// Status.
    pub const STATUS: u16 = 0x00C;
    /// `status`: A shot is active, or packets have not left yet.
    pub const STATUS_BUSY: u32 = 1 << 0;
    /// `status`: An `apply` waits for the active shot.
    pub const STATUS_APPLY_PENDING: u32 = 1 << 1;
    /// Packet format.
    pub const FORMAT: u16 = 0x010;
    /// `format`: 0 `ud`, 1 `counted`, 2 `udp`.
    pub const FORMAT_FRAMING: u32 = 0x00000003;
    /// Lowest bit of [`FORMAT_FRAMING`].
    pub const FORMAT_FRAMING_LSB: u32 = 0;
    /// `format`: 1: IPv6; 0: IPv4.
    pub const FORMAT_IPV6: u32 = 1 << 4;
    /// `format`: 0: an input frame is a shot, segmented into packets and ended by a record. 1: an input frame is the payload of a packet.
    pub const FORMAT_PACKET_MODE: u32 = 1 << 8;
    /// `format`: Take the stream number from `stream` instead of the port `s_shot_stream`.
    pub const FORMAT_STREAM_OVERRIDE: u32 = 1 << 12;
    /// `format`: Accept payload. 0 after reset.
    pub const FORMAT_ENABLE: u32 = 1 << 16;
    /// Payload bytes of a full packet: a multiple of 64, 64 to 4096.
    pub const MTU: u16 = 0x014;
    /// `mtu` after reset.
    pub const MTU_RESET: u32 = 0x00001000;
    /// `mtu`: Multiple of 64; bits 5:0 are zero. The maximum is 64 · 64 = 4096.
    pub const MTU_BYTES: u32 = 0x00001FC0;
    /// Lowest bit of [`MTU_BYTES`].
    pub const MTU_BYTES_LSB: u32 = 6;
    /// First two bytes of the destination MAC address.
    pub const DESTINATION_MAC_HIGH: u16 = 0x018;
    /// `destination_mac_high`: First byte in bits 15:8.
    pub const DESTINATION_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`DESTINATION_MAC_HIGH_BYTES`].
    pub const DESTINATION_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Last four bytes of the destination MAC address.
    pub const DESTINATION_MAC_LOW: u16 = 0x01C;
    /// First two bytes of the source MAC address.
    pub const SOURCE_MAC_HIGH: u16 = 0x020;
    /// `source_mac_high`: First byte in bits 15:8.
    pub const SOURCE_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`SOURCE_MAC_HIGH_BYTES`].
    pub const SOURCE_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Last four bytes of the source MAC address.
    pub const SOURCE_MAC_LOW: u16 = 0x024;
    /// UDP ports.
    pub const PORTS: u16 = 0x028;
    /// `ports` after reset.
    pub const PORTS_RESET: u32 = 0xC00012B7;
    /// `ports`: Source port; by convention 0xC000 to 0xFFFF.
    pub const PORTS_SOURCE: u32 = 0xFFFF0000;
    /// Lowest bit of [`PORTS_SOURCE`].
    pub const PORTS_SOURCE_LSB: u32 = 16;
    /// `ports`: Destination port; 4791 for RoCEv2.
    pub const PORTS_DESTINATION: u32 = 0x0000FFFF;
    /// Lowest bit of [`PORTS_DESTINATION`].
    pub const PORTS_DESTINATION_LSB: u32 = 0;
    /// IP header fields that the ICRC does not cover.
    pub const HOP: u16 = 0x02C;
    /// `hop` after reset.
    pub const HOP_RESET: u32 = 0x00000040;
    /// `hop`: Type of service (IPv4) or traffic class (IPv6).
    pub const HOP_CLASS: u32 = 0x0000FF00;
    /// Lowest bit of [`HOP_CLASS`].
    pub const HOP_CLASS_LSB: u32 = 8;
    /// `hop`: Time to live (IPv4) or hop limit (IPv6).
    pub const HOP_LIMIT: u32 = 0x000000FF;
    /// Lowest bit of [`HOP_LIMIT`].
    pub const HOP_LIMIT_LSB: u32 = 0;
    /// Destination IP address: the first word has the first four bytes. IPv4 uses only the last of the four words.
    pub const DESTINATION_IP: [u16; 4] = [0x030, 0x034, 0x038, 0x03C];
    /// Source IP address, in the same order.
    pub const SOURCE_IP: [u16; 4] = [0x040, 0x044, 0x048, 0x04C];
    /// Destination queue pair.
    pub const DESTINATION_QP: u16 = 0x050;
    /// `destination_qp`: Queue pair number.
    pub const DESTINATION_QP_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`DESTINATION_QP_NUMBER`].
    pub const DESTINATION_QP_NUMBER_LSB: u32 = 0;
    /// Source queue pair, as reported in the Configure reply.
    pub const SOURCE_QP: u16 = 0x054;
    /// `source_qp`: Queue pair number.
    pub const SOURCE_QP_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`SOURCE_QP_NUMBER`].
    pub const SOURCE_QP_NUMBER_LSB: u32 = 0;
    /// Q_Key of the destination queue pair.
    pub const QUEUE_KEY: u16 = 0x058;
    /// Partition.
    pub const PARTITION: u16 = 0x05C;
    /// `partition` after reset.
    pub const PARTITION_RESET: u32 = 0x0000FFFF;
    /// `partition`: P_Key; 0xFFFF for the default partition.
    pub const PARTITION_KEY: u32 = 0x0000FFFF;
    /// Lowest bit of [`PARTITION_KEY`].
    pub const PARTITION_KEY_LSB: u32 = 0;
    /// First packet sequence number after an apply with `control.load_psn`.
    pub const PSN: u16 = 0x060;
    /// `psn`: Packet sequence number, modulo 2^24.
    pub const PSN_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`PSN_NUMBER`].
    pub const PSN_NUMBER_LSB: u32 = 0;
    /// Next packet sequence number.
    pub const NEXT_PSN: u16 = 0x064;
    /// `next_psn`: Packet sequence number.
    pub const NEXT_PSN_NUMBER: u32 = 0x00FFFFFF;
    /// Lowest bit of [`NEXT_PSN_NUMBER`].
    pub const NEXT_PSN_NUMBER_LSB: u32 = 0;
    /// Stream number of the record and of framing `udp`, if `format.stream_override` is set.
    pub const STREAM: u16 = 0x068;
    /// Fields of the end-of-shot record.
    pub const SHAPE: u16 = 0x06C;
    /// `shape`: Number of channels.
    pub const SHAPE_CHANNELS: u32 = 0xFFFF0000;
    /// Lowest bit of [`SHAPE_CHANNELS`].
    pub const SHAPE_CHANNELS_LSB: u32 = 16;
    /// `shape`: Significant bits of a sample.
    pub const SHAPE_BITS: u32 = 0x0000FF00;
    /// Lowest bit of [`SHAPE_BITS`].
    pub const SHAPE_BITS_LSB: u32 = 8;
    /// `shape`: Packing code.
    pub const SHAPE_PACKING: u32 = 0x000000FF;
    /// Lowest bit of [`SHAPE_PACKING`].
    pub const SHAPE_PACKING_LSB: u32 = 0;
    /// Samples per channel, for the record.
    pub const SAMPLES: u16 = 0x070;
    /// Sample rate in Hz, for the record; 0 if unknown.
    pub const SAMPLE_RATE: u16 = 0x074;
    /// Bytes of samples in a shot, without padding: for the record, for framing `udp` (which sends the shot size in each packet), and for the length check.
    pub const SAMPLE_BYTES: u16 = 0x078;
    /// `sample_bytes`: Bytes.
    pub const SAMPLE_BYTES_BYTES: u32 = 0x0FFFFFFF;
    /// Lowest bit of [`SAMPLE_BYTES_BYTES`].
    pub const SAMPLE_BYTES_BYTES_LSB: u32 = 0;
    /// Frames sent. 48 bits: read this word first, then the next.
    pub const FRAMES: u16 = 0x080;
    /// Bytes of the frames sent, from the Ethernet header to the ICRC. 48 bits: read this word first, then the next.
    pub const FRAME_BYTES: u16 = 0x088;
    /// Input frames accepted: shots, or packets in packet mode. 48 bits: read this word first, then the next.
    pub const SHOTS: u16 = 0x090;
    /// Clocks in which a word could be sent and no packet was ready. 48 bits: read this word first, then the next.
    pub const STALL_PAYLOAD: u16 = 0x098;
    /// Clocks in which the MAC stalled an offered word. 48 bits: read this word first, then the next.
    pub const STALL_MAC: u16 = 0x0A0;
    /// Clocks in which payload was offered and the payload memory or the descriptor FIFO was full. 48 bits: read this word first, then the next.
    pub const STALL_FIFO: u16 = 0x0A8;
    /// Shots whose length was not `sample_bytes`; in packet mode, input frames longer than `mtu`, which are split. 48 bits: read this word first, then the next.
    pub const LENGTH_ERRORS: u16 = 0x0B0;
}

/// Block `packetizer` of `shotline_shot_packetizer`. Packetizer: runs and triggers, as the set-up messages of the wire format configure them. `control.start` is rejected (SLVERR) while a run or a shot is active; the other registers take effect at once, so write them while idle. `samples` here, and `shape`, `samples` and `sample_bytes` of the sender, must describe the same shot.
pub mod packetizer {
    /// Identifier: `SHPT`.
    pub const ID: u16 = 0x800;
    /// `id` after reset.
    pub const ID_RESET: u32 = 0x53485054;
    /// Version of this register map.
    pub const VERSION: u16 = 0x804;
    /// `version` after reset.
    pub const VERSION_RESET: u32 = 0x00000001;
    /// Commands. Reads as 0.
    pub const CONTROL: u16 = 0x808;
    /// `control`: Start a run: `shots`, `missed` and the transmit sequence restart at 0, and the first trigger command may have any sequence number.
    pub const CONTROL_START: u32 = 1 << 0;
    /// `control`: Stop the run; the active shot is finished.
    pub const CONTROL_STOP: u32 = 1 << 1;
    /// `control`: With `start`: the next shot has the number `first_number`; otherwise numbers continue.
    pub const CONTROL_LOAD_NUMBER: u32 = 1 << 2;
    /// `control`: Clear `repeated`, `unexpected`, `refused` and `damaged`.
    pub const CONTROL_CLEAR_COUNTERS: u32 = 1 << 3;
    /// Status.
    pub const STATUS: u16 = 0x80C;
    /// `status`: A run is active.
    pub const STATUS_RUNNING: u32 = 1 << 0;
    /// `status`: A shot is active: from its trigger until all its packets have left the sender.
    pub const STATUS_BUSY: u32 = 1 << 1;
    /// `status`: Cause of the last damaged shot: 1 AFE FIFO full, 2 octets of a lane missing, 3 lanes timed out.
    pub const STATUS_CAUSE: u32 = 0x00000030;
    /// Lowest bit of [`STATUS_CAUSE`].
    pub const STATUS_CAUSE_LSB: u32 = 4;
    /// `status`: Number of channels of this instance.
    pub const STATUS_CHANNELS: u32 = 0xFFFF0000;
    /// Lowest bit of [`STATUS_CHANNELS`].
    pub const STATUS_CHANNELS_LSB: u32 = 16;
    /// Source of shots.
    pub const MODE: u16 = 0x810;
    /// `mode`: What starts a shot: 0 the end of the previous one, 1 every `period`, 2 triggers. These are the modes of the Start message.
    pub const MODE_KIND: u32 = 0x00000003;
    /// Lowest bit of [`MODE_KIND`].
    pub const MODE_KIND_LSB: u32 = 0;
    /// `mode`: Enable the trigger input (rising edges).
    pub const MODE_PIN: u32 = 1 << 4;
    /// `mode`: Enable trigger commands from the network.
    pub const MODE_COMMAND: u32 = 1 << 5;
    /// `mode`: Accept trigger commands with any destination address.
    pub const MODE_ANY_ADDRESS: u32 = 1 << 8;
    /// Samples per channel of a shot, at least 1.
    pub const SAMPLES: u16 = 0x814;
    /// `samples` after reset.
    pub const SAMPLES_RESET: u32 = 0x00000001;
    /// Clocks of `clk` between shots in mode 1, at least 1.
    pub const PERIOD: u16 = 0x818;
    /// `period` after reset.
    pub const PERIOD_RESET: u32 = 0x00000001;
    /// Number of shots of a run, bits 31:0. If all 48 bits are 0, the run lasts until `control.stop`.
    pub const SHOTS_WANTED_LOW: u16 = 0x820;
    /// Number of shots of a run, bits 47:32.
    pub const SHOTS_WANTED_HIGH: u16 = 0x824;
    /// `shots_wanted_high`: Bits 47:32.
    pub const SHOTS_WANTED_HIGH_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`SHOTS_WANTED_HIGH_NUMBER`].
    pub const SHOTS_WANTED_HIGH_NUMBER_LSB: u32 = 0;
    /// Shot number for `control.load_number`, bits 31:0.
    pub const FIRST_NUMBER_LOW: u16 = 0x828;
    /// Shot number for `control.load_number`, bits 47:32.
    pub const FIRST_NUMBER_HIGH: u16 = 0x82C;
    /// `first_number_high`: Bits 47:32.
    pub const FIRST_NUMBER_HIGH_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`FIRST_NUMBER_HIGH_NUMBER`].
    pub const FIRST_NUMBER_HIGH_NUMBER_LSB: u32 = 0;
    /// UDP port of trigger commands.
    pub const TRIGGER_PORT: u16 = 0x830;
    /// `trigger_port` after reset.
    pub const TRIGGER_PORT_RESET: u32 = 0x0000BB26;
    /// `trigger_port`: Port number.
    pub const TRIGGER_PORT_NUMBER: u32 = 0x0000FFFF;
    /// Lowest bit of [`TRIGGER_PORT_NUMBER`].
    pub const TRIGGER_PORT_NUMBER_LSB: u32 = 0;
    /// First two bytes of the MAC address that trigger commands are sent to.
    pub const OWN_MAC_HIGH: u16 = 0x834;
    /// `own_mac_high`: First byte in bits 15:8.
    pub const OWN_MAC_HIGH_BYTES: u32 = 0x0000FFFF;
    /// Lowest bit of [`OWN_MAC_HIGH_BYTES`].
    pub const OWN_MAC_HIGH_BYTES_LSB: u32 = 0;
    /// Last four bytes of that MAC address.
    pub const OWN_MAC_LOW: u16 = 0x838;
    /// IP address that trigger commands are sent to: the first word has the first four bytes; IPv4 a.b.c.d as ::ffff:a.b.c.d.
    pub const OWN_IP: [u16; 4] = [0x840, 0x844, 0x848, 0x84C];
    /// Length of the transmit sequence in events; 0: every shot has event 0.
    pub const EVENT_COUNT: u16 = 0x850;
    /// `event_count`: 0 to 63.
    pub const EVENT_COUNT_NUMBER: u32 = 0x0000003F;
    /// Lowest bit of [`EVENT_COUNT_NUMBER`].
    pub const EVENT_COUNT_NUMBER_LSB: u32 = 0;
    /// Set one event of the transmit sequence. Reads as 0.
    pub const EVENT: u16 = 0x854;
    /// `event`: Index, from 0.
    pub const EVENT_INDEX: u32 = 0x003F0000;
    /// Lowest bit of [`EVENT_INDEX`].
    pub const EVENT_INDEX_LSB: u32 = 16;
    /// `event`: Event number.
    pub const EVENT_VALUE: u32 = 0x0000FFFF;
    /// Lowest bit of [`EVENT_VALUE`].
    pub const EVENT_VALUE_LSB: u32 = 0;
    /// Number of the active shot, or of the next one. 48 bits: read this word first, then the next.
    pub const NEXT_NUMBER: u16 = 0x880;
    /// Shots started in this run. 48 bits: read this word first, then the next.
    pub const SHOTS: u16 = 0x888;
    /// Triggers of this run that started no shot: they came too early, or their sequence numbers were skipped. 48 bits: read this word first, then the next.
    pub const MISSED: u16 = 0x890;
    /// Trigger commands with a repeated sequence number. 48 bits: read this word first, then the next.
    pub const REPEATED: u16 = 0x898;
    /// Triggers that arrived while no run accepted them. 48 bits: read this word first, then the next.
    pub const UNEXPECTED: u16 = 0x8A0;
    /// Shots not started because the lanes delivered no samples; each also counts as missed. 48 bits: read this word first, then the next.
    pub const REFUSED: u16 = 0x8A8;
    /// Shots with missing samples, which are replaced by zeros; their record has a wrong CRC. 48 bits: read this word first, then the next.
    pub const DAMAGED: u16 = 0x8B0;
    /// Number of the last damaged shot. 48 bits: read this word first, then the next.
    pub const DAMAGED_NUMBER: u16 = 0x8B8;
}
