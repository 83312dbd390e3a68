//! Modes of a screen: their refresh rates, and the choice of one.

use crate::Mode;
use drm::control::{self, ModeFlags};

/// Returns the size and refresh rate of a mode. `None` if it is interlaced, since each of its refreshes has half of the rows.
pub(super) fn of_driver(mode: &control::Mode) -> Option<Mode> {
    let (width, height) = mode.size();
    let flags = mode.flags();
    let rows = u32::from(mode.vsync().2) * u32::from(mode.vscan().max(1));
    let rows = if flags.contains(ModeFlags::DBLSCAN) { rows * 2 } else { rows };
    let refresh_mhz = refresh_mhz(mode.clock(), mode.hsync().2.into(), rows)?;
    let is_usable = !flags.contains(ModeFlags::INTERLACE) && width > 0 && height > 0;
    is_usable.then_some(Mode { width: width.into(), height: height.into(), refresh_mhz })
}

/// Returns the refresh rate of a mode with this pixel clock, pixels in a row and rows, blanking included.
fn refresh_mhz(clock_khz: u32, pixels: u32, rows: u32) -> Option<u32> {
    let total = u64::from(pixels) * u64::from(rows);
    let mhz = (u64::from(clock_khz) * 1_000_000 + total / 2).checked_div(total)?;
    u32::try_from(mhz).ok().filter(|mhz| *mhz > 0)
}

/// Returns the index of the mode of the wanted size with the closest refresh rate; the first of several.
pub(super) fn choose(offered: &[Mode], wanted: Mode) -> Option<usize> {
    let size = |mode: &Mode| (mode.width, mode.height);
    let of_size = offered.iter().enumerate().filter(|(_, mode)| size(mode) == size(&wanted));
    of_size.min_by_key(|(_, mode)| mode.refresh_mhz.abs_diff(wanted.refresh_mhz)).map(|(index, _)| index)
}

/// Returns the modes in words, each once.
pub(super) fn words(offered: &[Mode]) -> String {
    let mut words: Vec<String> = Vec::new();
    for mode in offered.iter().map(Mode::to_string) {
        if !words.contains(&mode) {
            words.push(mode);
        }
    }
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Vec<Mode> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn refresh_rate_is_that_of_the_timings() {
        // CEA-861: 1920 x 1080 at 60 Hz and 59.94 Hz. DMT: 1024 x 768 at 60 Hz.
        assert_eq!(refresh_mhz(148_500, 2200, 1125), Some(60_000));
        assert_eq!(refresh_mhz(148_352, 2200, 1125), Some(59_940));
        assert_eq!(refresh_mhz(65_000, 1344, 806), Some(60_004));
        assert_eq!(refresh_mhz(u32::MAX, u32::MAX, u32::MAX), None);
        for timings in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (u32::MAX, 1, 1)] {
            assert_eq!(refresh_mhz(timings.0, timings.1, timings.2), None, "{timings:?}");
        }
    }

    #[test]
    fn mode_of_the_size_with_the_closest_rate_is_chosen() {
        let offered =
            parsed(&["1920x1080@60", "1920x1080@59.94", "1920x1080@24", "1280x720@60", "1280x720@60", "1080x1920@60"]);
        let chosen = |wanted: &str| choose(&offered, wanted.parse().unwrap());
        assert_eq!(chosen("1920x1080@60"), Some(0));
        assert_eq!(chosen("1920x1080@59.95"), Some(1));
        assert_eq!(chosen("1920x1080@1"), Some(2));
        assert_eq!(chosen("1920x1080@240"), Some(0));
        assert_eq!(chosen("1280x720@50"), Some(3));
        assert_eq!(chosen("1920x1081@60"), None);
        assert_eq!(choose(&[], offered[0]), None);
    }

    #[test]
    fn words_have_each_mode_once() {
        assert_eq!(words(&parsed(&["64x32@60", "64x32@50", "64x32@60"])), "64x32@60, 64x32@50");
        assert_eq!(words(&[]), "none");
    }
}
