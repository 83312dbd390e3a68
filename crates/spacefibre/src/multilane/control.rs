//! Control of the lanes by the multi-lane layer, after their states and events.

use super::MultiLane;
use super::types::{MultiLaneEvent, bits};
use crate::lane::{Event, State};
use shotline_wire::spacefibre::Capability;

impl MultiLane {
    /// Follows changes of the lanes' states, and takes their events.
    #[cold]
    pub(super) fn update_lanes(&mut self) {
        loop {
            self.take_events();
            let (mut active, mut entered, mut cleared) = (0, 0, 0);
            for (lane, port) in self.ports.iter_mut().enumerate() {
                let state = port.lane.state();
                active |= u16::from(state == State::Active) << lane;
                entered |= u16::from(state == State::Active && port.state != State::Active) << lane;
                cleared |= u16::from(state == State::ClearLine) << lane;
                port.state = state;
            }
            self.manager.update(active, cleared);
            self.reset_columns(entered);
            let (active, receiving) = match self.manager.is_bypass() {
                true => (0, 0),
                false => (active, self.manager.active_receiving()),
            };
            self.aligner.set_lanes(active, receiving);
            let failed = self.manager.failed();
            bits(failed).for_each(|lane| self.ports[lane].lane.reset());
            // A lane that was reset is not active any more, so this ends.
            if !self.control_lanes() && failed == 0 {
                break;
            }
        }
    }

    /// Takes the events of all lanes.
    fn take_events(&mut self) {
        for (lane, port) in self.ports.iter_mut().enumerate() {
            while let Some(event) = port.lane.next_event() {
                self.events.push(match event {
                    Event::FarCapability(capability) => {
                        let no_lane_active = self.manager.set_far_capability(lane, capability);
                        MultiLaneEvent::FarCapability { lane, capability, no_lane_active }
                    }
                    event => MultiLaneEvent::Lane { lane, event },
                });
            }
        }
    }

    /// Ends the frames of these lanes, and sets whether their next ones are scrambled: as announced in INIT3
    /// (5.7.6.2.1a, 5.7.6.2.2a).
    pub(super) fn reset_columns(&mut self, lanes: u16) {
        for (lane, port) in self.ports.iter_mut().enumerate().filter(|(lane, _)| lanes >> lane & 1 == 1) {
            port.encoder.reset(port.lane.sent_capability().contains(Capability::DATA_SCRAMBLED));
            port.decoder.reset(self.manager.is_scrambled(lane, port.lane.far_capability()));
        }
    }

    /// Sets each lane's inputs, and returns `true` if some lane is now held in reset or not held any more.
    fn control_lanes(&mut self) -> bool {
        let mut has_changed = false;
        for (index, port) in self.ports.iter_mut().enumerate() {
            let inputs = self.manager.inputs(index);
            port.lane.set_capability(inputs.capability);
            port.lane.set_tx_only(inputs.tx_only);
            port.lane.set_rx_only(inputs.rx_only);
            port.lane.set_far_end_active(inputs.far_end_active);
            if port.lane.is_held() != inputs.held {
                port.lane.hold_reset(inputs.held);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Sets the capability that the lanes announce: of the flags LINK_RESET, DATA_SCRAMBLED and ROUTING_SWITCH. It
    /// takes effect when a lane is next initialised.
    pub fn set_capability(&mut self, capability: Capability) {
        self.manager.set_capability(capability);
        self.update_lanes();
    }

    /// Sets which lanes may send and which may receive: bit i for lane i (TxEn, RxEn).
    pub fn set_enabled(&mut self, tx: u16, rx: u16) {
        self.manager.set_enabled(tx, rx);
        self.update_lanes();
    }

    /// Sets the maximum number of data-sending lanes. It takes effect with the next link reset, or when no lane is
    /// active (5.6.10d).
    pub fn set_max_data_lanes(&mut self, lanes: usize) {
        self.manager.set_max_data_lanes(lanes);
        self.update_lanes();
    }
}
