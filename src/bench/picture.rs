//! Time per epoch over batch size, as a picture: a line for each number of ranks and variant, and beside them what perfect
//! scaling from the smallest measurement would give.

use super::table::Point;
use super::BenchError;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// In points of the picture.
const SIZE: (u32, u32) = (900, 620);
const FONT: &str = "sans-serif";
/// Room beside the outermost points, as a factor.
const MARGIN: f64 = 1.3;

/// A measured line: batch sizes and seconds, by batch size.
type Line = Vec<(f64, f64)>;

/// Writes an SVG file.
///
/// # Errors
/// No points, or a file that cannot be written.
pub fn draw(path: &Path, points: &[Point]) -> Result<(), BenchError> {
    let failed = |message: String| BenchError::Picture {
        path: path.into(),
        message,
    };
    if points.is_empty() {
        return Err(failed("there are no measurements".into()));
    }
    let mut text = String::new();
    draw_lines(&mut text, points).map_err(|error| failed(error.to_string()))?;
    std::fs::write(path, text).map_err(BenchError::io("write", path))
}

/// By variant, then by number of ranks. Of a batch size that was measured several times, the last one counts.
fn lines(points: &[Point]) -> BTreeMap<(&str, usize), Line> {
    let mut lines: BTreeMap<(&str, usize), BTreeMap<usize, f64>> = BTreeMap::new();
    for point in points {
        let line = lines.entry((&point.variant, point.ranks)).or_default();
        line.insert(point.batch_size, point.epoch_time);
    }
    let values = |line: BTreeMap<usize, f64>| line.into_iter().map(|(size, time)| (size as f64, time)).collect();
    lines.into_iter().map(|(key, line)| (key, values(line))).collect()
}

/// `time(1) · batch(1) / batch(n)`, from the first point of the fewest ranks of each variant, over all batch sizes.
fn projections(lines: &BTreeMap<(&str, usize), Line>, sizes: &Range<f64>) -> BTreeMap<String, Line> {
    let mut projections = BTreeMap::new();
    for (&(variant, _), line) in lines {
        let (batch_size, time) = line[0];
        let ideal = |size: f64| (size, time * batch_size / size);
        projections
            .entry(variant.to_string())
            .or_insert_with(|| vec![ideal(batch_size), ideal(sizes.end)]);
    }
    projections
}

/// From the smallest to the largest, with some room.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    low / MARGIN..high * MARGIN
}

fn draw_lines(text: &mut String, points: &[Point]) -> Result<(), Box<dyn std::error::Error>> {
    let lines = lines(points);
    let sizes = range(points.iter().map(|point| point.batch_size as f64));
    let projections = projections(&lines, &sizes);
    let ideal_times = projections.values().flatten().map(|&(_, time)| time);
    let times = range(points.iter().map(|point| point.epoch_time).chain(ideal_times));

    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption("Time per epoch", (FONT, 22))
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(sizes.log_scale(), times.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("batch size, over all ranks")
        .y_desc("time per epoch [s]")
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|time| format!("{time}"))
        .draw()?;
    for (index, ((variant, ranks), line)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(line.iter().copied(), color.stroke_width(2)).point_size(4))?
            .label(format!("{variant}, {ranks} rank{}", if *ranks == 1 { "" } else { "s" }))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    for (variant, line) in projections {
        chart
            .draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(1)))?
            .label(format!("{variant}, ideal"))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], BLACK.stroke_width(1)));
    }
    chart
        .configure_series_labels()
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ranks: usize, batch_size: usize, epoch_time: f64) -> Point {
        Point {
            variant: "sync".into(),
            ranks,
            batch_size,
            epoch_time,
        }
    }

    #[test]
    fn draws_a_line_for_each_number_of_ranks_beside_the_ideal() {
        let points = [
            point(2, 128, 30.0),
            point(1, 128, 50.0),
            point(1, 64, 70.0),
            point(1, 64, 80.0),
        ];
        let lines = lines(&points);
        assert_eq!(
            lines[&("sync", 1)],
            [(64.0, 80.0), (128.0, 50.0)],
            "sorted, and the last one counts"
        );
        assert_eq!(lines[&("sync", 2)], [(128.0, 30.0)]);
        let projections = projections(&lines, &(50.0..256.0));
        assert_eq!(projections["sync"], [(64.0, 80.0), (256.0, 20.0)]);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.svg");
        draw(&path, &points).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [
            "<svg",
            "sync, 1 rank\n",
            "sync, 2 ranks\n",
            "sync, ideal\n",
            "batch size",
        ] {
            assert!(text.contains(part), "{part:?} is not in the picture");
        }
        assert!(draw(&path, &[]).is_err());
    }
}
