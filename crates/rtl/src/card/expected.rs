//! The packets that a channel must deliver: each is in its buffers as it was sent, or was dropped whole.

use super::descriptors::{Buffer, Settings};
use super::memory::{GUARD, Memory};
use super::packet::{BLOCK, Packet, Tally};
use std::collections::VecDeque;

/// Packets sent to a channel that were not found in memory yet.
#[derive(Debug, Default)]
pub struct Expected {
    /// Packets sent.
    pub sent: Tally,
    /// Packets found in memory.
    pub received: Tally,
    packets: VecDeque<Packet>,
}

impl Expected {
    /// Adds the next packet of a channel.
    pub(crate) fn send(&mut self, channel: usize, length: u16) -> Packet {
        let packet = Packet { channel: channel as u8, number: self.sent.packets as u32, length };
        self.sent.count(length);
        self.packets.push_back(packet);
        packet
    }

    /// Finds the packets that used the first `count` buffers. They are the oldest ones that fit: packets before each of
    /// them were dropped.
    ///
    /// # Errors
    /// If there is no such packet.
    pub(crate) fn take(
        &mut self,
        memory: &Memory,
        buffers: &[Buffer],
        count: usize,
        settings: &Settings,
    ) -> Result<(), String> {
        let mut buffers = &buffers[..count];
        let mut contents = Vec::new();
        while !buffers.is_empty() {
            let matches = |packet: &Packet| is_in(memory, buffers, *packet, settings, &mut contents);
            let Some(index) = self.packets.iter().position(matches) else {
                let Buffer { address, .. } = buffers[0];
                let first = memory.read_u64(address);
                let oldest = self.packets.front();
                return Err(format!("{first:#018x} at {address:#x} begins no packet; the oldest is {oldest:?}"));
            };
            self.packets.drain(..index);
            if let Some(Packet { length, .. }) = self.packets.pop_front() {
                self.received.count(length);
                buffers = &buffers[layout(length.into(), settings).count()..];
            }
        }
        Ok(())
    }
}

/// Returns the bytes of a packet in each of the buffers that it uses.
pub(crate) fn layout(length: usize, settings: &Settings) -> impl Iterator<Item = usize> {
    let (size, header) = (usize::from(settings.buffer), usize::from(settings.header));
    let rest = length.saturating_sub(header);
    let (pairs, each) = if header > 0 { (rest.div_ceil(size).max(1), 2) } else { (length.div_ceil(size), 1) };
    (0..pairs * each).map(move |index| match index {
        0 if header > 0 => length.min(header),
        _ if header > 0 && index % 2 == 0 => 0,
        _ => rest.saturating_sub(index / each * size).min(size),
    })
}

/// Returns `true` if a packet is at the beginning of the buffers, and no other byte of those that it uses was written.
fn is_in(memory: &Memory, buffers: &[Buffer], packet: Packet, settings: &Settings, contents: &mut Vec<u8>) -> bool {
    let mut first = packet.block(0).to_le_bytes();
    let known = BLOCK.min(packet.length.into());
    memory.read(buffers[0].address, &mut first[..known]);
    if first != packet.block(0).to_le_bytes() || layout(packet.length.into(), settings).count() > buffers.len() {
        return false;
    }
    let bytes = packet.bytes();
    let mut rest = bytes.as_slice();
    layout(packet.length.into(), settings).zip(buffers).all(|(length, buffer)| {
        let Some((now, after)) = rest.split_at_checked(length) else { return false };
        rest = after;
        contents.resize(buffer.length, 0);
        memory.read(buffer.address, contents);
        contents.len() >= length && contents[..length] == *now && contents[length..].iter().all(|&byte| byte == GUARD)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout_of(length: usize, buffer: u16, header: u8) -> Vec<usize> {
        layout(length, &Settings { buffer, header, ..Settings::default() }).collect()
    }

    #[test]
    fn packets_fill_buffers_or_pairs_of_buffers() {
        assert_eq!(layout_of(100, 64, 0), [64, 36]);
        assert_eq!(layout_of(64, 64, 0), [64]);
        assert_eq!(layout_of(100, 64, 40), [40, 60]);
        assert_eq!(layout_of(40, 64, 40), [40, 0]);
        assert_eq!(layout_of(7, 64, 40), [7, 0]);
        assert_eq!(layout_of(170, 64, 40), [40, 64, 0, 64, 0, 2]);
    }

    #[test]
    fn packets_are_found_in_order_and_damage_is_noticed() {
        let settings = Settings { buffer: 64, ..Settings::default() };
        let buffers = [0_u64, 1, 2, 3].map(|index| Buffer { address: 0x1000 + 64 * index, length: 64 });
        let mut memory = Memory::default();
        let mut expected = Expected::default();
        let packets = [1, 100, 3, 64].map(|length| expected.send(5, length));
        memory.write(buffers[0].address, &packets[1].bytes());
        memory.write(buffers[2].address, &packets[3].bytes());
        assert_eq!(expected.take(&memory, &buffers, 2, &settings), Ok(()));
        assert_eq!((expected.received, expected.packets.len()), (Tally { packets: 1, bytes: 100 }, 2));
        memory.write(buffers[2].address + 63, &[0]);
        assert!(expected.take(&memory, &buffers[2..], 1, &settings).is_err());
        memory.write(buffers[2].address, &packets[3].bytes());
        assert_eq!(expected.take(&memory, &buffers[2..], 1, &settings), Ok(()));
        assert!(expected.take(&memory, &buffers[3..], 1, &settings).is_err());
    }
}
