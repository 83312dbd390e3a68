//! Description of an ultrasound array.

use crate::{ParseError, bytes};

/// Linear array of a probe and its plane waves: part of the reply to a Query ([`super::Describe`]).
///
/// | byte | field | type |
/// |---|---|---|
/// | 68 | element pitch in nm; 0: no description, and the fields below are zeros | u32 |
/// | 72 | width of an element in nm | u32 |
/// | 76 | height of an element in nm | u32 |
/// | 80 | centre frequency of the pulse in Hz | u32 |
/// | 84 | speed of sound in mm/s | u32 |
/// | 88 | angle of the first plane wave in microradians | i32 |
/// | 92 | angle of the last plane wave in microradians | i32 |
/// | 96 | time from the transmission to the first sample in ns | i32 |
/// | 100 | plane waves of a frame, at least 1 | u16 |
///
/// The elements are the channels of all links side by side, symmetric to the origin. The angles
/// between the first and the last are evenly spaced. Shot `n` is wave `n mod waves`. A wave is transmitted when the peak of its pulse passes the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayDescription {
    /// Distance between the centres of two elements in nm, at least 1.
    pub pitch_nm: u32,
    /// Width of an element in nm, at least 1.
    pub width_nm: u32,
    /// Height of an element in nm, at least 1.
    pub height_nm: u32,
    /// Centre frequency of the pulse in Hz, at least 1.
    pub centre_hz: u32,
    /// Speed of sound in mm/s, at least 1.
    pub sound_speed_mm_s: u32,
    /// Angle of the first plane wave in microradians.
    pub first_angle_urad: i32,
    /// Angle of the last plane wave in microradians.
    pub last_angle_urad: i32,
    /// Time from the transmission to the first sample in ns.
    pub initial_time_ns: i32,
    /// Number of plane waves of a frame, at least 1.
    pub waves: u16,
}

impl ArrayDescription {
    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Option<Self>, ParseError> {
        let pitch_nm = body.u32()?;
        if pitch_nm == 0 {
            return Ok(None);
        }
        let this = Self {
            pitch_nm,
            width_nm: positive("width of an element", body.u32()?)?,
            height_nm: positive("height of an element", body.u32()?)?,
            centre_hz: positive("centre frequency", body.u32()?)?,
            sound_speed_mm_s: positive("speed of sound", body.u32()?)?,
            first_angle_urad: body.u32()?.cast_signed(),
            last_angle_urad: body.u32()?.cast_signed(),
            initial_time_ns: body.u32()?.cast_signed(),
            waves: body.u16()?,
        };
        positive("number of plane waves", this.waves.into())?;
        Ok(Some(this))
    }

    pub(super) fn emit<const N: usize>(&self, out: bytes::Header<N>) -> bytes::Header<N> {
        out.u32(self.pitch_nm)
            .u32(self.width_nm)
            .u32(self.height_nm)
            .u32(self.centre_hz)
            .u32(self.sound_speed_mm_s)
            .u32(self.first_angle_urad.cast_unsigned())
            .u32(self.last_angle_urad.cast_unsigned())
            .u32(self.initial_time_ns.cast_unsigned())
            .u16(self.waves)
    }
}

fn positive(what: &'static str, found: u32) -> Result<u32, ParseError> {
    match found {
        0 => Err(ParseError::Range { what, min: 1, max: u32::MAX.into(), found: 0 }),
        found => Ok(found),
    }
}
