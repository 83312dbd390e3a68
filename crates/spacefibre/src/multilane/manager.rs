//! Which lanes are used, and for what (5.6.8 to 5.6.10).

use super::types::{MAX_LANES, MultiLaneConfig, bits};
use shotline_wire::spacefibre::Capability;

/// Sets of lanes: bit i for lane i.
#[derive(Clone, Debug)]
pub(super) struct Manager {
    /// Lanes of the link.
    all: u16,
    tx_enabled: u16,
    rx_enabled: u16,
    /// Lanes in the state Active.
    active: u16,
    /// Whether no lane was in the state Active when this word time began.
    was_idle: bool,
    /// Active lanes that send.
    transmitting: u16,
    /// Those among them that send data. The others are hot redundant.
    data_sending: u16,
    /// Number of the data-sending lanes.
    data_lanes: usize,
    /// Lanes whose transmit path is off.
    rx_only: u16,
    /// Lanes in the state ClearLine.
    cleared: u16,
    /// Lanes that the far end reported as active since they left the state ClearLine.
    far_end_active: u16,
    /// Lanes that received a capability since they left the state ClearLine.
    capable: u16,
    /// Whether the last capability of any lane has the flag DATA_SCRAMBLED.
    is_far_scrambled: bool,
    /// The configuration, or a far end with one lane only, requires the bypass.
    is_bypass: bool,
    configured_bypass: bool,
    /// Maximum number of data-sending lanes, as configured and as it is used.
    max_data_lanes: usize,
    used_max_data_lanes: usize,
    capability: Capability,
}

/// Inputs of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneInputs {
    pub(super) capability: Capability,
    pub(super) tx_only: bool,
    pub(super) rx_only: bool,
    pub(super) far_end_active: bool,
    /// Whether the lane is kept in reset.
    pub(super) held: bool,
}

impl Manager {
    pub(super) fn new(config: &MultiLaneConfig) -> Self {
        let all = u16::MAX >> (MAX_LANES - config.lanes.clamp(1, MAX_LANES));
        let is_bypass = config.bypass || config.lanes == 1;
        Self {
            all,
            tx_enabled: config.tx_enabled & all,
            rx_enabled: config.rx_enabled & all,
            active: 0,
            was_idle: true,
            transmitting: 0,
            data_sending: 0,
            data_lanes: 0,
            rx_only: 0,
            cleared: all,
            far_end_active: 0,
            capable: 0,
            is_far_scrambled: false,
            is_bypass,
            configured_bypass: is_bypass,
            max_data_lanes: config.max_data_lanes,
            used_max_data_lanes: config.max_data_lanes,
            capability: Capability::default(),
        }
    }

    /// Returns the lanes of the link.
    #[inline]
    pub(super) fn all(&self) -> u16 {
        self.all
    }

    #[inline]
    pub(super) fn is_bypass(&self) -> bool {
        self.is_bypass
    }

    #[inline]
    pub(super) fn active(&self) -> u16 {
        self.active
    }

    /// Returns the active lanes that may receive.
    pub(super) fn active_receiving(&self) -> u16 {
        self.active & self.rx_enabled
    }

    #[inline]
    pub(super) fn transmitting(&self) -> u16 {
        self.transmitting
    }

    #[inline]
    pub(super) fn data_lanes(&self) -> usize {
        self.data_lanes
    }

    #[inline]
    pub(super) fn data_sending(&self) -> u16 {
        self.data_sending
    }

