//! Files of a train dir, written in the background while training goes on.

use super::TrainError;
use crate::checkpoint::{replace_file, Checkpoint};
use crate::torch_ext::threads::limit_this_thread;
use anyhow::{Context, Result};
use crossbeam_channel::{bounded, Receiver};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long an interrupted program waits for files that are being written. Another rank may be waiting for it.
const GRACE: Duration = Duration::from_secs(5);

/// Contents to be put in place of what stands at these paths, one after the other.
pub struct NewFile {
    pub paths: Vec<PathBuf>,
    pub contents: Contents,
}

pub enum Contents {
    Text(String),
    /// Its tensors are nobody else's, or will not change.
    Checkpoint(Box<Checkpoint>),
}

/// Writes files on a thread of its own, each whole or not at all, in the order in which they are handed in: a file that is
/// on the disk has those before it beside it. Files that could not be written are tried again with the next ones, unless
/// those replace them.
#[derive(Default)]
pub struct Writer {
    under_way: Option<Receiver<Written>>,
    /// What the last attempt could not write.
    left: Vec<NewFile>,
    /// Attempts in a row that failed.
    failures: u32,
}

/// What came of an attempt: the files from the first that failed on, and why it did.
type Written = Result<(), (Vec<NewFile>, anyhow::Error)>;

impl Writer {
    /// Hands in files, after the ones before are written. A failure of those is reported in the log.
    ///
    /// # Errors
    /// The last two attempts failed.
    pub fn submit(&mut self, files: Vec<NewFile>) -> Result<()> {
        if let Some(error) = self.wait() {
            if self.failures > 1 {
                return Err(error.context("two attempts in a row to write files of the train dir have failed"));
            }
            log::warn!("{error:#}; the run goes on, and ends if the next attempt fails too");
        }
        let mut due = std::mem::take(&mut self.left);
        for old in &mut due {
            old.paths
                .retain(|path| !files.iter().any(|new| new.paths.contains(path)));
        }
        due.retain(|old| !old.paths.is_empty());
        due.extend(files);

        let (sender, receiver) = bounded(1);
        let work = move || {
            // The cores belong to the training.
            limit_this_thread(1);
            // If nobody waits any more, the process is about to end.
            let _ = sender.send(write_all(due));
        };
        std::thread::Builder::new()
            .name("writer".into())
            .spawn(work)
            .context("cannot start a thread to write files")?;
        self.under_way = Some(receiver);
        Ok(())
    }

    /// Waits until everything handed in is on the disk.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(&mut self) -> Result<()> {
        self.wait().map_or(Ok(()), Err)
    }

    /// Waits for the attempt under way, and takes its failure.
    fn wait(&mut self) -> Option<anyhow::Error> {
        let receiver = self.under_way.take()?;
        // The thread ends without a word only by a panic, which ends the job.
        let (left, error) = match receiver.recv().ok()? {
            Ok(()) => {
                self.failures = 0;
                return None;
            }
            Err(failed) => failed,
        };
        self.left = left;
        self.failures += 1;
        Some(error)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Reached without `finish` on the way out of an error, which is what will be told.
        if let Some(receiver) = self.under_way.take() {
            let _ = receiver.recv_timeout(GRACE);
        }
    }
}

fn write_all(mut files: Vec<NewFile>) -> Written {
    for number in 0..files.len() {
        if let Err(error) = files[number].write() {
            return Err((files.split_off(number), error));
        }
    }
    Ok(())
}

impl NewFile {
    fn write(&self) -> Result<()> {
        for path in &self.paths {
            match &self.contents {
                Contents::Checkpoint(checkpoint) => checkpoint.save(path)?,
                Contents::Text(text) => {
                    let written = replace_file(path, |out| out.write_all(text.as_bytes()));
                    written.map_err(TrainError::io("write", path))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn text(path: &Path, text: &str) -> NewFile {
        NewFile {
            paths: vec![path.to_owned()],
            contents: Contents::Text(text.into()),
        }
    }

    #[test]
    fn files_appear_in_order_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut writer = Writer::default();
        for turn in 0..20 {
            let contents = format!("{turn}");
            writer
                .submit(vec![text(&path("first"), &contents), text(&path("second"), &contents)])
                .unwrap();
            let read = |name| fs::read_to_string(path(name)).map_or(-1, |text| text.parse::<i64>().unwrap());
            let (second, first) = (read("second"), read("first"));
            assert!(first >= second && first >= turn - 1, "{first} {second} in turn {turn}");
        }
        writer.finish().unwrap();
        assert_eq!(fs::read_to_string(path("second")).unwrap(), "19");
    }

    #[test]
    fn one_failure_is_made_good() {
        let folder = tempfile::tempdir().unwrap();
        let later = folder.path().join("later");
        let (best, latest) = (later.join("best"), later.join("latest"));
        let mut writer = Writer::default();
        writer.submit(vec![text(&best, "1"), text(&latest, "1")]).unwrap();
        while !writer.under_way.as_ref().unwrap().is_full() {
            std::thread::yield_now();
        }
        fs::create_dir(&later).unwrap();
        writer.submit(vec![text(&latest, "2")]).unwrap();
        writer.finish().unwrap();
        assert_eq!(fs::read_to_string(&best).unwrap(), "1");
        assert_eq!(fs::read_to_string(&latest).unwrap(), "2");
        assert_eq!(writer.failures, 0);
    }

    #[test]
    fn two_failures_in_a_row_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("missing/file");
        let mut writer = Writer::default();
        writer.submit(vec![text(&nowhere, "1")]).unwrap();
        writer.submit(vec![text(&nowhere, "2")]).unwrap();
        let error = format!("{:#}", writer.submit(vec![text(&nowhere, "3")]).unwrap_err());
        assert!(
            error.contains("two attempts in a row") && error.contains("missing/file"),
            "{error}"
        );
    }

    #[test]
    fn a_failure_at_the_end_is_an_error() {
        let mut writer = Writer::default();
        let folder = tempfile::tempdir().unwrap();
        writer
            .submit(vec![text(&folder.path().join("missing/file"), "1")])
            .unwrap();
        assert!(writer.finish().is_err());
    }
}
