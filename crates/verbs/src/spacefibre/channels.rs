//! Virtual channels of a link on a command line.

use super::time_slots::TimeSlots;
use arrayvec::ArrayVec;
use shotline_spacefibre::link::MAX_VCS;
use shotline_spacefibre::qos::{PRIORITIES, Share, VcQos};
use std::fmt;
use std::str::FromStr;

/// Share of a link's bandwidth in hundredths of a percent, from 1.01 % to 100 %: smaller ones cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentage(u16);

impl Percentage {
    const MIN: u16 = 101;
    const MAX: u16 = 10_000;

    /// Returns the share, rounded down so that percentages that add up to 100 fit the link.
    fn share(self) -> Share {
        Share::from_parts(u32::from(self.0) * Share::WHOLE.parts() / u32::from(Self::MAX)).unwrap_or(Share::WHOLE)
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

impl FromStr for Percentage {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let percent: f64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or(())?;
        let hundredths = percent * 100.0;
        let is_valid = (f64::from(Self::MIN)..=f64::from(Self::MAX)).contains(&hundredths.round())
            && (hundredths - hundredths.round()).abs() < 1e-6;
        if is_valid { Ok(Self(hundredths.round() as u16)) } else { Err(()) }
    }
}

/// Quality of service of one virtual channel, written as `SHARE[/PRIORITY[/SLOTS]]`: `20%/2/0-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    share: Percentage,
    /// Priority level from 0, the highest and the default, to 15.
    priority: u8,
    slots: TimeSlots,
}

impl ChannelSpec {
    fn qos(self) -> VcQos {
        VcQos { priority: self.priority, share: self.share.share(), slots: self.slots.bits() }
    }
}

impl fmt::Display for ChannelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share, priority, slots } = self;
        write!(f, "{share}/{priority}")?;
        if *slots == TimeSlots::ALL { Ok(()) } else { write!(f, "/{slots}") }
    }
}

impl FromStr for ChannelSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected vc=SHARE[/PRIORITY[/SLOTS]] with a share of the link from 1.01% to 100%, a priority from 0 (the \
                 highest) to 15 and time-slots from 0 to 63, such as vc=20%/2/0-31+48-63, found vc={text}"
            )
        };
        let mut parts = text.split('/');
        let share = parts.next().and_then(|share| share.parse().ok()).ok_or_else(expected)?;
        let priority = parts.next().map_or(Ok(0), |level| level.parse().map_err(|_| expected()))?;
        let slots = parts.next().map_or(Ok(TimeSlots::ALL), |slots| slots.parse().map_err(|_| expected()))?;
        if priority >= PRIORITIES || parts.next().is_some() {
            return Err(expected());
        }
        Ok(Self { share, priority, slots })
    }
}

/// Virtual channels of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// This number, 1 to 32, of equal ones.
    Equal(u8),
    /// Each with its quality of service; 1 to 32.
    Each(Vec<ChannelSpec>),
}

impl Channels {
    /// Appends a channel. Equal ones are replaced.
    ///
    /// # Errors
    /// If there are 32, or the shares exceed the link.
    pub(super) fn push(&mut self, channel: ChannelSpec) -> Result<(), String> {
        let mut all = match self {
            Self::Equal(_) => Vec::new(),
            Self::Each(all) => std::mem::take(all),
        };
        if all.len() == MAX_VCS {
            return Err(format!("expected up to {MAX_VCS} virtual channels, found more"));
        }
        all.push(channel);
        let sum: u32 = all.iter().map(|channel| u32::from(channel.share.0)).sum();
        if sum > u32::from(Percentage::MAX) {
            let sum = f64::from(sum) / 100.0;
            return Err(format!("expected shares of the virtual channels of up to 100% in total, found {sum}%"));
        }
        *self = Self::Each(all);
        Ok(())
    }

    /// Returns the quality of service of each channel.
    pub(super) fn qos(&self) -> ArrayVec<VcQos, MAX_VCS> {
        match self {
            Self::Equal(count) => {
                let count = u32::from(*count).max(1);
                let share = Share::from_parts(Share::WHOLE.parts() / count).unwrap_or(Share::WHOLE);
                std::iter::repeat_n(VcQos::new(0, share), (count as usize).min(MAX_VCS)).collect()
            }
            Self::Each(all) => all.iter().take(MAX_VCS).map(|channel| channel.qos()).collect(),
        }
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(count) => write!(f, "vcs={count}"),
            Self::Each(all) => all
                .iter()
                .enumerate()
                .try_for_each(|(vc, channel)| write!(f, "{}vc={channel}", if vc == 0 { "" } else { "," })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_spacefibre::qos::MediumAccess;

    #[test]
    fn quality_of_service_round_trips() {
        for (text, whole, parts) in [
            ("50%", "50%/0", 32_768),
            ("30%/1", "30%/1", 19_660),
            ("2.5%/15/0-31+48-63", "2.5%/15/0-31+48-63", 1638),
            ("20%/2/0-63", "20%/2", 13_107),
            ("1.01%", "1.01%/0", 661),
            ("33.33%", "33.33%/0", 21_843),
        ] {
            let channel: ChannelSpec = text.parse().unwrap();
            assert_eq!(channel.to_string(), whole);
            assert_eq!(whole.parse(), Ok(channel));
            assert_eq!(channel.qos().share.parts(), parts, "{text}");
        }
    }

    #[test]
    fn invalid_quality_of_service_is_refused_with_the_form() {
        for text in [
            "", "50", "0%", "1%", "101%", "nan%", "-5%", "5%/16", "5%/-1", "5%/", "5%/0/", "5%/0/64", "5%/0/1/2",
            "1.005%", "5%/0/3-1",
        ] {
            let error = text.parse::<ChannelSpec>().unwrap_err();
            assert!(error.contains("vc=SHARE[/PRIORITY[/SLOTS]]") && error.ends_with(&format!("vc={text}")), "{error}");
        }
    }

    #[test]
    fn channels_that_are_accepted_can_be_kept() {
        let mut channels = Channels::Equal(1);
        for text in ["97.98%/0", "1.01%/15/63", "1.01%/3"] {
            channels.push(text.parse().unwrap()).unwrap();
        }
        assert!(MediumAccess::new(&channels.qos()).is_ok());
        let error = channels.push("1.01%".parse().unwrap()).unwrap_err();
        assert!(error.contains("up to 100%") && error.ends_with("found 101.01%"), "{error}");
        for count in 1..=32 {
            let qos = Channels::Equal(count).qos();
            assert!(qos.len() == usize::from(count) && MediumAccess::new(&qos).is_ok());
        }
    }
}
