//! Registry of displays.
//!
//! A display has a file or folder next to this one with its [`Display`], and a variant here. Every `match` over
//! [`DisplayKind`] is exhaustive, so the compiler reports each place that a new display affects.

use crate::{Display, DisplayError, Request, kms, none, wayland, x11};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A display, with its parameters from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplayKind {
    /// A window of an X server; the name is that of `DISPLAY`.
    X11(Option<String>),
    /// A window of a Wayland compositor; the name is that of `WAYLAND_DISPLAY`: a socket in `XDG_RUNTIME_DIR`, or its path.
    Wayland(Option<String>),
    /// A screen without a display server; the path is that of its device.
    Kms(Option<PathBuf>),
    /// No display: frames are checked, or saved in a folder as PNG files.
    None(Option<PathBuf>),
}

impl DisplayKind {
    /// Returns all kinds, without parameters.
    pub fn all() -> [Self; 4] {
        [Self::X11(None), Self::Wayland(None), Self::Kms(None), Self::None(None)]
    }

    /// Returns the name of the kind, without parameters.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::X11(_) => "x11",
            Self::Wayland(_) => "wayland",
            Self::Kms(_) => "kms",
            Self::None(_) => "none",
        }
    }

    /// Returns the syntax of the kind.
    const fn form(&self) -> &'static str {
        match self {
            Self::X11(_) => "x11[=NAME]",
            Self::Wayland(_) => "wayland[=NAME]",
            Self::Kms(_) => "kms[=DEVICE]",
            Self::None(_) => "none[=FOLDER]",
        }
    }

    /// Returns what it shows frames on, and how it gets them.
    const fn meaning(&self) -> [&'static str; 3] {
        match self {
            Self::X11(_) => [
                "a window of an X server (X11)",
                "shared memory (MIT-SHM), of which the server copies or shows a pixmap",
                "the Present extension",
            ],
            Self::Wayland(_) => [
                "a window of a Wayland compositor",
                "shared memory (wl_shm, or dma-bufs of it), which the compositor copies or composes with",
                "presentation-time, or frame callbacks",
            ],
            Self::Kms(_) => [
                "a screen without a display server (KMS)",
                "memory that the driver exports (dma-buf), which the screen shows",
                "page flips",
            ],
            Self::None(_) => {
                ["nothing, or PNG files in a folder", "shared memory, which is checked (CRC-32)", "a timer"]
            }
        }
    }

    /// Returns the syntax of all kinds, for a message.
    pub fn forms() -> String {
        let forms = Self::all().each_ref().map(Self::form);
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// Returns the display of this session: that of `WAYLAND_DISPLAY`, else of `DISPLAY`, or none.
    pub fn of_session() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if is_set("WAYLAND_DISPLAY") {
            Self::Wayland(None)
        } else if is_set("DISPLAY") {
            Self::X11(None)
        } else {
            Self::None(None)
        }
    }

    /// Opens the display. May wait for its answers.
    ///
    /// # Errors
    /// If it cannot be reached, takes no shared memory, has no such mode, or there is not enough memory.
    pub fn open(&self, request: &Request) -> Result<Box<dyn Display>, DisplayError> {
        Ok(match self {
            Self::X11(name) => Box::new(x11::Window::open(name.as_deref(), request)?),
            Self::Wayland(name) => Box::new(wayland::Window::open(name.as_deref(), request)?),
            Self::Kms(device) => Box::new(kms::Screen::open(device.as_deref(), request)?),
            Self::None(folder) => Box::new(none::NoDisplay::open(folder.as_deref(), request)?),
        })
    }
}

/// Table of the kinds.
impl DisplayKind {
    /// Column titles for [`Self::rows`].
    pub const HEADER: [&str; 4] = ["display", "shows frames on", "frame buffers", "refresh"];

    /// Returns one row for each kind.
    pub fn rows() -> [[String; 4]; 4] {
        Self::all().map(|kind| {
            let [shows, buffers, refresh] = kind.meaning();
            [kind.form(), shows, buffers, refresh].map(str::to_owned)
        })
    }
}

impl fmt::Display for DisplayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::X11(Some(name)) | Self::Wayland(Some(name)) => write!(f, "={name}"),
            Self::Kms(Some(path)) | Self::None(Some(path)) => write!(f, "={}", path.display()),
            Self::X11(None) | Self::Wayland(None) | Self::Kms(None) | Self::None(None) => Ok(()),
        }
    }
}

impl FromStr for DisplayKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, parameter) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let kind = Self::all().into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| format!("expected {}, found {text}", Self::forms()))?;
        match (kind, parameter) {
            (kind, None) => Ok(kind),
            (kind, Some("")) => Err(format!("expected {}, found {text}", kind.form())),
            (Self::X11(_), Some(name)) => Ok(Self::X11(Some(name.to_owned()))),
            (Self::Wayland(_), Some(name)) => Ok(Self::Wayland(Some(name.to_owned()))),
            (Self::Kms(_), Some(device)) => Ok(Self::Kms(Some(device.into()))),
            (Self::None(_), Some(folder)) => Ok(Self::None(Some(folder.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_kind_parse_inverts_display() {
        let examples = [
            DisplayKind::X11(Some(":99".into())),
            DisplayKind::Wayland(Some("/run/user/1000/wayland-1".into())),
            DisplayKind::Kms(Some("/dev/dri/card1".into())),
            DisplayKind::None(Some("/tmp/a=b".into())),
        ];
        for kind in DisplayKind::all().into_iter().chain(examples) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn display_kinds_are_listed_with_their_forms() {
        for (kind, row) in DisplayKind::all().iter().zip(DisplayKind::rows()) {
            assert!(row[0].starts_with(kind.name()) && DisplayKind::forms().contains(&row[0]), "{row:?}");
        }
        for text in ["", "X11", "screen", "x11=", "wayland=", "kms=", "none=", "=x"] {
            let error = text.parse::<DisplayKind>().unwrap_err();
            assert!(error.starts_with("expected ") && error.ends_with(&format!("found {text}")), "{error}");
        }
    }
}
