//! Fixed-point numbers in context fields, and the format of the samples (9.13.3).

/// A frequency, a bandwidth or a rate, in units of 2^-20 Hz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hertz(pub i64);

impl Hertz {
    /// Returns the nearest value. Values saturate at +-8.8 THz, and NaN becomes zero.
    pub fn new(hz: f64) -> Self {
        Self(nearest(hz * (1 << 20) as f64))
    }

    /// Returns the value in Hz if it is a positive integer.
    pub fn whole(self) -> Option<u64> {
        u64::try_from(self.0).ok().filter(|n| *n > 0 && n % (1 << 20) == 0).map(|n| n >> 20)
    }

    /// Returns the value in Hz.
    pub fn hz(self) -> f64 {
        self.0 as f64 / (1 << 20) as f64
    }
}

/// A level (dBm) or gain (dB), in units of 1/128 dB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decibels(pub i16);

impl Decibels {
    /// Returns the nearest value. Values saturate at +-256 dB.
    pub fn new(db: f64) -> Self {
        Self(nearest(db * 128.0).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }

    /// Returns the value in dB or dBm.
    pub fn db(self) -> f64 {
        f64::from(self.0) / 128.0
    }
}

/// A temperature, in units of 1/64 degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Celsius(pub i16);

impl Celsius {
    /// Returns the nearest value. Values saturate at +-512 degrees.
    pub fn new(degrees: f64) -> Self {
        Self(nearest(degrees * 64.0).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }

    /// Returns the value in degrees Celsius.
    pub fn degrees(self) -> f64 {
        f64::from(self.0) / 64.0
    }
}

/// Rounds to the nearest integer, halves away from zero. `f64::round` is not available in `no_std`.
fn nearest(value: f64) -> i64 {
    (if value < 0.0 { value - 0.5 } else { value + 0.5 }) as i64
}

/// Numbers that make up a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// One real number.
    Real,
    /// Real part and imaginary part.
    Complex,
    /// Magnitude and angle.
    Polar,
}

/// Representation of the numbers in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// Two's complement integer or fraction.
    Signed,
    /// Unsigned integer or fraction.
    Unsigned,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
}

/// Format of the samples: the two words of the field, with accessors for the common parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format(pub u64);

impl Format {
    /// Pairs of 16-bit integers, I first, in one word.
    pub const IQ16: Self = Self(0x2000_03cf_0000_0000);
    /// 16-bit integers, two in a word.
    pub const REAL16: Self = Self(0x0000_03cf_0000_0000);

    /// Returns `true` for link-efficient packing, in which numbers may span two words. In processing-efficient packing
    /// none does.
    pub fn dense(self) -> bool {
        self.0 >> 63 == 1
    }

    /// Returns the numbers that make up a sample, or `None` for the reserved code.
    pub fn arrangement(self) -> Option<Arrangement> {
        match self.0 >> 61 & 3 {
            0 => Some(Arrangement::Real),
            1 => Some(Arrangement::Complex),
            2 => Some(Arrangement::Polar),
            _ => None,
        }
    }

    /// Returns the representation of the numbers, or `None` for the codes that [`Item`] does not have.
    pub fn item(self) -> Option<Item> {
        match self.0 >> 56 & 31 {
            0b0_0000 => Some(Item::Signed),
            0b1_0000 => Some(Item::Unsigned),
            0b0_1110 => Some(Item::Float32),
            0b0_1111 => Some(Item::Float64),
            _ => None,
        }
    }

    /// Returns the number of bits that a number occupies, 1 to 64.
    pub fn packing_bits(self) -> u32 {
        (self.0 >> 38 & 63) as u32 + 1
    }

    /// Returns the number of significant bits of a number, 1 to 64.
    pub fn item_bits(self) -> u32 {
        (self.0 >> 32 & 63) as u32 + 1
    }

    /// Returns the vector size, 1 to 65536: the number of channels that are sampled together.
    pub fn vector(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }
}
