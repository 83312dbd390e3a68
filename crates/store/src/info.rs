//! Metadata of a run: root attributes, and attributes of each link's group.

use crate::StoreError;
use crate::array;
use crate::codec::{self, Codec};
use crate::metadata::text::text as text_attribute;
use crate::positioned::ReadAt;
use crate::shot::MAX_LINKS;
use crate::sys::hdf5::header_address;
use hdf5::filters::Filter;
use hdf5::types::VarLenUnicode;
use hdf5::{H5Type, Location};
use serde::{Serialize, Serializer};
use shotline_wire::framing::Kind;
use shotline_wire::setup::ArrayDescription;
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Version of the file format, in the root attribute `format_version`.
pub const FORMAT_VERSION: u32 = 2;
/// Value of the root attribute `format`.
pub const FORMAT_NAME: &str = "shotline";

/// One link: a stream and the geometry of its shots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkInfo {
    /// Human-readable name.
    pub name: String,
    /// Stream number, as in the end-of-shot record.
    pub stream: u32,
    /// Geometry of the shots.
    #[serde(serialize_with = "serialize_geometry")]
    pub geometry: Geometry,
}

fn serialize_geometry<S: Serializer>(geometry: &Geometry, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shape<'a> {
        channels: u16,
        samples: u32,
        bits: u8,
        packing: &'a str,
        sample_rate_hz: u32,
        packets: u32,
        slot_bytes: u32,
    }
    Shape {
        channels: geometry.channels(),
        samples: geometry.samples(),
        bits: geometry.bits(),
        packing: geometry.packing().name(),
        sample_rate_hz: geometry.sample_rate_hz(),
        packets: geometry.packets(),
        slot_bytes: geometry.slot_bytes(),
    }
    .serialize(serializer)
}

/// Metadata of a run that is known before its first shot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunInfo {
    /// Recording program and its version.
    pub software: String,
    /// A random UUID.
    pub run_id: String,
    /// Start of the run in TAI nanoseconds since 1970.
    pub start_tai_ns: u64,
    /// Start of the run in UTC nanoseconds since 1970.
    pub start_utc_ns: u64,
    /// Instrument that was recorded.
    pub instrument: String,
    /// Free text about the run, by its operator.
    pub notes: String,
    /// Person who started the run.
    pub operator: String,
    /// Host name of the recording machine.
    pub host: String,
    /// Name of the wire framing, which may be user-defined.
    pub framing: String,
    /// Complete configuration, as text.
    pub config: String,
    /// Links, in the order of their groups.
    pub links: Vec<LinkInfo>,
    /// Period if the shots are test patterns: shot `n` carries pattern `n % period`.
    pub pattern_period: Option<u64>,
    /// Compression of the chunks. In a file it is stored as the filters of the sample datasets.
    pub codec: Option<Codec>,
    /// State of the recorder's clock at the start of the run.
    pub clock: ClockInfo,
    /// Position of this file in a run of several files ([`crate::set`]).
    pub part: Option<PartInfo>,
    /// Rows join shots by timestamp, so the shot numbers of a row differ between links.
    pub by_stamp: bool,
    /// Ultrasound array, as the instrument described it.
    #[serde(serialize_with = "array::serialize", skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayDescription>,
}

/// Position of a file among those of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PartInfo {
    /// Part number, from 0, in order of time.
    pub part: u32,
    /// Index of the drive, from 0. A part has one file on each drive.
    pub stripe: u32,
    /// Number of drives of the run.
    pub stripes: u32,
    /// Highest shot number of the parts that a bounded run has removed. Slots of this file without a row may still hold
    /// such shots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_to: Option<u64>,
}

/// Quality of the recorder's own timestamps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockInfo {
    /// Clock source: `system` or `ptp:/dev/ptpN`; empty if unknown.
    pub source: String,
    /// The clock is synchronised to a reference.
    pub locked: bool,
    /// Maximum error in nanoseconds, 0 if unknown.
    pub max_error_ns: u64,
    /// TAI - UTC offset in use, in seconds.
    pub tai_minus_utc_s: i64,
}

impl RunInfo {
    /// Returns the wire framing, if it is a built-in one.
    pub fn framing_kind(&self) -> Option<Kind> {
        self.framing.parse().ok()
    }

