//! Which pictures a sender's shots have.

use super::on_array::{ArrayChoice, OnArray};
use super::tapped::Tapped;
use super::{EventPainter, bmode, channels, frame, iq, mmode, rf, spectrum, waterfall};
use crate::pictures::Painter;
use shotline_acquire::live::Live;
use shotline_wire::framing::Kind;
use shotline_wire::shot::Packing;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum number of channels of a digitizer; more are those of an array.
const MAX_CHANNELS: u16 = 8;

/// The pictures of one kind of instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureSet {
    /// Images of echoes, and the channels.
    Ultrasound,
    /// Spectra, IQ and traces.
    Digitizer,
    /// Images that shots are.
    Frames,
    /// None.
    None,
}

/// What painters have to know and shots do not say.
#[derive(Clone, Debug, Default)]
pub struct PaintOptions {
    /// Elements and transmissions of an ultrasound probe.
    pub array: ArrayChoice,
    /// Width and height of frames in pixels; none: a guess from the shape of a shot.
    pub image_size: Option<[u32; 2]>,
}

impl PictureSet {
    /// All sets.
    pub const ALL: [Self; 4] = [Self::Ultrasound, Self::Digitizer, Self::Frames, Self::None];

    /// Returns the name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ultrasound => "ultrasound",
            Self::Digitizer => "digitizer",
            Self::Frames => "frames",
            Self::None => "none",
        }
    }

    /// Returns the set for a framing, and the channels and the packing in the settings, if they are there.
    pub fn of(framing: Kind, channels: Option<u16>, packing: Option<Packing>) -> Self {
        match framing {
            Kind::Digitizer | Kind::Vita49 => Self::Digitizer,
            Kind::Hsb => Self::Frames,
            // Pixels or voltages of a telescope: the sample format says which.
            Kind::Spead => Self::of_shape(channels.unwrap_or(1), packing.unwrap_or(Packing::Uint8), Self::Frames),
            Kind::Ud | Kind::Counted | Kind::Udp => {
                Self::of_shape(channels.unwrap_or(96), packing.unwrap_or(Packing::Packed12), Self::Ultrasound)
            }
        }
    }

    fn of_shape(channels: u16, packing: Packing, other: Self) -> Self {
        match packing {
            Packing::Uint8 if channels == 1 => Self::Frames,
            Packing::Uint8 | Packing::Int16Le | Packing::Int16Be if channels <= MAX_CHANNELS => Self::Digitizer,
            _ => other,
        }
    }

    /// Returns the painters.
    pub(super) fn event_painters(self, options: &PaintOptions) -> Vec<Box<dyn EventPainter>> {
        match self {
            Self::Ultrasound => vec![
                OnArray::boxed(&options.array, |array| Box::new(bmode::BMode::new(array))),
                OnArray::boxed(&options.array, |array| Box::new(mmode::MMode::new(array))),
                Box::new(channels::Channels::default()),
                Box::new(rf::Traces::default()),
            ],
            Self::Digitizer => vec![
                Box::new(spectrum::PowerSpectrum::default()),
                Box::new(waterfall::Waterfall::default()),
                Box::new(iq::Constellation::default()),
                Box::new(rf::Traces::default()),
            ],
            Self::Frames => vec![Box::new(frame::Image::new(options.image_size))],
            Self::None => Vec::new(),
        }
    }

    /// Returns the painters of a run's shots.
    pub fn painters(self, live: &Arc<Live>, options: &PaintOptions) -> Vec<Box<dyn Painter>> {
        let tapped = |painter| -> Box<dyn Painter> { Box::new(Tapped::new(Arc::clone(live), painter)) };
        self.event_painters(options).into_iter().map(tapped).collect()
    }
}

impl FromStr for PictureSet {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|set| set.name() == name);
        match found {
            Some(set) => Ok(set),
            None => Err(format!("expected one of the pictures {known}, found {name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_framing_and_the_shape_decide_the_pictures() {
        use Packing::{Int16Le, Uint8};
        use PictureSet::{Digitizer, Frames, Ultrasound};
        for (framing, channels, packing, expected) in [
            (Kind::Digitizer, None, None, Digitizer),
            (Kind::Vita49, Some(96), None, Digitizer),
            (Kind::Hsb, Some(2), Some(Int16Le), Frames),
            (Kind::Spead, None, None, Frames),
            (Kind::Spead, Some(2), Some(Int16Le), Digitizer),
            (Kind::Spead, Some(9), Some(Int16Le), Frames),
            (Kind::Ud, None, None, Ultrasound),
            (Kind::Udp, Some(8), Some(Int16Le), Digitizer),
            (Kind::Udp, Some(8), None, Ultrasound),
            (Kind::Udp, Some(1), Some(Uint8), Frames),
            (Kind::Counted, Some(96), Some(Int16Le), Ultrasound),
        ] {
            assert_eq!(PictureSet::of(framing, channels, packing), expected, "{framing} {channels:?} {packing:?}");
        }
    }

    #[test]
    fn names_are_unique_and_parsed() {
        for set in PictureSet::ALL {
            assert_eq!(set.name().parse(), Ok(set));
            let painters = set.event_painters(&PaintOptions::default());
            let mut kinds: Vec<_> = painters.iter().map(|painter| painter.info().kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            assert_eq!(kinds.len(), painters.len());
        }
        assert!("movies".parse::<PictureSet>().unwrap_err().contains("digitizer"));
    }
}
