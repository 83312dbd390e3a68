//! Syntax of a BAR.

use super::access::BarAccess;
use std::fmt;
use std::str::FromStr;

/// Number of BARs of a PCI function.
pub(super) const BARS: u8 = 6;

/// Address of a PCI function: `DOMAIN:BUS:DEVICE.FUNCTION`, in hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (address, function) = text.split_once('.')?;
            let mut parts = address.splitn(3, ':');
            let mut next = |digits| hexadecimal(parts.next()?, digits);
            let (domain, bus, device) = (next(4)?, next(2)?, next(2)?);
            let function = hexadecimal(function, 1)?;
            let in_range = device < 32 && function < 8;
            in_range.then_some(Self { domain, bus: bus as u8, device: device as u8, function: function as u8 })
        };
        parse()
            .ok_or_else(|| format!("expected a PCI address such as 0000:03:00.0 (lspci -D lists them), found {text}"))
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<u16> {
    let is_number = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(text, 16).ok())?
}

/// A BAR of a PCI function, and how its memory is accessed: `ADDRESS/BAR`, optionally with `:access=4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarSpec {
    /// Function.
    pub address: PciAddress,
    /// Number of the BAR, below 6.
    pub bar: u8,
    /// Length of accesses.
    pub access: BarAccess,
}

impl fmt::Display for BarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bar, access } = self;
        write!(f, "{address}/{bar}")?;
        match access {
            BarAccess::Four => f.write_str(":access=4"),
            BarAccess::Eight => Ok(()),
        }
    }
}

impl FromStr for BarSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected ADDRESS/BAR such as 0000:03:00.0/4, then optionally :access=4, found {text}");
        let (address, rest) = text.split_once('/').ok_or_else(expected)?;
        let (bar, access) = match rest.split_once(':') {
            None | Some((_, "access=8")) => (rest.split(':').next().unwrap_or(rest), BarAccess::Eight),
            Some((bar, "access=4")) => (bar, BarAccess::Four),
            Some(_) => return Err(expected()),
        };
        let number = hexadecimal(bar, 1).filter(|bar| *bar < u16::from(BARS)).ok_or_else(expected)?;
        Ok(Self { address: address.parse()?, bar: number as u8, access })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bar_parse_inverts_display() {
        let address = PciAddress { domain: 1, bus: 0xaf, device: 31, function: 7 };
        for spec in [BarSpec::default(), BarSpec { address, bar: 5, access: BarAccess::Four }] {
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        assert_eq!("0000:03:00.0/4:access=8".parse::<BarSpec>().unwrap().to_string(), "0000:03:00.0/4");
    }

    #[test]
    fn malformed_bar_is_refused() {
        for text in
            ["", "0000:03:00.0", "0000:03:00.0/6", "0000:03:00.0/4:access=2", "0000:03:00.0/+", "0000:03:00.0/4:"]
        {
            let error = text.parse::<BarSpec>().unwrap_err();
            assert!(error.contains("0000:03:00.0/4"), "{text}: {error}");
        }
        for text in ["03:00.0/0", "0000:03:20.0/0", "0000:03:00.8/0", "00000:03:00.0/0", "0000:3:00.0/0", "../../x/0"] {
            let error = text.parse::<BarSpec>().unwrap_err();
            assert!(error.contains("lspci -D") || error.contains("ADDRESS/BAR"), "{text}: {error}");
        }
    }
}
