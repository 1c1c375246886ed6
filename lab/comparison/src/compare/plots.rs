//! The figures as pictures: bars for A to D, lines for F.

use std::path::Path;

use permits_bench::Failure;
use permits_bench::modes::Mode;
use permits_bench::results::{Results, Spread};
use permits_bench::system::{KEEPING, Kind, System};
use plotters::prelude::*;

/// `permits`, the peers, the floors.
const OURS: RGBColor = RGBColor(31, 119, 180);
const PEER: RGBColor = RGBColor(158, 158, 158);
const FLOOR: RGBColor = RGBColor(210, 210, 210);

/// Width of a picture, of the names on its left, and the height of a system's bars with their share of space.
const WIDTH: i32 = 820;
const NAMES: i32 = 310;
const ROW: i32 = 40;
const BAR: i32 = 15;

/// The modes with a bar, and the opacity of the bar.
const MODES: [(Mode, f64); 2] = [(Mode::Quiet, 1.0), (Mode::Awake, 0.6)];

/// The bars of a system, by mode.
type Bars<'a> = (&'a System, [Option<Spread>; 2]);

/// Draws a picture for each workload that reads better so. Leaves out systems without a round trip: beside
/// them all other bars would have one length.
pub(crate) fn draw(
    results: &Results,
    systems: &[System],
    lines: &[usize],
    into: &Path,
) -> Result<(), Failure> {
    for (file, title, figure, by) in [
        ("a.svg", "A. Median time of a cycle by one task, µs (less is better)", "A.p50_us", 1.0),
        ("b.svg", "B. 1,000 cycles a second by 64 tasks (more is better)", "B64.per_s", 1e3),
        (
            "c.svg",
            "C. Throughput of 64 tasks in 4 processes, % of the ideal (more is better)",
            "C.of_ideal",
            0.01,
        ),
        ("d.svg", "D. Median time of a hand-off, µs (less is better)", "D.p50_us", 1.0),
    ] {
        let of = |system: &System| MODES.map(|(mode, _)| results.get(mode, system.name, figure));
        let sends = |system: &&System| KEEPING.iter().all(|keeping| keeping.name != system.name);
        let bars = systems.iter().filter(sends).map(|system| (system, of(system)));
        let bars: Vec<Bars<'_>> = bars.filter(|(_, spreads)| spreads.iter().any(Option::is_some)).collect();
        if !bars.is_empty() {
            draw_bars(&into.join(file), title, &bars, by)?;
        }
    }
    draw_lines(&into.join("f.svg"), results, systems, lines)
}

/// Draws for each system a bar for each mode, from the left, with its value, and its spread as a line.
fn draw_bars(path: &Path, title: &str, bars: &[Bars<'_>], by: f64) -> Result<(), Failure> {
    let height = 62 + ROW * bars.len() as i32;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw(&Text::new(title.to_owned(), (10, 12), ("sans-serif", 17)))?;
    let legend = "Upper bar: quiet; lower, lighter bar: awake";
    area.draw(&Text::new(legend, (10, 34), ("sans-serif", 13)))?;
    let spreads = bars.iter().flat_map(|(_, spreads)| spreads.iter().flatten());
    let longest = spreads.map(|spread| spread.high).fold(0.0, f64::max);
    let x = |value: f64| NAMES + (f64::from(WIDTH - NAMES - 80) * value / longest) as i32;
    for (row, (system, spreads)) in bars.iter().enumerate() {
        let top = 56 + ROW * row as i32;
        area.draw(&Text::new(system.title, (10, top + 9), ("sans-serif", 13)))?;
        let colour = match system.kind {
            Kind::Ours => OURS,
            Kind::Peer => PEER,
            Kind::Floor => FLOOR,
        };
        for (number, (spread, (_, opacity))) in spreads.iter().zip(MODES).enumerate() {
            let Some(spread) = spread else { continue };
            let top = top + BAR * number as i32;
            let corners = [(NAMES, top), (x(spread.median), top + BAR - 1)];
            area.draw(&Rectangle::new(corners, colour.mix(opacity).filled()))?;
            let middle = top + BAR / 2;
            area.draw(&PathElement::new([(x(spread.low), middle), (x(spread.high), middle)], BLACK))?;
            let value = spread.median / by;
            let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") };
            area.draw(&Text::new(text, (x(spread.high) + 6, top + 1), ("sans-serif", 12)))?;
        }
    }
    Ok(area.present()?)
}

/// Draws the server time of a grant over the length of the queue, both in powers of ten, with a quiet
/// machine.
fn draw_lines(path: &Path, results: &Results, systems: &[System], lines: &[usize]) -> Result<(), Failure> {
    let series: Vec<(&System, Vec<(f64, f64)>)> = systems
        .iter()
        .map(|system| {
            let point = |length: &usize| {
                let figure = format!("F{length}.server_us");
                Some((*length as f64, results.median(Mode::Quiet, system.name, &figure)?))
            };
            (system, lines.iter().filter_map(point).collect())
        })
        .filter(|(_, points): &(_, Vec<_>)| !points.is_empty())
        .collect();
    let values = series.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let Some((first, last)) = lines.first().zip(lines.last()).filter(|_| low <= high) else { return Ok(()) };
    let area = SVGBackend::new(path, (WIDTH as u32, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            "F. Server time of a grant, µs, by the length of the line, quiet (less is better)",
            ("sans-serif", 17),
        )
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(52)
        .build_cartesian_2d(
            (*first as f64 * 0.8..*last as f64 * 1.3).log_scale(),
            (low * 0.7..high * 1.5).log_scale(),
        )?;
    chart.configure_mesh().light_line_style(TRANSPARENT).draw()?;
    for (number, (system, points)) in series.iter().enumerate() {
        let colour =
            if system.kind == Kind::Ours { OURS.to_rgba() } else { Palette99::pick(number + 1).to_rgba() };
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(3))?
            .label(system.title)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(PEER).draw()?;
    drop(chart);
    Ok(area.present()?)
}
