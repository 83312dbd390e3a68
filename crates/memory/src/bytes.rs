//! Formatting of byte counts in messages.

/// Formats a byte count with a binary unit and one decimal: `24.0 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(units.len() as u32 - 1);
    if power == 0 {
        return format!("{bytes} B");
    }
    format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * power)) as f64, units[power as usize])
}