    /// Creates the metadata of a run that starts now, with a new run id.
    pub fn new(links: Vec<LinkInfo>) -> Self {
        let utc = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            software: concat!("shotline ", env!("CARGO_PKG_VERSION")).to_owned(),
            run_id: uuid::Uuid::new_v4().to_string(),
            start_tai_ns: now_tai_ns(),
            start_utc_ns: utc.as_nanos() as u64,
            instrument: String::new(),
            notes: String::new(),
            operator: String::new(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            framing: String::new(),
            config: String::new(),
            links,
            pattern_period: None,
            codec: None,
            clock: ClockInfo::default(),
            part: None,
            by_stamp: false,
            array: None,
        }
    }

    /// Returns `true` if all links have the same geometry, so that one dataset can join them.
    pub fn joined(&self) -> bool {
        self.links.windows(2).all(|pair| pair[0].geometry == pair[1].geometry)
    }

    /// Checks that the run can be recorded.
    ///
    /// # Errors
    /// Fails with [`StoreError::Run`] if there are no links or too many, two links have one stream, or the period is 0.
    pub fn check(&self) -> Result<(), StoreError> {
        let links = self.links.len();
        if links == 0 || links > MAX_LINKS {
            return Err(StoreError::Run(format!("expected 1 to {MAX_LINKS} links, found {links}")));
        }
        for (index, link) in self.links.iter().enumerate() {
            if self.links[..index].iter().any(|other| other.stream == link.stream) {
                return Err(StoreError::Run(format!("stream {} is on two links: give each its own", link.stream)));
            }
        }
        if self.pattern_period == Some(0) {
            return Err(StoreError::Run("a test pattern needs a period of 1 or more, found 0".into()));
        }
        Ok(())
    }

    pub(crate) fn write(&self, file: &hdf5::File) -> hdf5::Result<()> {
        text(file, "format", FORMAT_NAME)?;
        number(file, "format_version", FORMAT_VERSION)?;
        text(file, "software", &self.software)?;
        text(file, "run_id", &self.run_id)?;
        text(file, "start_utc", &timestamp(self.start_utc_ns))?;
        text(file, "start_tai", &timestamp(self.start_tai_ns).replace('Z', " TAI"))?;
        number(file, "start_utc_ns", self.start_utc_ns)?;
        number(file, "start_tai_ns", self.start_tai_ns)?;
        text(file, "instrument", &self.instrument)?;
        text(file, "notes", &self.notes)?;
        text(file, "operator", &self.operator)?;
        text(file, "host", &self.host)?;
        text(file, "framing", &self.framing)?;
        text(file, "config", &self.config)?;
        number(file, "links", self.links.len() as u32)?;
        text(file, "aligned_by", if self.by_stamp { "stamp" } else { "number" })?;
        if !self.clock.source.is_empty() {
            text(file, "clock_source", &self.clock.source)?;
            number(file, "clock_locked", u8::from(self.clock.locked))?;
            number(file, "clock_max_error_ns", self.clock.max_error_ns)?;
            number(file, "tai_minus_utc_s", self.clock.tai_minus_utc_s)?;
        }
        if let Some(period) = self.pattern_period {
            number(file, "test_pattern_period", period)?;
        }
        if let Some(description) = &self.array {
            array::write(file, description)?;
        }
        if let Some(PartInfo { part, stripe, stripes, stale_to }) = self.part {
            number(file, "part", part)?;
            number(file, "stripe", stripe)?;
            number(file, "stripes", stripes)?;
            if let Some(highest) = stale_to {
                number(file, "stale_to", highest)?;
            }
        }
        Ok(())
    }

