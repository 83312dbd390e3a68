//! Shots prepared before sending: test patterns or recorded radio-frequency data.

use super::config::{Config, MODEL};
use super::error::ProbeError;
use super::prebuilt::{self, Prebuilt};
use super::samples::{Source, SourceReport};
use super::shots::{CopyRing, Payload, ReadError, ShotContext, Shots, Upcoming};
use shotline_memory::Registrar;
use shotline_wire::record::Record;
use shotline_wire::setup::Model;
use shotline_wire::shot::Geometry;

/// The distinct shots of a configuration, sent cyclically.
#[derive(Debug)]
pub struct Patterns {
    source: Source,
    prebuilt: Prebuilt,
    links: u8,
    next: u64,
}

impl Patterns {
    /// Opens the sample source and allocates memory for the distinct shots.
    pub(super) fn new(config: &Config, registrar: &mut Registrar) -> Result<Self, ProbeError> {
        config.check()?;
        let source = Source::before(config, |period, geometry| prebuilt::memory(period, geometry, config.links))?;
        let prebuilt = Prebuilt::new(&source, config.links, registrar)?;
        Ok(Self { source, prebuilt, links: config.links, next: config.first_shot })
    }
}

impl Shots for Patterns {
    fn model(&self) -> Model {
        Model::from(MODEL).unwrap_or_default()
    }
    fn report(&self) -> SourceReport {
        self.source.report()
    }
    fn pattern_period(&self) -> u32 {
        self.source.pattern_period()
    }
    fn geometry(&self) -> &Geometry {
        self.source.geometry()
    }
    fn is_live(&self) -> bool {
        true
    }
    fn prepare(&mut self, link: u8, stream: u32, geometry: &Geometry) {
        self.prebuilt.fill(link, stream, geometry, &self.source);
    }
    fn begin(&mut self, next: u64) -> u64 {
        next
    }

    fn upcoming(&mut self) -> Upcoming {
        Upcoming::Shot { number: self.next, recorded_ns: None }
    }

    fn load(&mut self, context: &ShotContext) -> Result<u64, ReadError> {
        let shot = self.next;
        self.next = shot.wrapping_add(1);
        let event = context.event.map_or_else(|| self.prebuilt.pattern(shot), u32::from);
        for link in 0..self.links {
            let Some(stream) = self.prebuilt.stream(link) else { continue };
            let record = Record {
                clock_locked: context.stamp.locked,
                triggered: context.triggered,
                shot,
                tai_ns: context.stamp.tai_ns,
                stream,
                event,
                ..Record::of(self.prebuilt.geometry(link))
            };
            self.prebuilt.write_record(link, &record);
        }
        Ok(shot)
    }

    fn geometry_of(&self, link: u8) -> &Geometry {
        self.prebuilt.geometry(link)
    }
    fn contains(&self, _link: u8, _packet: u16) -> bool {
        true
    }
    fn payload(&self, link: u8, shot: u64, packet: u16) -> Payload {
        self.prebuilt.payload(link, shot, packet)
    }
    fn copies(&mut self) -> &mut CopyRing {
        self.prebuilt.copies()
    }
}
