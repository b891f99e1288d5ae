//! Measurements as rows of a CSV file. Runs on different numbers of ranks append to the same one.

use super::{BenchError, Measurement};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// A column: its name and where its values come from.
type Column = (&'static str, fn(&Measurement) -> String);

const COLUMNS: &[Column] = &[
    (VARIANT, |m| m.variant.to_string()),
    (RANKS, |m| m.ranks.to_string()),
    ("nodes", |m| m.nodes.to_string()),
    ("threads", |m| m.threads.to_string()),
    (BATCH_SIZE, |m| m.effective_batch_size.to_string()),
    ("frozen", |m| m.first_layer_frozen.to_string()),
    ("synthetic", |m| m.synthetic.to_string()),
    ("steps", |m| m.steps.to_string()),
    ("step_s", |m| m.step.time.median.to_string()),
    ("step_quartile_1_s", |m| m.step.time.first.to_string()),
    ("step_quartile_3_s", |m| m.step.time.third.to_string()),
    ("forward_s", |m| m.step.parts.forward.to_string()),
    ("backward_s", |m| m.step.parts.backward.to_string()),
    ("reduction_s", |m| m.step.parts.reduction.to_string()),
    ("update_s", |m| m.step.parts.update.to_string()),
    ("network_samples_per_s", |m| m.network_speed.to_string()),
    ("data_samples_per_s", |m| optional(m.data_speed)),
    ("training_samples_per_s", |m| optional(m.training_speed)),
    ("epoch_samples", |m| m.samples.to_string()),
    (EPOCH_TIME, |m| m.epoch_time.to_string()),
    ("aten_calls", |m| m.aten_calls.to_string()),
    ("gemm_flop", |m| m.flops.total().to_string()),
    ("peak_flop_per_s", |m| m.peak.best().to_string()),
    ("share_of_peak", |m| m.share_of_peak().to_string()),
    ("rss_anon_bytes", |m| optional(m.memory.anonymous)),
    ("peak_rss_bytes", |m| optional(m.memory.peak)),
    ("collectives", |m| m.step.communication.collectives.to_string()),
    ("bytes", |m| m.step.communication.bytes.to_string()),
    ("hidden_share", |m| optional(m.step.communication.hidden_share)),
];

const VARIANT: &str = "variant";
const RANKS: &str = "ranks";
const BATCH_SIZE: &str = "batch_size";
const EPOCH_TIME: &str = "epoch_s";

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Adds a row, below the names of the columns where the file is new.
///
/// # Errors
/// A file that cannot be written, or has other columns.
pub fn append(path: &Path, measurement: &Measurement) -> Result<(), BenchError> {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let is_new = fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
    if !is_new {
        let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
        if text.lines().next() != Some(&names.join(",")) {
            return Err(error(
                path,
                1,
                "has other columns than this program writes: name a new file",
            ));
        }
    }
    let open = OpenOptions::new().create(true).append(true).open(path);
    let mut file: File = open.map_err(BenchError::io("write", path))?;
    let values: Vec<String> = COLUMNS.iter().map(|(_, value)| value(measurement)).collect();
    let heading = if is_new { names.join(",") + "\n" } else { String::new() };
    let row = heading + &values.join(",") + "\n";
    file.write_all(row.as_bytes()).map_err(BenchError::io("write", path))
}

/// What a picture shows of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub variant: String,
    pub ranks: usize,
    pub batch_size: usize,
    /// Seconds per epoch.
    pub epoch_time: f64,
}

impl Point {
    pub fn of(measurement: &Measurement) -> Point {
        Point {
            variant: measurement.variant.to_string(),
            ranks: measurement.ranks,
            batch_size: measurement.effective_batch_size,
            epoch_time: measurement.epoch_time,
        }
    }
}

/// The rows of a file.
///
/// # Errors
/// One that is not such a table.
pub fn read(path: &Path) -> Result<Vec<Point>, BenchError> {
    let text = fs::read_to_string(path).map_err(BenchError::io("read", path))?;
    let mut lines = text.lines().enumerate();
    let names: Vec<&str> = lines.next().map_or(Vec::new(), |(_, line)| line.split(',').collect());
    let place = |name: &str| {
        let place = names.iter().position(|&other| other == name);
        place.ok_or_else(|| error(path, 1, format!("there is no column {name}")))
    };
    let places = [place(VARIANT)?, place(RANKS)?, place(BATCH_SIZE)?, place(EPOCH_TIME)?];
    lines.map(|(line, row)| point(path, line + 1, row, places)).collect()
}

fn point(path: &Path, line: usize, row: &str, places: [usize; 4]) -> Result<Point, BenchError> {
    let values: Vec<&str> = row.split(',').collect();
    let text = |place: usize| values.get(place).copied().unwrap_or_default();
    let [variant, ranks, batch_size, epoch_time] = places.map(text);
    let wrong = |what: &str| error(path, line, format!("{what:?} is not a number above 0"));
    let positive = |text: &str| -> Option<usize> { text.parse().ok().filter(|&number| number > 0) };
    let time = epoch_time
        .parse()
        .ok()
        .filter(|&time: &f64| time.is_finite() && time > 0.0);
    Ok(Point {
        variant: variant.into(),
        ranks: positive(ranks).ok_or_else(|| wrong(ranks))?,
        batch_size: positive(batch_size).ok_or_else(|| wrong(batch_size))?,
        epoch_time: time.ok_or_else(|| wrong(epoch_time))?,
    })
}

fn error(path: &Path, line: usize, message: impl Into<String>) -> BenchError {
    BenchError::Table {
        path: path.into(),
        line,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_in_any_order_of_columns_and_names_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let read_text = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).map_err(|error| error.to_string())
        };
        let points = read_text("epoch_s,ranks,other,batch_size,variant\n2.5,2,x,64,sync\n").unwrap();
        let expected = Point {
            variant: "sync".into(),
            ranks: 2,
            batch_size: 64,
            epoch_time: 2.5,
        };
        assert_eq!(points, [expected]);
        assert!(read_text("ranks,batch_size\n").is_err_and(|error| error.contains("no column variant")));
        let wrong = read_text("epoch_s,ranks,batch_size,variant\n2.5,2,64,sync\n2.5,none,64,sync\n");
        assert!(wrong.is_err_and(|error| error.contains("line 3") && error.contains("none")));
    }
}
