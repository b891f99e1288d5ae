//! `history.txt`: one row per epoch, as Dingo's `write_history` (Python's csv writer) writes it; and other files like it.

use super::writer::{Contents, NewFile};
use super::TrainError;
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of epoch, train loss, test loss and learning rates, separated by tabs and ended by `\r\n`. Rank 0's alone.
///
/// It is kept in memory, and the file replaced by the whole of it, so that no row is ever cut off or missing.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    rows: String,
}

impl History {
    /// Dingo's.
    pub const NAME: &str = "history.txt";
    /// Rows of epoch, noise scale, its standard error, suggested batch size, |G|² and tr Σ (see [`NoiseScale`](super::NoiseScale)).
    pub const NOISE_SCALE: &str = "gradient_noise_scale.txt";

    /// The file `name` of a new run. Errors if the train directory has one already: that of another run is never overwritten.
    pub fn create(train_dir: &Path, name: &str) -> Result<History, TrainError> {
        let path = train_dir.join(name);
        if path.exists() {
            let message = "belongs to an earlier run; resume that run or choose another train directory".to_owned();
            return Err(TrainError::History { path, message });
        }
        let rows = String::new();
        Ok(History { path, rows })
    }

    /// For a run that continues after `completed_epochs`. A row of a later epoch, or one cut off while it was written (by
    /// Dingo), comes from a run that ended before its checkpoint: such rows are dropped, in the file with the next
    /// checkpoint.
    pub fn resume(train_dir: &Path, name: &str, completed_epochs: u64) -> Result<History, TrainError> {
        let path = train_dir.join(name);
        let mut rows = String::new();
        if !path.exists() {
            return Ok(History { path, rows });
        }
        let text = fs::read_to_string(&path).map_err(TrainError::io("read", &path))?;
        for row in text.split_inclusive('\n').filter(|row| row.ends_with('\n')) {
            let epoch = row
                .split('\t')
                .next()
                .and_then(|epoch| epoch.trim().parse::<u64>().ok());
            let Some(epoch) = epoch else {
                let message = format!("{:?} is not a row of a training history", row.trim_end());
                return Err(TrainError::History { path, message });
            };
            if epoch <= completed_epochs {
                rows.push_str(row);
            }
        }
        Ok(History { path, rows })
    }

    /// Adds an epoch's row. `learning_rates` are those the epoch was trained with.
    pub fn add(&mut self, epoch: u64, train_loss: f64, test_loss: f64, learning_rates: &[f64]) {
        let losses = [train_loss, test_loss];
        self.add_row(epoch, losses.iter().chain(learning_rates).copied());
    }

    /// Adds an epoch's row with these numbers.
    pub fn add_row(&mut self, epoch: u64, numbers: impl IntoIterator<Item = f64>) {
        let row = &mut self.rows;
        row.push_str(&epoch.to_string());
        for number in numbers {
            row.push('\t');
            row.push_str(&python_repr(number));
        }
        row.push_str("\r\n");
    }

    /// The file, to be written before the checkpoint of its last epoch, so that no checkpoint is ahead of its history. None
    /// before the first epoch is complete.
    pub fn file(&self) -> Option<NewFile> {
        let is_due = !self.rows.is_empty() || self.path.exists();
        is_due.then(|| NewFile {
            paths: vec![self.path.clone()],
            contents: Contents::Text(self.rows.clone()),
        })
    }
}

/// A float as Python's `repr`: the shortest digits that give it back, an exponent of two digits at least when the
/// leading digit stands below 1e-4 or at 1e16 and above.
fn python_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Rust's shortest digits, as mantissa and exponent.
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        format!("{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs printed by Python.
    #[test]
    fn floats_look_as_in_python() {
        let pairs = [
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (0.00012345, "0.00012345"),
            (9.999e-5, "9.999e-05"),
            (5e-5, "5e-05"),
            (3.0, "3.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (-13.664597511291504, "-13.664597511291504"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in pairs {
            assert_eq!(python_repr(number), text);
        }
    }

    fn text(history: &History) -> String {
        match history.file().map(|file| file.contents) {
            Some(Contents::Text(text)) => text,
            Some(Contents::Checkpoint(_)) => panic!("a history is text"),
            None => String::new(),
        }
    }

    /// The bytes that Dingo's `write_history` left for the same calls.
    #[test]
    fn rows_are_dingos() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::create(folder.path(), History::NAME).unwrap();
        history.add(1, -1.5, f64::NAN, &[1e-5]);
        history.add(2, 12345678901234567890.0, f64::INFINITY, &[0.0001, 3.0]);
        assert_eq!(
            text(&history),
            "1\t-1.5\tnan\t1e-05\r\n2\t1.2345678901234567e+19\tinf\t0.0001\t3.0\r\n"
        );
        fs::write(&history.path, "").unwrap();
        assert!(matches!(
            History::create(folder.path(), History::NAME),
            Err(TrainError::History { .. })
        ));
    }

    #[test]
    fn resuming_drops_what_the_checkpoint_does_not_know() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.txt");
        fs::write(
            &path,
            "1\t3.0\t3.1\t0.1\r\n2\t2.0\t2.1\t0.1\r\n3\t1.0\t1.1\t0.1\r\n4\t0.9",
        )
        .unwrap();
        let mut history = History::resume(folder.path(), History::NAME, 2).unwrap();
        history.add(3, 1.5, 1.6, &[0.1]);
        assert_eq!(
            text(&history),
            "1\t3.0\t3.1\t0.1\r\n2\t2.0\t2.1\t0.1\r\n3\t1.5\t1.6\t0.1\r\n"
        );

        // A torn row is dropped even if its epoch is complete, or the next row would be glued to it.
        fs::write(&path, "1\t3.0\t3.1\t0.1\r\n2\t2.").unwrap();
        let history = History::resume(folder.path(), History::NAME, 2).unwrap();
        assert_eq!(text(&history), "1\t3.0\t3.1\t0.1\r\n");

        fs::write(&path, "epoch\tloss\r\n").unwrap();
        let error = History::resume(folder.path(), History::NAME, 2)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("history.txt") && error.contains("epoch\\tloss"),
            "{error}"
        );
    }

    #[test]
    fn resuming_without_a_history_starts_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::resume(folder.path(), History::NAME, 7).unwrap();
        history.add(8, 1.0, 2.0, &[0.5]);
        assert_eq!(text(&history), "8\t1.0\t2.0\t0.5\r\n");
    }
}
