//! `shotline inspect --plot`: draws a recording as one picture, without another program.
//!
//! Four panels: rate over time, packets dropped over the shot numbers by cause, the first complete shot, its spectrum.
//! The font is DejaVu Sans (`DejaVuSans.ttf`, reduced to ASCII; its licence is next to it), so that no font of the
//! system is needed.

mod data;
pub mod shots;

use crate::Result;
use data::{Bins, Lost, Rate};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use shotline_store::read::Recording;
use shots::{Picture, RANGE_DB};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 880;
const FONT: &[u8] = include_bytes!("DejaVuSans.ttf");
/// Floor of the spectrum, in dB.
const FLOOR_DB: f64 = -100.0;
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(90, 90, 90),
];

/// A part of a picture.
pub type Panel<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

/// Draws the visible rows of a recording into a PNG file.
pub fn draw(recording: &Path, to: &Path) -> Result {
    let recording = Recording::open(recording)?;
    let (rate, lost) = data::gather(&recording)?;
    let picture = shots::first(&recording)?;
    save(to, (WIDTH, HEIGHT), |root| {
        let panels = root.split_evenly((2, 2));
        match &rate {
            Some(rate) => draw_rate(&panels[0], rate)?,
            None => draw_message(&panels[0], "Rate", "too few shots with a timestamp")?,
        }
        match &lost {
            Some(lost) if !lost.packets.is_empty() => draw_lost(&panels[1], lost)?,
            Some(_) => draw_message(&panels[1], "Packets dropped", "none")?,
            None => draw_message(&panels[1], "Packets dropped", "no shots yet")?,
        }
        match &picture {
            Some(picture) => {
                draw_picture(&panels[2], picture)?;
                draw_spectrum(&panels[3], picture)?;
            }
            None => {
                draw_message(&panels[2], "First complete shot", "no complete shot")?;
                draw_message(&panels[3], "Spectrum", "no complete shot")?;
            }
        }
        Ok(())
    })
}