    /// Begins a word time.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.was_idle = self.active == 0;
    }

    pub(super) fn set_capability(&mut self, capability: Capability) {
        self.capability = capability;
    }

    pub(super) fn set_enabled(&mut self, tx: u16, rx: u16) {
        (self.tx_enabled, self.rx_enabled) = (tx & self.all, rx & self.all);
    }

    pub(super) fn set_max_data_lanes(&mut self, lanes: usize) {
        self.max_data_lanes = lanes;
    }

    /// Uses the configured maximum number of data-sending lanes.
    pub(super) fn apply_max_data_lanes(&mut self) {
        self.used_max_data_lanes = self.max_data_lanes;
    }

    /// Takes the lanes of a valid ACTIVE word, and returns `true` if lanes that send only must be updated (5.6.9.2).
    #[inline]
    pub(super) fn set_far_active(&mut self, lanes: u16) -> bool {
        let has_changed = (lanes ^ self.far_end_active) & self.tx_only() != 0;
        self.far_end_active = lanes & self.all;
        has_changed
    }

    /// Takes the far end's capability, and returns `true` if no lane was active when the word time began.
    pub(super) fn set_far_capability(&mut self, lane: usize, capability: Capability) -> bool {
        self.capable |= 1 << lane;
        self.is_far_scrambled = capability.contains(Capability::DATA_SCRAMBLED);
        if lane == 0 {
            // The standard defines the flag but no reaction (5.3.3.8i): a far end with one lane sends no ALIGN words.
            self.is_bypass = self.configured_bypass || !capability.contains(Capability::MULTI_LANE);
        }
        self.was_idle
    }

    /// Returns `true` if the far end scrambles what it sends on a lane with this last capability (5.7.6.2.2a).
    ///
    /// A lane that receives only becomes active without INIT3 of its own (5.5.2.10e.3).
    pub(super) fn is_scrambled(&self, lane: usize, far_capability: Capability) -> bool {
        let is_capable = self.capable >> lane & 1 == 1;
        if is_capable { far_capability.contains(Capability::DATA_SCRAMBLED) } else { self.is_far_scrambled }
    }

    /// Takes the lanes in the states Active and ClearLine.
    pub(super) fn update(&mut self, active: u16, cleared: u16) {
        (self.active, self.cleared) = (active, cleared);
        self.far_end_active &= !cleared;
        self.capable &= !cleared;
        let rx_only = self.rx_enabled & !self.tx_enabled;
        self.rx_only = if self.is_observed() { rx_only } else { self.rx_only & rx_only };
        if active == 0 {
            self.apply_max_data_lanes();
        }
        self.transmitting = active & self.tx_enabled;
        let lowest = bits(self.transmitting).take(self.used_max_data_lanes.max(1));
        self.data_sending = lowest.fold(0, |lanes, lane| lanes | 1 << lane);
        self.data_lanes = self.data_sending.count_ones() as usize;
    }

    /// Returns `true` if a lane in both directions is active, so that each end reports its active lanes to the other.
    fn is_observed(&self) -> bool {
        self.active & self.tx_enabled & self.rx_enabled != 0
    }

    /// Lanes that send only.
    fn tx_only(&self) -> u16 {
        self.tx_enabled & !self.rx_enabled
    }

    /// Returns the active lanes that send only and must be reset: the far end has not reported them as active, or it no
    /// longer can (5.6.9.5).
    pub(super) fn failed(&self) -> u16 {
        self.active & self.tx_only() & if self.is_observed() { !self.far_end_active } else { u16::MAX }
    }

    /// Returns the inputs of a lane.
    pub(super) fn inputs(&self, lane: usize) -> LaneInputs {
        let is_in = |lanes: u16| lanes >> lane & 1 == 1;
        // Disabled lanes (5.6.8c.4), and in bypass all but lane 0.
        let unused = !(self.tx_enabled | self.rx_enabled) | if self.is_bypass { !1 } else { 0 };
        LaneInputs {
            capability: self.capability.with(Capability::MULTI_LANE, !self.configured_bypass),
            tx_only: is_in(self.tx_only() & !self.cleared),
            rx_only: is_in(self.rx_only),
            // Other lanes complete their initialisation with INIT words: a far end that has not yet lost such a lane
            // would report it as active.
            far_end_active: is_in(self.tx_only() & self.far_end_active),
            held: is_in(unused),
        }
    }
}
