//! What the card's side knows of the channels: which run, what their doorbells say, and what room they have.

use super::dma::Maps;
use super::error::CardError;
use super::window::Window;
use shotline_rtl::card::{CHANNELS, Device, channel_register};
use shotline_rtl::registers::card_channel as register;

/// Clocks until the card has fetched descriptors after their doorbell.
const FETCH: u64 = 1024;
/// Descriptors of a group, which is fetched at once.
const GROUP: u16 = 16;
/// Maximum number of descriptors that frames in flight need: half of what the card holds for a channel.
const MAX_IN_FLIGHT: u64 = 128;
/// Bytes that the card adds to a frame: a header, and padding.
const ADDED: usize = 18;
/// Bytes of a frame that it removes: the FCS.
const REMOVED: usize = 4;

/// A channel by its register writes.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// Software has started it, and not stopped it.
    running: bool,
    ring_log2: u32,
    buffer: u32,
    report: u32,
    interrupt: u32,
    /// The last doorbell that was forwarded to the RTL.
    forwarded: u16,
    /// Descriptors given since the start that have been fetched, or will be when there is room.
    ready: u16,
    /// Descriptors given later, and the clock.
    given: Option<(u16, u64)>,
    /// Descriptors of the last report that was looked at.
    used: u16,
}

impl Channel {
    /// Returns the descriptors that a frame with FCS needs, but not more than half a ring.
    fn needed(&self, frame: usize) -> u64 {
        let bytes = frame.saturating_sub(REMOVED) + ADDED;
        let field = |mask: u32, lsb: u32| ((self.buffer & mask) >> lsb) as usize;
        let buffer = field(register::BUFFER_SIZE, 0).max(8);
        let needed = match field(register::BUFFER_HEADER_SIZE, register::BUFFER_HEADER_SIZE_LSB) {
            0 => bytes.div_ceil(buffer),
            header => 2 * bytes.saturating_sub(header).div_ceil(buffer).max(1),
        };
        (needed as u64).min(1 << self.ring_log2 >> 1).min(MAX_IN_FLIGHT)
    }
}

/// All channels.
#[derive(Debug)]
pub(super) struct Channels {
    channels: Vec<Channel>,
    /// Channels that run.
    running: Vec<usize>,
    /// Descriptors that frames in flight need at most.
    in_flight: u64,
}

impl Channels {
    pub fn new() -> Self {
        Self { channels: vec![Channel::default(); CHANNELS], running: Vec::new(), in_flight: 0 }
    }

    /// Returns the number of channels that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Takes a write of software that the card has accepted.
    pub fn written(&mut self, address: u16, value: u32) {
        let Some(number) = address.checked_sub(register::CONTROL).map(|offset| usize::from(offset / register::STRIDE))
        else {
            return;
        };
        let channel = &mut self.channels[number];
        match address - register::STRIDE * number as u16 {
            register::CONTROL => {
                channel.running = value & register::CONTROL_RUN != 0;
                if channel.running {
                    // The start has set the RTL's pointers to 0.
                    (channel.forwarded, channel.ready, channel.given, channel.used) = (0, 0, None, 0);
                }
                self.running = (0..CHANNELS).filter(|&number| self.channels[number].running).collect();
            }
            register::RING => channel.ring_log2 = value & register::RING_SIZE_LOG2,
            register::BUFFER => channel.buffer = value,
            register::REPORT => channel.report = value,
            register::INTERRUPT => channel.interrupt = value,
            _ => {}
        }
    }

    /// Returns the longest time of a report or between interrupts, in units of 256 clocks.
    pub fn longest_time(&self) -> u16 {
        let time = |channel: &Channel| {
            let report = (channel.report & register::REPORT_TIME) >> register::REPORT_TIME_LSB;
            let is_enabled = channel.interrupt & register::INTERRUPT_ENABLE != 0;
            report.max(if is_enabled { channel.interrupt & register::INTERRUPT_INTERVAL } else { 0 }) as u16
        };
        self.running.iter().map(|&number| time(&self.channels[number])).max().unwrap_or(0)
    }

    /// Forwards the doorbells that have changed. Returns `true` if one has.
    ///
    /// # Errors
    /// If the RTL broke a rule.
    pub fn forward(&mut self, window: &Window, device: &mut Device<Maps>) -> Result<bool, CardError> {
        let mut any = false;
        for &number in &self.running {
            let channel = &mut self.channels[number];
            let pointer = window.software_pointer(number);
            if pointer != channel.forwarded {
                channel.forwarded = pointer;
                let address = channel_register(register::SOFTWARE_POINTER, number);
                device.try_write(address, pointer.into()).map_err(CardError::Rule)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Takes what was reported since the last call.
    pub fn look(&mut self, device: &Device<Maps>) {
        for &number in &self.running {
            let channel = &mut self.channels[number];
            let used = device.used(number);
            let more = used.wrapping_sub(std::mem::replace(&mut channel.used, used));
            self.in_flight = self.in_flight.saturating_sub(more.into());
            if let Some((pointer, clock)) = channel.given
                && device.clock() >= clock + FETCH
            {
                (channel.ready, channel.given) = (pointer, None);
            }
            let pointer = channel.forwarded & !(GROUP - 1);
            if channel.given.is_none() && pointer != channel.ready {
                channel.given = Some((pointer, device.clock()));
            }
        }
    }

    /// Takes that no frame and no read is in flight.
    pub fn idle(&mut self) {
        self.in_flight = 0;
        for &number in &self.running {
            let channel = &mut self.channels[number];
            (channel.ready, channel.given) = (channel.forwarded & !(GROUP - 1), None);
        }
    }

    /// Reserves the descriptors for a frame with FCS, and returns `true`, if every channel that runs has enough of them for
    /// all frames in flight.
    pub fn reserve(&mut self, device: &Device<Maps>, frame: usize) -> bool {
        let running = || self.running.iter().filter(|&&number| !device.has_ended(number)).map(|&n| &self.channels[n]);
        let needed = self.in_flight + running().map(|channel| channel.needed(frame)).max().unwrap_or(0);
        let has_room = |channel: &Channel| u64::from(channel.ready.wrapping_sub(channel.used)) >= needed;
        let fits = (needed <= MAX_IN_FLIGHT || self.in_flight == 0) && running().all(has_room);
        if fits {
            self.in_flight = needed;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_needs_descriptors_by_its_length() {
        let mut channel = Channel { buffer: 2048, ring_log2: 9, ..Channel::default() };
        assert_eq!([64, 2034, 2035, 9216].map(|length| channel.needed(length)), [1, 1, 2, 5]);
        channel.buffer = 256 | 80 << register::BUFFER_HEADER_SIZE_LSB;
        assert_eq!([64, 322, 323].map(|length| channel.needed(length)), [2, 2, 4]);
        channel.ring_log2 = 4;
        assert_eq!(channel.needed(9216), 8);
    }
}