    /// Reads the metadata of a run; strings are parsed from the file's `bytes`.
    pub(crate) fn read(file: &hdf5::File, bytes: &dyn ReadAt, path: &Path) -> Result<Self, StoreError> {
        let failed = StoreError::hdf5("read the attributes of", path);
        let read_text = |file: &hdf5::File, name: &str| read_text(bytes, file, name);
        let format: String = read_text(file, "format").unwrap_or_default();
        let version: u32 = read_number(file, "format_version").unwrap_or(0);
        if format != FORMAT_NAME {
            let found = format!("expected the attribute format = {FORMAT_NAME}, found {format:?}");
            return Err(StoreError::format(path, found));
        }
        if version != FORMAT_VERSION {
            let found = format!(
                "expected format version {FORMAT_VERSION}, found {version}: read it with the version of Shotline that wrote it (attribute software)"
            );
            return Err(StoreError::format(path, found));
        }
        let read = || -> hdf5::Result<(Self, u32)> {
            let info = Self {
                software: read_text(file, "software")?,
                run_id: read_text(file, "run_id")?,
                start_tai_ns: read_number(file, "start_tai_ns")?,
                start_utc_ns: read_number(file, "start_utc_ns")?,
                instrument: read_text(file, "instrument")?,
                notes: read_text(file, "notes")?,
                operator: read_text(file, "operator")?,
                host: read_text(file, "host")?,
                framing: read_text(file, "framing")?,
                config: read_text(file, "config")?,
                links: Vec::new(),
                pattern_period: read_number(file, "test_pattern_period").ok(),
                codec: None,
                // Missing in recordings without a recorder's clock, such as imported ones.
                clock: ClockInfo {
                    source: read_text(file, "clock_source").unwrap_or_default(),
                    locked: read_number::<u8>(file, "clock_locked").is_ok_and(|locked| locked != 0),
                    max_error_ns: read_number(file, "clock_max_error_ns").unwrap_or(0),
                    tai_minus_utc_s: read_number(file, "tai_minus_utc_s").unwrap_or(0),
                },
                part: read_number(file, "part").ok().map(|part| PartInfo {
                    part,
                    stripe: read_number(file, "stripe").unwrap_or(0),
                    stripes: read_number(file, "stripes").unwrap_or(1),
                    stale_to: read_number(file, "stale_to").ok(),
                }),
                by_stamp: read_text(file, "aligned_by")? == "stamp",
                array: array::read(file),
            };
            Ok((info, read_number(file, "links")?))
        };
        let (mut info, links) = read().map_err(failed)?;
        if links == 0 || links as usize > MAX_LINKS {
            return Err(StoreError::format(path, format!("expected 1 to {MAX_LINKS} links, found {links}")));
        }
        for index in 0..links {
            let group =
                file.group(&format!("link{index}")).map_err(StoreError::hdf5("open a link's group in", path))?;
            info.links.push(LinkInfo::read(&group, bytes, path)?);
        }
        info.codec = read_codec(file, path)?;
        info.check()?;
        Ok(info)
    }
}

/// Reads the codec from the filter pipeline of the sample datasets.
fn read_codec(file: &hdf5::File, path: &Path) -> Result<Option<Codec>, StoreError> {
    let filters = file.dataset("rf").or_else(|_| file.dataset("link0/rf")).and_then(|rf| rf.dcpl()?.get_filters());
    let filters = filters.map_err(StoreError::hdf5("read the filters of", path))?;
    let parameters = filters.iter().find_map(|filter| match filter {
        Filter::User(codec::FILTER, parameters) => Some(parameters),
        _ => None,
    });
    let codec = parameters.map(|parameters| {
        Codec::from_filter(parameters).ok_or_else(|| {
            StoreError::format(
                path,
                format!("expected bitshuffle with LZ4 or zstd, found its parameters {parameters:?}"),
            )
        })
    });
    codec.transpose()
}

impl LinkInfo {
    pub(crate) fn write(&self, group: &hdf5::Group) -> hdf5::Result<()> {
        let g = &self.geometry;
        text(group, "name", &self.name)?;
        number(group, "stream", self.stream)?;
        number(group, "channels", g.channels())?;
        number(group, "samples", g.samples())?;
        number(group, "bits", g.bits())?;
        number(group, "packing", g.packing() as u8)?;
        text(group, "packing_name", g.packing().name())?;
        number(group, "sample_rate_hz", g.sample_rate_hz())?;
        number(group, "sample_bytes", g.sample_bytes())?;
        number(group, "record_offset", g.record_offset().unwrap_or(g.trailer_offset()))?;
        number(group, "shot_bytes", g.shot_bytes())?;
        number(group, "slot_bytes", g.slot_bytes())?;
        number(group, "packets", g.packets())?;
        number(group, "packet_bytes", g.packetization().rest)?;
        number(group, "first_packet_bytes", g.packetization().first)?;
        number(group, "trailer_apart", u8::from(g.packetization().separate_trailer))?;
        text(group, "trailer", g.trailer().name())
    }

