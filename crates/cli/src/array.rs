//! Arguments that describe an ultrasound array and its plane waves.

use serde::Serialize;
use shotline_compute::ultrasound::Array;
use shotline_wire::setup::ArrayDescription;

/// Arguments of an array, except its centre frequency ([`CentreArgs`]).
#[derive(Clone, clap::Args)]
pub struct ArrayArgs {
    /// Element pitch in mm [default: 0.3]
    #[arg(long, value_name = "MM", value_parser = positive)]
    pitch_mm: Option<f64>,
    /// Width of an element in mm [default: 0.9 of the pitch]
    #[arg(long, value_name = "MM", value_parser = positive)]
    width_mm: Option<f64>,
    /// Height of an element in mm [default: 5]
    #[arg(long, value_name = "MM", value_parser = positive)]
    height_mm: Option<f64>,
    /// Speed of sound in m/s [default: 1540]
    #[arg(long, value_name = "M/S", value_parser = positive)]
    sound_speed: Option<f64>,
    /// Plane-wave angles in degrees, in the order of transmission: one shot per angle, one frame per set of angles
    /// [default: 0; of a phantom: -10,-5,0,5,10]
    #[arg(long, value_name = "DEG,DEG", value_delimiter = ',', allow_hyphen_values = true, value_parser = angle)]
    angles: Vec<f64>,
    /// Time from the transmission to the first sample in us [default: 0]
    #[arg(long, value_name = "US", allow_hyphen_values = true, value_parser = finite)]
    initial_us: Option<f64>,
}

/// Centre frequency, apart from [`ArrayArgs`] because radio formats have one too.
#[derive(Clone, clap::Args)]
pub struct CentreArgs {
    /// Centre frequency in MHz; for ultrasound, of the pulse [default for ultrasound: 5]
    #[arg(long, value_name = "MHZ", value_parser = positive)]
    pub centre_mhz: Option<f64>,
}

impl CentreArgs {
    /// Returns the centre frequency in Hz, if it is given.
    pub fn hz(&self) -> Option<f64> {
        self.centre_mhz.map(|mhz| mhz * 1e6)
    }
}

impl ArrayArgs {
    /// Returns the names of the arguments that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let Self { pitch_mm, width_mm, height_mm, sound_speed, angles, initial_us } = self;
        let all = [
            ("--pitch-mm", pitch_mm.is_some()),
            ("--width-mm", width_mm.is_some()),
            ("--height-mm", height_mm.is_some()),
            ("--sound-speed", sound_speed.is_some()),
            ("--angles", !angles.is_empty()),
            ("--initial-us", initial_us.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Returns `true` if the plane waves are given.
    pub fn has_angles(&self) -> bool {
        !self.angles.is_empty()
    }

    /// Returns the array with these arguments. What is not given is as in `default`; elements of another pitch have 0.9
    /// of it as width.
    pub fn array(&self, centre: &CentreArgs, default: &Array) -> Array {
        let or = |given: Option<f64>, scale: f64, default: f64| given.map_or(default, |value| value / scale);
        let pitch_m = or(self.pitch_mm, 1e3, default.pitch_m);
        let width_m = self.pitch_mm.map_or(default.width_m, |_| pitch_m * 0.9);
        Array {
            pitch_m,
            width_m: or(self.width_mm, 1e3, width_m),
            height_m: or(self.height_mm, 1e3, default.height_m),
            centre_hz: centre.hz().unwrap_or(default.centre_hz),
            sound_speed_m_s: or(self.sound_speed, 1.0, default.sound_speed_m_s),
            angles_rad: match &self.angles[..] {
                [] => default.angles_rad.clone(),
                angles => angles.iter().map(|angle| angle.to_radians()).collect(),
            },
            initial_time_s: or(self.initial_us, 1e6, default.initial_time_s),
        }
    }
}

/// Array that a probe describes, for reports.
#[derive(Serialize)]
pub struct ArrayReport {
    pitch_m: f64,
    width_m: f64,
    height_m: f64,
    centre_hz: f64,
    sound_speed_m_s: f64,
    angles_rad: Vec<f64>,
    initial_time_s: f64,
}

impl ArrayReport {
    pub fn of(description: &ArrayDescription) -> Self {
        let Array { pitch_m, width_m, height_m, centre_hz, sound_speed_m_s, angles_rad, initial_time_s } =
            Array::from(*description);
        Self { pitch_m, width_m, height_m, centre_hz, sound_speed_m_s, angles_rad, initial_time_s }
    }

    /// Returns rows of a table.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mm = |m: f64| rounded(m * 1e3, 6);
        let degrees = |angle: &f64| rounded(angle.to_degrees(), 3).to_string();
        let (width, height) = (mm(self.width_m), mm(self.height_m));
        let elements = format!("pitch {} mm, {width} mm x {height} mm", mm(self.pitch_m));
        let sound = format!("{} MHz, {} m/s", self.centre_hz / 1e6, self.sound_speed_m_s);
        let waves: Vec<_> = match &self.angles_rad[..] {
            [first, second, .., last] if self.angles_rad.len() > 7 => {
                vec![degrees(first), degrees(second), "...".into(), degrees(last)]
            }
            angles => angles.iter().map(degrees).collect(),
        };
        let waves = format!("{}: {} degrees", self.angles_rad.len(), waves.join(", "));
        let initial = format!("{} us after the transmission", rounded(self.initial_time_s * 1e6, 3));
        let rows = [("elements", elements), ("sound", sound), ("plane waves", waves), ("first sample", initial)];
        rows.map(|(name, text)| (name.to_owned(), text)).to_vec()
    }
}

/// Rounds to a number of decimal places, without a negative zero.
fn rounded(value: f64, places: i32) -> f64 {
    let unit = 10_f64.powi(places);
    (value * unit).round() / unit + 0.0
}

fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number".into())
}

/// Parses a finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = finite(text).ok().filter(|number| *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

fn angle(text: &str) -> Result<f64, String> {
    let number = finite(text).ok().filter(|degrees| (-90.0..=90.0).contains(degrees));
    number.ok_or_else(|| "expected -90 to 90 degrees".into())
}
