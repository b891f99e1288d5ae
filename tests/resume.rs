//! Runs that are stopped, killed, moved to other numbers of ranks: they go on as if nothing had happened. The program itself
//! under mpirun, on the reference case `toy` with what makes resuming hard: dropout, batch normalization over the ranks,
//! momentum, a scheduler that looks at the loss, early stopping, two stages.

mod common;

use common::{mpirun, run, Ended};
use dingo_spmd::checkpoint::{Checkpoint, Object};
use dingo_spmd::settings::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Of the loss, between runs on other numbers of ranks, relative. Rounding makes some 1e-7; at larger learning rates training
/// amplifies it without bound.
const TOLERANCE: f64 = 1e-5;

/// A folder with settings and the train dirs of runs.
struct Bench {
    folder: tempfile::TempDir,
}

/// The settings of `toy`, changed: `section.key` and YAML.
fn settings(changes: &[(&str, &str)]) -> Value {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/toy");
    let text = fs::read_to_string(case.join("train_settings.yaml")).unwrap();
    let mut settings: Value = serde_yaml::from_str(&text).unwrap();
    let mut set = |path: &str, yaml: &str| {
        let place = path.split('.').fold(&mut settings, |place, key| &mut place[key]);
        *place = serde_yaml::from_str(yaml).unwrap();
    };
    let file = |name: &str| case.join(name).display().to_string();
    set("data.waveform_dataset_path", &file("waveform_dataset.hdf5"));
    for (stage, asds, epochs) in [("stage_0", "asds_fiducial.hdf5", "5"), ("stage_1", "asds.hdf5", "5")] {
        let key = |key: &str| format!("training.{stage}.{key}");
        set(&key("asd_dataset_path"), &file(asds));
        set(&key("epochs"), epochs);
        set(&key("batch_size"), "8");
        set(&key("optimizer"), "{type: adam, lr: 0.0005}");
        set(&key("scheduler"), "{type: reduce_on_plateau, patience: 0, factor: 0.5}");
        set(&key("early_stopping"), "{patience: 9}");
    }
    let transform = "model.posterior_kwargs.base_transform_kwargs";
    for (key, value) in [
        ("hidden_dim", "16"),
        ("dropout_probability", "0.1"),
        ("batch_norm", "true"),
    ] {
        set(&format!("{transform}.{key}"), value);
    }
    set("model.posterior_kwargs.num_flow_steps", "2");
    set("model.embedding_kwargs.dropout", "0.1");
    set("model.embedding_kwargs.batch_norm", "true");
    set("local.seed", "11");
    for (path, yaml) in changes {
        set(path, yaml);
    }
    settings
}

