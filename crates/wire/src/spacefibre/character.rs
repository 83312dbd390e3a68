//! Values of characters: K-codes, and the symbols after a comma that name a control word.
//!
//! The character Kx.y or Dx.y has the value `32 y + x`.

/// Comma K28.7: begins most control words.
pub const COMMA: u8 = 0xFC;
/// Comma K28.5: begins the control words of lane initialisation.
pub const INIT_COMMA: u8 = 0xBC;
/// K28.0: begins the end of a data frame.
pub const END_DATA_FRAME: u8 = 0x1C;
/// K28.2: begins the end of a broadcast frame.
pub const END_BROADCAST_FRAME: u8 = 0x5C;
/// K28.3: begins a flow control token.
pub const FLOW_CONTROL_TOKEN: u8 = 0x7C;
/// K27.7: fills the words of a data frame after the end of a packet.
pub const FILL: u8 = 0xFB;
/// K29.7: end of packet.
pub const EOP: u8 = 0xFD;
/// K30.7: end of a packet that is incomplete.
pub const EEP: u8 = 0xFE;
/// K0.0: a character that was received with an error. It is never sent, and has no symbol on the line.
pub const RECEIVE_ERROR: u8 = 0x00;

/// D14.6: second character of most control words of the lane layer.
pub const LANE_CONTROL: u8 = 0xCE;
/// D17.1: [`LANE_CONTROL`] received with inverted polarity.
pub const INVERTED_LANE_CONTROL: u8 = 0x31;
/// D31.3.
pub const SKIP: u8 = 0x7F;
/// D15.6.
pub const IDLE: u8 = 0xCF;
/// D6.2.
pub const INIT1: u8 = 0x46;
/// D25.5: [`INIT1`] received with inverted polarity.
pub const INVERTED_INIT1: u8 = 0xB9;
/// D6.5.
pub const INIT2: u8 = 0xA6;
/// D25.2: [`INIT2`] received with inverted polarity.
pub const INVERTED_INIT2: u8 = 0x59;
/// D24.1.
pub const INIT3: u8 = 0x38;
/// D30.3.
pub const STANDBY: u8 = 0x7E;
/// D4.3.
pub const LOST_SIGNAL: u8 = 0x64;
/// D0.1.
pub const ACTIVE: u8 = 0x20;
/// D23.3.
pub const ALIGN: u8 = 0x77;
/// D16.2.
pub const START_DATA_FRAME: u8 = 0x50;
/// D29.2.
pub const START_BROADCAST_FRAME: u8 = 0x5D;
/// D4.2.
pub const START_IDLE_FRAME: u8 = 0x44;
/// D2.5.
pub const ACK: u8 = 0xA2;
/// D27.5.
pub const NACK: u8 = 0xBB;
/// D15.3.
pub const FULL: u8 = 0x6F;
/// D7.4.
pub const RETRY: u8 = 0x87;