    fn read(group: &hdf5::Group, bytes: &dyn ReadAt, path: &Path) -> Result<Self, StoreError> {
        let read_text = |group: &hdf5::Group, name: &str| read_text(bytes, group, name);
        let failed = StoreError::hdf5("read a link's attributes in", path);
        let read = || -> hdf5::Result<_> {
            let names = (read_text(group, "name")?, read_number(group, "stream")?, read_text(group, "trailer")?);
            let samples: (u16, u32) = (read_number(group, "channels")?, read_number(group, "samples")?);
            let format: (u8, u8) = (read_number(group, "bits")?, read_number(group, "packing")?);
            let packetization = Packetization {
                first: read_number(group, "first_packet_bytes")?,
                rest: read_number(group, "packet_bytes")?,
                separate_trailer: read_number::<u8>(group, "trailer_apart")? != 0,
            };
            Ok((names, samples, format, read_number(group, "sample_rate_hz")?, packetization))
        };
        let ((name, stream, trailer), samples, (bits, packing), rate, packetization) = read().map_err(failed)?;
        let packing = Packing::from_u8(packing)
            .ok_or_else(|| StoreError::format(path, format!("expected packing 0 to 3, found {packing}")))?;
        let trailer = Trailer::by_name(&trailer)
            .ok_or_else(|| StoreError::format(path, format!("expected a known trailer, found {trailer:?}")))?;
        let geometry = Geometry::with_packetization(samples, (bits, packing), rate, trailer, packetization)
            .map_err(|error| StoreError::format(path, error.to_string()))?;
        Ok(Self { name, stream, geometry })
    }
}

/// Formats a time as RFC 3339 with nanoseconds.
pub(crate) fn timestamp(ns: u64) -> String {
    humantime::format_rfc3339_nanos(SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
}

/// Writes a string attribute.
pub(crate) fn text(at: &Location, name: &str, value: &str) -> hdf5::Result<()> {
    // HDF5 strings end at the first zero byte.
    let value =
        VarLenUnicode::from_str(&value.replace('\0', "\u{fffd}")).map_err(|e| hdf5::Error::from(e.to_string()))?;
    at.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&value)
}

/// Writes an attribute of several strings.
pub(crate) fn texts(at: &Location, name: &str, values: &[&str]) -> hdf5::Result<()> {
    let values: Result<Vec<_>, _> = values.iter().map(|value| VarLenUnicode::from_str(value)).collect();
    let values = values.map_err(|e| hdf5::Error::from(e.to_string()))?;
    at.new_attr::<VarLenUnicode>().shape(values.len()).create(name)?.write_raw(&values)
}

/// Writes a number attribute.
pub(crate) fn number<T: H5Type>(at: &Location, name: &str, value: T) -> hdf5::Result<()> {
    at.new_attr::<T>().create(name)?.write_scalar(&value)
}

/// Reads a string attribute without libhdf5, which crashes on damaged ones.
fn read_text(bytes: &dyn ReadAt, at: &Location, name: &str) -> hdf5::Result<String> {
    let wrong = |error: String| hdf5::Error::from(error);
    let found = text_attribute(bytes, header_address(at)?, name).map_err(|error| wrong(error.to_string()))?;
    found.ok_or_else(|| wrong(format!("expected a string attribute {name}, found none")))
}

pub(crate) fn read_number<T: H5Type>(at: &Location, name: &str) -> hdf5::Result<T> {
    at.attr(name)?.read_scalar()
}

/// Reads the kernel's TAI clock; without a TAI offset set it equals UTC.
fn clock_tai() -> rustix::time::Timespec {
    let fallback = || rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    rustix::time::clock_gettime_dynamic(rustix::time::DynamicClockId::Tai).unwrap_or_else(|_| fallback())
}

/// Returns the current time in TAI nanoseconds since 1970.
pub(crate) fn now_tai_ns() -> u64 {
    let now = clock_tai();
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