/// Draws a picture of this width and height in pixels, and saves it as a PNG file.
fn save(to: &Path, size: (u32, u32), draw: impl FnOnce(&Panel<'_>) -> Result) -> Result {
    let png = png(size, draw)?;
    let mut file = File::create(to).map_err(|error| format!("cannot create {}: {error}", to.display()))?;
    Ok(file.write_all(&png).map_err(|error| format!("cannot write {}: {error}", to.display()))?)
}

/// Registers the built-in font for texts.
pub fn register_letters() -> Result {
    // Fails only if the file is not a font.
    Ok(register_font("sans-serif", FontStyle::Normal, FONT).map_err(|_| "the built-in font cannot be read")?)
}

/// Draws a picture of this width and height in pixels, and returns the bytes of a PNG file.
pub fn png((width, height): (u32, u32), draw: impl FnOnce(&Panel<'_>) -> Result) -> Result<Vec<u8>> {
    register_letters()?;
    let mut pixels = vec![0; (width * height * 3) as usize];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Returns the style of black text.
pub fn title(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

/// Draws a panel that contains only text.
fn draw_message(panel: &Panel, name: &str, words: &str) -> Result {
    panel.titled(name, title(20))?.draw_text(words, &title(16), (40, 60))?;
    Ok(())
}

/// Returns the end of an axis for these values.
fn top(values: impl IntoIterator<Item = f64>) -> f64 {
    1.1 * values.into_iter().fold(0.0, f64::max).max(1e-9)
}

fn draw_rate(panel: &Panel, rate: &Rate) -> Result {
    let seconds = rate.bins.length as f64 / 1e9;
    let (shots, bits) = (top(rate.shots_per_s.iter().copied()), top(rate.gbps.iter().copied()));
    let mut chart = ChartBuilder::on(panel)
        .caption("Rate", title(20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .right_y_label_area_size(70)
        .build_cartesian_2d(0.0..seconds, 0.0..shots)?
        .set_secondary_coord(0.0..seconds, 0.0..bits);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("time in s")
        .y_desc("shots/s")
        .label_style(title(13))
        .axis_desc_style(title(14))
        .draw()?;
    chart.configure_secondary_axes().y_desc("Gbit/s").label_style(title(13)).axis_desc_style(title(14)).draw()?;
    let line = |values: &[f64]| over(rate.bins, values.iter().copied(), 1e-9);
    chart
        .draw_series(LineSeries::new(line(&rate.shots_per_s), COLOURS[0].stroke_width(2)))?
        .label("shots/s")
        .legend(|at| key(at, COLOURS[0]));
    chart
        .draw_secondary_series(LineSeries::new(line(&rate.gbps), COLOURS[2].stroke_width(1)))?
        .label("Gbit/s")
        .legend(|at| key(at, COLOURS[2]));
    legend(&mut chart)
}

fn draw_lost(panel: &Panel, lost: &Lost) -> Result {
    let highest = top(lost.packets.values().flatten().map(|count| *count as f64));
    let first = lost.bins.first as f64;
    let mut chart = ChartBuilder::on(panel)
        .caption("Packets dropped", title(20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(first..first + lost.bins.length as f64, 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("shot number")
        .y_desc("packets")
        .label_style(title(13))
        .axis_desc_style(title(14))
        .x_label_formatter(&|number| format!("{number:.0}"))
        .draw()?;
    for ((cause, counts), colour) in lost.packets.iter().zip(COLOURS.into_iter().cycle()) {
        let points = over(lost.bins, counts.iter().map(|count| *count as f64), 1.0);
        let points = points.into_iter().map(|(at, count)| (first + at, count));
        let total: u64 = counts.iter().sum();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(format!("{cause}: {total}"))
            .legend(move |at| key(at, colour));
    }
    legend(&mut chart)
}

/// Returns the points of a line: each bin's value over its middle.
fn over(bins: Bins, values: impl Iterator<Item = f64>, unit: f64) -> Vec<(f64, f64)> {
    values.enumerate().map(|(bin, value)| (bins.middle(bin) * unit, value)).collect()
}

fn key((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2))
}

fn legend<'a, 'b: 'a, C>(chart: &mut ChartContext<'a, BitMapBackend<'b>, C>) -> Result
where
    C: CoordTranslate,
{
    let labels = &mut chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperRight)
        .label_font(title(13))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// Draws the samples as pixels: each is the strongest sample under it, in dB below the shot's strongest.
fn draw_picture(panel: &Panel, picture: &Picture) -> Result {
    let (samples, channels) = (picture.geometry.samples() as usize, usize::from(picture.geometry.channels()));
    let rate = picture.geometry.sample_rate_hz();
    let (unit, name) = if rate > 0 { (1e6 / f64::from(rate), "time in us") } else { (1.0, "sample") };
    let caption = format!("Shot {} of stream {}, raw RF, {RANGE_DB:.0} dB", picture.number, picture.stream);
    let depth = samples as f64 * unit;
    let mut chart = ChartBuilder::on(panel)
        .caption(caption, title(20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..channels as f64, depth..0.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .disable_mesh()
        .x_desc("channel")
        .y_desc(name)
        .label_style(title(13))
        .axis_desc_style(title(14))
        .draw()?;
    let area = chart.plotting_area();
    let (width, height) = area.dim_in_pixel();
    let (columns, rows) = ((width as usize).min(channels), (height as usize).min(samples));
    let levels = picture.levels(columns, rows);
    let cells = levels.into_iter().enumerate().map(|(at, grey)| {
        let (row, column) = ((at / columns) as f64, (at % columns) as f64);
        let (high, wide) = (depth / rows as f64, channels as f64 / columns as f64);
        let corners = [(column * wide, row * high), ((column + 1.0) * wide, (row + 1.0) * high)];
        Rectangle::new(corners, RGBColor(grey, grey, grey).filled())
    });
    chart.draw_series(cells)?;
    Ok(())
}

fn draw_spectrum(panel: &Panel, picture: &Picture) -> Result {
    let points = data::spectrum(picture)?;
    let Some(&(end, _)) = points.last().filter(|_| points.len() > 1) else {
        return draw_message(panel, "Spectrum", "all samples are equal");
    };
    let floor = points.iter().map(|(_, level)| *level).fold(-20.0, f64::min).max(FLOOR_DB) - 5.0;
    let name = if picture.geometry.sample_rate_hz() > 0 { "frequency in MHz" } else { "cycles per sample" };
    let mut chart = ChartBuilder::on(panel)
        .caption("Its spectrum, mean over the channels", title(20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, floor..5.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(name)
        .y_desc("dB")
        .label_style(title(13))
        .axis_desc_style(title(14))
        .draw()?;
    chart.draw_series(LineSeries::new(points.into_iter().map(|(at, level)| (at, level.max(floor))), COLOURS[0]))?;
    Ok(())
}
