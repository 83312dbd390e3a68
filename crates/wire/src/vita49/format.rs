//! Numbers of a context's fields: fixed point, and the format of the samples (9.13.3).

/// A frequency, a bandwidth or a rate, in units of 2^-20 Hz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hertz(pub i64);

impl Hertz {
    /// The nearest such number; what is beyond +-8.8 THz becomes that, and no number zero.
    pub fn new(hz: f64) -> Self {
        Self(nearest(hz * (1 << 20) as f64))
    }

    /// In Hz, if that is a whole number above 0.
    pub fn whole(self) -> Option<u64> {
        u64::try_from(self.0).ok().filter(|n| *n > 0 && n % (1 << 20) == 0).map(|n| n >> 20)
    }

    /// In Hz.
    pub fn hz(self) -> f64 {
        self.0 as f64 / (1 << 20) as f64
    }
}

/// A level (dBm) or gain (dB), in units of 1/128 dB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decibels(pub i16);

impl Decibels {
    /// The nearest such number; what is beyond +-256 dB becomes that.
    pub fn new(db: f64) -> Self {
        Self(nearest(db * 128.0).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }

    /// In dB or dBm.
    pub fn db(self) -> f64 {
        f64::from(self.0) / 128.0
    }
}

/// A temperature, in units of 1/64 degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Celsius(pub i16);

impl Celsius {
    /// The nearest such number; what is beyond +-512 degrees becomes that.
    pub fn new(degrees: f64) -> Self {
        Self(nearest(degrees * 64.0).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }

    /// In degrees Celsius.
    pub fn degrees(self) -> f64 {
        f64::from(self.0) / 64.0
    }
}

/// Rounded, halves away from zero, without the standard library's help.
fn nearest(value: f64) -> i64 {
    (if value < 0.0 { value - 0.5 } else { value + 0.5 }) as i64
}

/// What samples are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Real numbers.
    Real,
    /// Pairs: real part, imaginary part.
    Complex,
    /// Pairs: magnitude, angle.
    Polar,
}

/// What numbers in samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// Two's complement.
    Signed,
    /// Without a sign.
    Unsigned,
    /// IEEE 754 of 32 bits.
    Float32,
    /// IEEE 754 of 64 bits.
    Float64,
}

/// The format of samples: two words as they are on the wire, and what is commonly asked of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format(pub u64);

impl Format {
    /// Pairs of 16-bit integers, I first, in one word.
    pub const IQ16: Self = Self(0x2000_03cf_0000_0000);
    /// 16-bit integers, two in a word.
    pub const REAL16: Self = Self(0x0000_03cf_0000_0000);

    /// Whether numbers are packed without regard to words. (Otherwise none is in two words.)
    pub fn dense(self) -> bool {
        self.0 >> 63 == 1
    }

    /// What samples are made of; nothing for the code that is reserved.
    pub fn arrangement(self) -> Option<Arrangement> {
        match self.0 >> 61 & 3 {
            0 => Some(Arrangement::Real),
            1 => Some(Arrangement::Complex),
            2 => Some(Arrangement::Polar),
            _ => None,
        }
    }

    /// What numbers are; nothing for the many codes that are rarely used.
    pub fn item(self) -> Option<Item> {
        match self.0 >> 56 & 31 {
            0b0_0000 => Some(Item::Signed),
            0b1_0000 => Some(Item::Unsigned),
            0b0_1110 => Some(Item::Float32),
            0b0_1111 => Some(Item::Float64),
            _ => None,
        }
    }

    /// Bits that a number takes, 1 to 64.
    pub fn packing_bits(self) -> u32 {
        (self.0 >> 38 & 63) as u32 + 1
    }

    /// Bits of a number that are not filled up, 1 to 64.
    pub fn item_bits(self) -> u32 {
        (self.0 >> 32 & 63) as u32 + 1
    }

    /// Numbers in a vector, 1 to 65536: channels that are sampled at once.
    pub fn vector(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }
}
