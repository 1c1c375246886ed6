//! The plots of lab/recipes/README.md: lines and bars, as SVG, each recipe in the same colour throughout.

use std::ops::Range;
use std::path::Path;

use permits_bench::Failure;
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::Kind;
use crate::experiments::LIMIT;

use super::figures::{Cost, HERDS, Herds, WORKLOADS};

const SIZE: (u32, u32) = (760, 400);
const FONT: &str = "sans-serif";

/// A colour for each recipe. The line of `permits` is the darkest, and drawn thicker.
const COLOURS: [RGBColor; 8] = [
    RGBColor(230, 159, 0),
    RGBColor(204, 51, 17),
    RGBColor(238, 119, 51),
    RGBColor(187, 136, 170),
    RGBColor(0, 153, 136),
    RGBColor(51, 187, 238),
    RGBColor(153, 153, 51),
    RGBColor(17, 34, 85),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Lines = Vec<Vec<(f64, f64)>>;

fn area(path: &Path) -> Result<Area<'_>, Failure> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    Ok(area)
}

/// Plots the number admitted beyond the limit over the skew of the clocks.
pub(super) fn skews(path: &Path, curve: &[(i64, Vec<u32>)]) -> Result<(), Failure> {
    let line = |row: usize| {
        // Lines that lie on one another are moved apart by a little.
        let shift = row as f64 * 0.04 - 0.14;
        curve.iter().map(|(skew, extra)| (*skew as f64 / 1e3, f64::from(extra[row]) + shift)).collect()
    };
    let lines: Lines = (0..Kind::ALL.len()).map(line).collect();
    let title = "Holders beyond the limit of 5, by how far clocks are apart";
    draw(path, title, "seconds apart", (1e-3..1e3, Scale::Linear(-0.3..f64::from(LIMIT) + 0.5)), &lines)
}

/// The figure of a herd that is plotted.
#[derive(Clone, Copy)]
pub(super) enum Herding {
    Requests,
    Grants,
}

/// Plots the cost of many waiters.
pub(super) fn herds(path: &Path, herds: &Herds, what: Herding) -> Result<(), Failure> {
    let lines: Lines = herds
        .iter()
        .map(|row| {
            let value = row.iter().map(|herd| match what {
                Herding::Requests => herd.requests_per_grant,
                Herding::Grants => herd.grants_per_second.max(1.0),
            });
            let points = HERDS.iter().map(|waiters| *waiters as f64).zip(value);
            points.filter(|(_, value)| value.is_finite()).collect()
        })
        .collect();
    let (low, high) = lines
        .iter()
        .flatten()
        .fold((f64::MAX, 1.0_f64), |(low, high), (_, value)| (low.min(*value), high.max(*value)));
    let title = match what {
        Herding::Requests => "Requests to the server for each grant",
        Herding::Grants => "Grants a second, 4 at once, each held for 1 ms",
    };
    draw(path, title, "waiters", (8.0..1250.0, Scale::Log(low / 1.3..high * 1.3)), &lines)
}

/// The axis upwards.
enum Scale {
    Linear(Range<f64>),
    Log(Range<f64>),
}

fn draw(
    path: &Path,
    title: &str,
    below: &str,
    (x, y): (Range<f64>, Scale),
    lines: &Lines,
) -> Result<(), Failure> {
    let area = area(path)?;
    let mut builder = ChartBuilder::on(&area);
    builder.caption(title, (FONT, 18)).margin(12).x_label_area_size(40).y_label_area_size(55);
    builder.margin_right(150);
    match y {
        Scale::Linear(y) => plot(builder.build_cartesian_2d(x.log_scale(), y)?, below, lines)?,
        Scale::Log(y) => plot(builder.build_cartesian_2d(x.log_scale(), y.log_scale())?, below, lines)?,
    }
    legend(&area)?;
    Ok(area.present()?)
}

fn plot<Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<LogCoord<f64>, Y>>,
    below: &str,
    lines: &Lines,
) -> Result<(), Failure>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(below).light_line_style(WHITE).label_style((FONT, 12));
    mesh.x_label_formatter(&|value| format!("{value}"))
        .y_label_formatter(&|value| format!("{value}"))
        .draw()?;
    for (row, line) in lines.iter().enumerate() {
        let width = if row + 1 == Kind::ALL.len() { 3 } else { 2 };
        chart.draw_series(LineSeries::new(line.iter().copied(), COLOURS[row].stroke_width(width)))?;
    }
    Ok(())
}

/// The names, at the right side.
fn legend(area: &Area<'_>) -> Result<(), Failure> {
    for (row, kind) in Kind::ALL.into_iter().enumerate() {
        let (x, y) = (SIZE.0 as i32 - 140, 60 + 22 * row as i32);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 10)], COLOURS[row].filled()))?;
        area.draw(&Text::new(kind.to_string(), (x + 20, y), (FONT, 13)))?;
    }
    Ok(())
}

/// Plots the speed relative to `permits`, by workload.
pub(super) fn speed(path: &Path, cost: &Cost) -> Result<(), Failure> {
    let area = area(path)?;
    let highest = cost.ratios.iter().flatten().fold(1.5_f64, |high, ratio| high.max(*ratio));
    let mut builder = ChartBuilder::on(&area);
    builder.caption("Speed against permits (1), by workload, quiet", (FONT, 18));
    builder.margin(12).margin_right(150).x_label_area_size(40).y_label_area_size(55);
    let columns = WORKLOADS.len();
    let mut chart: ChartContext<'_, _, Cartesian2d<RangedCoordf64, RangedCoordf64>> =
        builder.build_cartesian_2d(0.0..columns as f64, 0.0..highest * 1.1)?;
    let names = |place: &f64| match WORKLOADS.get(place.floor() as usize) {
        Some(workload) if place.fract() == 0.5 => workload.label.to_owned(),
        _ => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(WHITE).label_style((FONT, 11));
    mesh.x_labels(2 * columns + 1).x_label_formatter(&names).draw()?;
    let bars = Kind::ALL.len() as f64 + 2.0;
    for (row, ratios) in cost.ratios.iter().enumerate() {
        let bar = |(column, ratio): (usize, &f64)| {
            let left = column as f64 + (row as f64 + 1.0) / bars;
            Rectangle::new([(left, 0.0), (left + 0.9 / bars, *ratio)], COLOURS[row].filled())
        };
        chart.draw_series(ratios.iter().enumerate().map(bar))?;
    }
    legend(&area)?;
    Ok(area.present()?)
}
