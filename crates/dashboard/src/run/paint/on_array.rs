//! Painters of echoes, which need to know the array: the sender may describe it when the run begins.

use super::EventPainter;
use crate::pictures::Picture;
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_compute::ultrasound::Array;
use shotline_store::shot::Event;
use std::fmt;
use std::sync::Arc;

/// Chooses the array of the pictures, given the one that the sender describes, or else a common one.
#[derive(Clone)]
pub struct ArrayChoice(Arc<dyn Fn(Array) -> Array + Send + Sync>);

impl ArrayChoice {
    /// Creates a choice.
    pub fn new(choose: impl Fn(Array) -> Array + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }
    /// Returns the array for a run.
    pub fn of(&self, about: &About) -> Array {
        (self.0)(about.array.map_or_else(Array::default, Array::from))
    }
}

impl Default for ArrayChoice {
    fn default() -> Self {
        Self::new(|array| array)
    }
}

impl fmt::Debug for ArrayChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArrayChoice")
    }
}

/// A painter that is created once the array is known.
pub(super) struct OnArray {
    choice: ArrayChoice,
    create: fn(Array) -> Box<dyn EventPainter>,
    painter: Option<Box<dyn EventPainter>>,
}

impl OnArray {
    pub(super) fn boxed(choice: &ArrayChoice, create: fn(Array) -> Box<dyn EventPainter>) -> Box<dyn EventPainter> {
        Box::new(Self { choice: choice.clone(), create, painter: None })
    }

    fn painter(&mut self, about: &About) -> &mut dyn EventPainter {
        &mut **self.painter.get_or_insert_with(|| (self.create)(self.choice.of(about)))
    }
}

impl EventPainter for OnArray {
    fn info(&self) -> PictureInfo {
        (self.create)(Array::default()).info()
    }

    fn request(&mut self, about: &About, events_per_s: f64) -> Request {
        self.painter(about).request(about, events_per_s)
    }

    fn take(&mut self, about: &About, event: Event) -> Option<Event> {
        self.painter(about).take(about, event)
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        self.painter(about).paint(about, events)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::about;
    use super::*;
    use shotline_wire::shot::{Packing, Trailer};

    #[test]
    fn arguments_replace_parts_of_the_described_array() {
        let mut about = about(1, (4, 60), (16, Packing::Int16Le), 0, Trailer::None);
        let choice = ArrayChoice::new(|array| Array { pitch_m: 1e-3, ..array });
        assert_eq!(choice.of(&about), Array { pitch_m: 1e-3, ..Array::default() });
        let described = Array { sound_speed_m_s: 1480.0, angles_rad: vec![-0.1, 0.1], ..Array::default() };
        about.array = described.description();
        let chosen = choice.of(&about);
        assert_eq!((chosen.pitch_m, chosen.sound_speed_m_s, chosen.waves()), (1e-3, 1480.0, 2));
        let mut painter = OnArray::boxed(&choice, |array| Box::new(super::super::bmode::BMode::new(array)));
        assert_eq!(painter.request(&about, 0.0).count, 2, "one event for each transmission");
    }
}