impl Bench {
    fn new(changes: &[(&str, &str)]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let text = serde_yaml::to_string(&settings(changes)).unwrap();
        fs::write(folder.path().join("settings.yaml"), text).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program on these ranks with this train dir.
    fn command(&self, ranks: usize, train_dir: &str) -> Command {
        let mut command = mpirun(ranks);
        command
            .arg(env!("CARGO_BIN_EXE_dingo-spmd"))
            .arg(self.path("settings.yaml"))
            .arg("--train-dir")
            .arg(self.path(train_dir));
        command
    }

    fn run(&self, ranks: usize, train_dir: &str) -> Ended {
        run(self.command(ranks, train_dir))
    }

    /// A run that is stopped as soon as it has trained on this many batches.
    fn interrupt(&self, ranks: usize, train_dir: &str, batches: usize, how: Interruption) -> Ended {
        let is_there = |log: &str| log.matches("Train Epoch").count() >= batches;
        self.interrupt_when(ranks, train_dir, is_there, how)
    }

    fn interrupt_when(
        &self,
        ranks: usize,
        train_dir: &str,
        is_there: impl Fn(&str) -> bool,
        how: Interruption,
    ) -> Ended {
        let (stdout, stderr) = (self.path("stdout"), self.path("stderr"));
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let mut command = self.command(ranks, train_dir);
        command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        let begin = Instant::now();
        let mut child = command.spawn().unwrap();
        while !is_there(&read(&stdout)) {
            let over = child.try_wait().unwrap().is_some() || begin.elapsed() > common::PATIENCE;
            assert!(!over, "not reached:\n{}\n{}", read(&stdout), read(&stderr));
            std::thread::sleep(Duration::from_millis(5));
        }
        let begin = Instant::now();
        how.carry_out(&child);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > common::PATIENCE {
                child.kill().unwrap();
                panic!("{how:?} did not end it:\n{}\n{}", read(&stdout), read(&stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ended {
            status,
            took: begin.elapsed(),
            stdout: read(&stdout),
            stderr: read(&stderr),
        }
    }

    fn checkpoint(&self, train_dir: &str) -> Checkpoint {
        Checkpoint::load(self.path(train_dir).join("model_latest.pt")).unwrap()
    }

    /// Epoch, train loss, test loss, learning rate.
    fn history(&self, train_dir: &str) -> Vec<[f64; 4]> {
        let text = fs::read_to_string(self.path(train_dir).join("history.txt")).unwrap();
        let row = |row: &str| -> Vec<f64> { row.split('\t').map(|number| number.parse().unwrap()).collect() };
        text.lines().map(|line| row(line).try_into().unwrap()).collect()
    }

    /// Every file that both runs leave, byte by byte.
    fn assert_same_files(&self, one: &str, other: &str) {
        let files = [
            "history.txt",
            "model_latest.pt",
            "best_model.pt",
            "model_stage_0.pt",
            "model_stage_1.pt",
        ];
        for file in files {
            let read = |train_dir: &str| fs::read(self.path(train_dir).join(file)).unwrap();
            assert!(read(one) == read(other), "{file} of {one} and {other} differ");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Interruption {
    /// A signal to mpirun.
    Signal(i32),
    KillRank(usize),
    KillAll,
}

impl Interruption {
    fn carry_out(self, mpirun: &Child) {
        let mpirun = mpirun.id();
        match self {
            Interruption::Signal(signal) => send(mpirun, signal),
            Interruption::KillRank(rank) => send(children(mpirun)[rank], libc::SIGKILL),
            Interruption::KillAll => {
                let ranks = children(mpirun);
                ranks.into_iter().for_each(|rank| send(rank, libc::SIGKILL));
                send(mpirun, libc::SIGKILL);
            }
        }
    }
}

fn send(process: u32, signal: i32) {
    // SAFETY: sends a signal. A process that has ended meanwhile is as good as one that ends by it.
    unsafe { libc::kill(process as i32, signal) };
}

/// The processes that this one started, oldest first.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |process: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name, which may hold anything: the state, then the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children: Vec<u32> = processes
        .filter(|&process| parent_of(process) == Some(parent))
        .collect();
    children.sort_unstable();
    children
}

/// Where inside an epoch a checkpoint was written.
fn batches_done(checkpoint: &Checkpoint) -> u64 {
    let progress = checkpoint.spmd.as_ref().and_then(|spmd| spmd.get("progress"));
    progress
        .and_then(|progress| progress.get("batches"))
        .and_then(Object::as_u64)
        .unwrap()
}

#[test]
fn a_killed_run_ends_as_if_it_had_not_been() {
    // Some checkpoints inside epochs: an epoch has 29 steps of some 10 ms.
    let bench = Bench::new(&[("local.checkpoint_minutes", "0.001")]);
    let whole = bench.run(2, "whole");
    assert!(whole.status.success(), "{}", whole.output());
    assert!(whole.stdout.matches("Saving model").count() > 13, "{}", whole.output());
    let epochs = bench.history("whole").into_iter().map(|[epoch, ..]| epoch as u64);
    assert!(epochs.eq(1..=10));

    let interruptions = [
        (4, Interruption::Signal(libc::SIGUSR1)),
        (31, Interruption::KillRank(1)),
        (17, Interruption::Signal(libc::SIGTERM)),
        (40, Interruption::KillAll),
        (7, Interruption::Signal(libc::SIGINT)),
    ];
    for (batches, how) in interruptions {
        let ended = bench.interrupt(2, "killed", batches, how);
        assert!(!ended.status.success(), "{how:?}: {}", ended.output());
        let checkpoint = bench.checkpoint("killed");
        if let Interruption::Signal(_) = how {
            assert!(ended.stdout.contains("Stop run: SIG"), "{how:?}: {}", ended.output());
        }
        if let Interruption::Signal(libc::SIGUSR1) = how {
            assert_eq!(ended.status.code(), Some(3), "{}", ended.output());
            assert_eq!(checkpoint.epoch, 0, "epochs completed");
            assert!(batches_done(&checkpoint) >= 4 && checkpoint.iteration == batches_done(&checkpoint));
        }
    }
    let ended = bench.run(2, "killed");
    assert!(ended.status.success(), "{}", ended.output());
    bench.assert_same_files("whole", "killed");
}

#[test]
fn the_number_of_ranks_may_change() {
    let bench = Bench::new(&[]);
    let whole = bench.run(1, "whole");
    assert!(whole.status.success(), "{}", whole.output());

    let usr1 = Interruption::Signal(libc::SIGUSR1);
    for (ranks, batches) in [(1, 40), (4, 50)] {
        let ended = bench.interrupt(ranks, "moved", batches, usr1);
        assert_eq!(ended.status.code(), Some(3), "{}", ended.output());
        assert!(batches_done(&bench.checkpoint("moved")) > 0, "inside an epoch");
    }
    let ended = bench.run(2, "moved");
    assert!(ended.status.success(), "{}", ended.output());

    let (whole, moved) = (bench.history("whole"), bench.history("moved"));
    assert_eq!(whole.len(), moved.len());
    for ([epoch, losses @ .., lr], [moved_epoch, moved_losses @ .., moved_lr]) in whole.iter().zip(&moved) {
        assert_eq!((epoch, lr), (moved_epoch, moved_lr));
        for (loss, moved) in losses.iter().zip(moved_losses) {
            assert!(
                (loss - moved).abs() <= TOLERANCE * loss.abs(),
                "epoch {epoch}: {loss} and {moved}"
            );
        }
    }
}

/// The run would go on for hours.
#[test]
fn a_time_limit_stops_inside_an_epoch() {
    let bench = Bench::new(&[
        ("training.stage_0.epochs", "1000000"),
        ("training.stage_0.early_stopping.patience", "1000000"),
        ("local.runtime_limits.max_time_per_run", "3"),
    ]);
    let ended = bench.run(2, "limited");
    assert_eq!(ended.status.code(), Some(3), "{}", ended.output());
    let told = [
        "Stop run: Time limit of 3 s exceeded.",
        "Program terminated due to runtime limit.",
    ];
    told.iter()
        .for_each(|line| assert!(ended.stdout.contains(line), "{}", ended.output()));
    let checkpoint = bench.checkpoint("limited");
    let trained = ended.stdout.matches("Train Epoch").count() as u64;
    assert_eq!(checkpoint.iteration, trained, "all that was trained is kept");
    assert_eq!(29 * checkpoint.epoch + batches_done(&checkpoint), trained);
}

/// The waveforms are a pipe that nobody writes to, so the program waits for them.
#[test]
fn a_signal_before_training_ends_the_program() {
    let bench = Bench::new(&[("data.waveform_dataset_path", "FOLDER/waveforms.hdf5")]);
    let settings = bench.path("settings.yaml");
    let text = fs::read_to_string(&settings).unwrap();
    let text = text.replace("FOLDER", &bench.path("").display().to_string());
    fs::write(&settings, text).unwrap();
    let waveforms = bench.path("waveforms.hdf5");
    let name = std::ffi::CString::new(waveforms.to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in a null byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);

    let usr1 = Interruption::Signal(libc::SIGUSR1);
    let waits = |log: &str| log.contains("Seed: ");
    let ended = bench.interrupt_when(2, "run", waits, usr1);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output());
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    assert!(
        ended.stderr.contains("SIGUSR1") && ended.stderr.contains("nothing to save"),
        "{}",
        ended.output()
    );
    assert!(!bench.path("run").exists(), "no train dir is left");

    // With a checkpoint there, the same is a stop like any other.
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/toy");
    fs::remove_file(&waveforms).unwrap();
    fs::copy(case.join("waveform_dataset.hdf5"), &waveforms).unwrap();
    assert_eq!(bench.interrupt(2, "run", 5, usr1).status.code(), Some(3));
    let before = fs::read(bench.path("run/model_latest.pt")).unwrap();
    fs::remove_file(&waveforms).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let ended = bench.interrupt_when(2, "run", waits, usr1);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.output());
    assert!(fs::read(bench.path("run/model_latest.pt")).unwrap() == before);
}
