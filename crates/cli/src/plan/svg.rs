//! A plan as an SVG picture: the chain of stages, each with its load against its limit.

use shotline_plan::Report;
use shotline_plan::report::StageReport;
use shotline_plan::units::Rate;
use std::fmt::Write;

const WIDTH: u32 = 960;
const TOP: u32 = 64;
const ROW: u32 = 64;
const BOX: (u32, u32) = (220, 40);
const BAR_LEFT: u32 = 270;
/// Length of a bar whose load equals its limit.
const BAR: f64 = 300.0;
/// Maximum length of a bar, relative to [`BAR`]; a larger load is only shown as a number.
const MAX_BAR: f64 = 1.25;
/// Maximum number of characters of a name that fit into its box.
const MAX_NAME_CHARS: usize = 22;

/// Draws a plan.
pub fn draw(report: &Report) -> String {
    let height = TOP + ROW * report.stages.len() as u32 + 16;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"14\">\n"
    );
    let title = escaped(&report.title);
    let end = f64::from(BAR_LEFT) + BAR;
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<title>{title}</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"17\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{end}\" y=\"52\" text-anchor=\"middle\" fill=\"#555\">limit</text>\n"
    );
    for (index, stage) in report.stages.iter().enumerate() {
        let last = index + 1 == report.stages.len();
        row(&mut svg, stage, TOP + ROW * index as u32, stage.name == report.bottleneck, last);
    }
    svg + "</svg>\n"
}

fn row(svg: &mut String, stage: &StageReport, y: u32, bottleneck: bool, last: bool) {
    let (edge, width) = if bottleneck { ("#b3261e", 3) } else { ("#555", 1) };
    let fill = match stage.used {
        used if used > 1.0 + 1e-9 => "#d9534f",
        used if used > 0.9 => "#e8a33d",
        _ => "#4f8fcb",
    };
    let (box_width, box_height) = BOX;
    let (middle, centre) = (y + box_height / 2 + 5, 20 + box_width / 2);
    let length = stage.used.min(MAX_BAR) * BAR;
    let (limit_x, label_x) = (f64::from(BAR_LEFT) + BAR, f64::from(BAR_LEFT) + BAR * MAX_BAR + 12.0);
    let shown: String = stage.name.chars().take(MAX_NAME_CHARS).collect();
    let more = if shown.len() < stage.name.len() { "\u{2026}" } else { "" };
    let name = escaped(&shown) + more;
    let units = if stage.units > 1 { format!(" x {}", stage.units) } else { String::new() };
    let class = if bottleneck { "stage bottleneck" } else { "stage" };
    let (load, limit) = (Rate(stage.load_bits_per_s), Rate(stage.limit_bits_per_s));
    let used = stage.used * 100.0;
    let (bar_y, tick_top, tick_bottom) = (y + 8, y + 2, y + box_height - 2);
    let _ = write!(
        svg,
        "<g class=\"{class}\">\n\
         <rect x=\"20\" y=\"{y}\" width=\"{box_width}\" height=\"{box_height}\" rx=\"6\" fill=\"#f4f4f4\" stroke=\"{edge}\" stroke-width=\"{width}\"/>\n\
         <text x=\"{centre}\" y=\"{middle}\" text-anchor=\"middle\">{name}{units}</text>\n\
         <rect x=\"{BAR_LEFT}\" y=\"{bar_y}\" width=\"{BAR}\" height=\"24\" fill=\"#e6e6e6\"/>\n\
         <rect x=\"{BAR_LEFT}\" y=\"{bar_y}\" width=\"{length:.1}\" height=\"24\" fill=\"{fill}\"/>\n\
         <line x1=\"{limit_x}\" y1=\"{tick_top}\" x2=\"{limit_x}\" y2=\"{tick_bottom}\" stroke=\"#222\" stroke-width=\"2\"/>\n\
         <text x=\"{label_x}\" y=\"{middle}\">{used:.1} %: {load} of {limit}</text>\n"
    );
    if !last {
        let (from, to) = (y + box_height, y + ROW - 2);
        let _ = writeln!(
            svg,
            "<line x1=\"{centre}\" y1=\"{from}\" x2=\"{centre}\" y2=\"{to}\" stroke=\"#555\" marker-end=\"url(#tip)\"/>"
        );
    }
    svg.push_str("</g>\n");
}

/// Escapes text for XML. Characters that XML 1.0 does not allow are removed.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{FFFE}' | '\u{FFFF}' => {}
            c if c < ' ' && !matches!(c, '\t' | '\n' | '\r') => {}
            c => out.push(c),
        }
    }
    out
}
