//! Runs that are stopped, killed, moved to other numbers of ranks: they go on as if nothing had happened. The program itself
//! under mpirun, on the reference case `toy` with what makes resuming hard: dropout, batch normalization over the ranks,
//! moments, a scheduler that looks at the loss, early stopping, two stages.

mod common;
// The program's own tests use the rest of it.
#[allow(dead_code)]
#[path = "program/workplace.rs"]
mod workplace;

use common::Ended;
use dingo_spmd::checkpoint::{Checkpoint, Object};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use workplace::{case, history, Workplace, COMPLETE, FAILED, STOPPED};

/// Of the loss, between runs on other numbers of ranks, relative. Rounding makes some 1e-7; at larger learning rates training
/// amplifies it without bound.
const TOLERANCE: f64 = 1e-5;

/// Steps of an epoch: 228 samples.
const STEPS: u64 = 29;

/// Two stages of five epochs.
fn hard_to_resume() -> Workplace {
    let mut workplace = Workplace::toy();
    for stage in ["training.stage_0", "training.stage_1"] {
        for (key, yaml) in [
            ("epochs", "5"),
            ("batch_size", "8"),
            ("optimizer", "{type: adam, lr: 0.0005}"),
            ("scheduler", "{type: reduce_on_plateau, patience: 0, factor: 0.5}"),
            ("early_stopping", "{patience: 9}"),
        ] {
            workplace.set(&format!("{stage}.{key}"), yaml);
        }
    }
    let transform = "model.posterior_kwargs.base_transform_kwargs";
    workplace.set("model.posterior_kwargs.num_flow_steps", "2");
    workplace.set(&format!("{transform}.hidden_dim"), "16");
    workplace.set(&format!("{transform}.dropout_probability"), "0.1");
    workplace.set(&format!("{transform}.batch_norm"), "true");
    workplace.set("model.embedding_kwargs.dropout", "0.1");
    workplace.set("model.embedding_kwargs.batch_norm", "true");
    workplace
}

/// The program with a train dir of this name.
fn command(workplace: &Workplace, ranks: usize, train_dir: &str) -> Command {
    let mut command = workplace.command(ranks);
    command.arg("--train-dir").arg(workplace.path(train_dir));
    command
}

fn run(workplace: &Workplace, ranks: usize, train_dir: &str) -> Ended {
    let ended = common::run(command(workplace, ranks, train_dir));
    assert_eq!(ended.status.code(), Some(COMPLETE), "{}", ended.output());
    ended
}

fn checkpoint(workplace: &Workplace, train_dir: &str) -> Checkpoint {
    Checkpoint::load(workplace.path(train_dir).join("model_latest.pt")).expect("a whole checkpoint")
}

/// Where inside an epoch a checkpoint was written.
fn batches_done(checkpoint: &Checkpoint) -> u64 {
    let progress = checkpoint.spmd.as_ref().and_then(|spmd| spmd.get("progress"));
    let batches = progress.and_then(|progress| progress.get("batches"));
    batches.and_then(Object::as_u64).expect("the position in the epoch")
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// A signal to mpirun.
    Signal(i32),
    KillRank(usize),
    KillAll,
}

const USR1: Interruption = Interruption::Signal(libc::SIGUSR1);

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
    let entries = fs::read_dir("/proc").expect("a list of processes").flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children: Vec<u32> = processes
        .filter(|&process| parent_of(process) == Some(parent))
        .collect();
    children.sort_unstable();
    children
}

/// The output of a job under way.
struct Output {
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Output {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).expect("the output")).into_owned()
    }

    fn both(&self) -> String {
        format!(
            "{}\n{}",
            self.stdout(),
            fs::read_to_string(&self.stderr).unwrap_or_default()
        )
    }
}

/// Runs a job and interrupts it as soon as `is_due` of its output; `took` counts from then.
fn interrupt(folder: &Path, mut command: Command, how: Interruption, is_due: impl Fn(&str) -> bool) -> Ended {
    let output = Output {
        stdout: folder.join("stdout"),
        stderr: folder.join("stderr"),
    };
    command
        .stdout(File::create(&output.stdout).expect("a file"))
        .stderr(File::create(&output.stderr).expect("a file"));
    let mut child = command.spawn().expect("mpirun starts");
    let pause = || std::thread::sleep(Duration::from_millis(5));
    let begin = Instant::now();
    while !is_due(&output.stdout()) {
        let is_over = child.try_wait().expect("a status").is_some() || begin.elapsed() > common::PATIENCE;
        assert!(!is_over, "nothing to interrupt:\n{}", output.both());
        pause();
    }
    how.carry_out(&child);
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a status") {
            return Ended {
                status,
                took: begin.elapsed(),
                stdout: output.stdout(),
                stderr: fs::read_to_string(&output.stderr).expect("the messages"),
            };
        }
        if begin.elapsed() > common::PATIENCE {
            child.kill().expect("mpirun can be killed");
            panic!("{how:?} did not end it:\n{}", output.both());
        }
        pause();
    }
}

/// Interrupts a run after so many batches.
fn interrupt_after(batches: usize, workplace: &Workplace, ranks: usize, train_dir: &str, how: Interruption) -> Ended {
    let is_due = |log: &str| log.matches("Train Epoch").count() >= batches;
    interrupt(&workplace.path(""), command(workplace, ranks, train_dir), how, is_due)
}

#[test]
fn a_killed_run_ends_as_if_it_had_not_been() {
    // Every 60 ms: some of them inside epochs.
    let workplace = hard_to_resume().with("local.checkpoint_minutes", "0.001");
    let whole = run(&workplace, 2, "whole");
    assert!(whole.stdout.matches("Saving model").count() > 13, "{}", whole.output());

    for (batches, how) in [
        (4, USR1),
        (31, Interruption::KillRank(1)),
        (17, Interruption::Signal(libc::SIGTERM)),
        (40, Interruption::KillAll),
        (7, Interruption::Signal(libc::SIGINT)),
    ] {
        let ended = interrupt_after(batches, &workplace, 2, "killed", how);
        assert!(!ended.status.success(), "{how:?}: {}", ended.output());
        let checkpoint = checkpoint(&workplace, "killed");
        // After SIGTERM and SIGINT, mpirun drops what the ranks still say.
        if how == USR1 {
            assert!(ended.stdout.contains("Stop run: SIGUSR1"), "{}", ended.output());
            assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
            let (trained, kept) = (ended.stdout.matches("Train Epoch").count() as u64, checkpoint.iteration);
            assert!(
                kept == trained && kept < STEPS,
                "{kept} of {trained}: {}",
                ended.output()
            );
            assert_eq!((checkpoint.epoch, batches_done(&checkpoint)), (0, kept));
        }
    }
    run(&workplace, 2, "killed");

    let epochs = history(&workplace.path("killed")).into_iter().map(|row| row.epoch);
    assert!(epochs.eq(1..=10));
    for file in [
        "history.txt",
        "model_latest.pt",
        "best_model.pt",
        "model_stage_0.pt",
        "model_stage_1.pt",
    ] {
        let read = |train_dir: &str| fs::read(workplace.path(train_dir).join(file)).expect("the file");
        assert!(read("whole") == read("killed"), "{file} differs");
    }
}

/// The running statistics that each rank keeps to itself are brought back too; checkpoints inside epochs leave no trace.
#[test]
fn ranks_that_normalize_on_their_own_go_on_as_well() {
    let mut workplace = hard_to_resume().with("local.sync_batch_norm", "false");
    workplace.set("training.stage_0.epochs", "2");
    workplace.set("training.stage_1.epochs", "1");
    let whole = run(&workplace, 2, "whole");
    assert!(
        whole.stdout.contains("Communication per step: 1 collective, "),
        "{}",
        whole.output()
    );
    workplace.set("local.checkpoint_minutes", "0.001");
    for batches in [5, 20] {
        let ended = interrupt_after(batches, &workplace, 2, "stopped", USR1);
        assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
        assert!(batches_done(&checkpoint(&workplace, "stopped")) > 0, "inside an epoch");
    }
    run(&workplace, 2, "stopped");
    for file in ["history.txt", "model_latest.pt", "model_stage_0.pt"] {
        let read = |train_dir: &str| fs::read(workplace.path(train_dir).join(file)).expect("the file");
        assert!(read("whole") == read("stopped"), "{file} differs");
    }
}

#[test]
fn the_number_of_ranks_may_change() {
    let workplace = hard_to_resume();
    run(&workplace, 1, "whole");
    for (ranks, batches) in [(1, 40), (4, 50)] {
        // A signal to the one process there is, or to mpirun.
        let ended = interrupt_after(batches, &workplace, ranks, "moved", USR1);
        assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
        assert!(batches_done(&checkpoint(&workplace, "moved")) > 0, "inside an epoch");
    }
    run(&workplace, 2, "moved");

    let (whole, moved) = (history(&workplace.path("whole")), history(&workplace.path("moved")));
    assert_eq!((whole.len(), moved.len()), (10, 10));
    for (whole, moved) in whole.iter().zip(&moved) {
        assert_eq!((whole.epoch, whole.lr), (moved.epoch, moved.lr));
        let losses = [(whole.train_loss, moved.train_loss), (whole.test_loss, moved.test_loss)];
        let agree = |(one, other): (f64, f64)| (one - other).abs() <= TOLERANCE * one.abs();
        assert!(losses.into_iter().all(agree), "{whole:?} and {moved:?}");
    }
}

/// Without mpirun, which would return its own status.
#[test]
fn each_signal_stops_a_run_with_a_checkpoint() {
    let workplace = hard_to_resume();
    for (signal, name) in [
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGUSR1, "SIGUSR1"),
    ] {
        let ended = interrupt_after(5, &workplace, 1, name, Interruption::Signal(signal));
        assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
        assert!(
            ended.stdout.contains(&format!("Stop run: {name} received")),
            "{}",
            ended.output()
        );
        let trained = ended.stdout.matches("Train Epoch").count() as u64;
        assert_eq!(
            checkpoint(&workplace, name).iteration,
            trained,
            "all that was trained is kept"
        );
    }
}

/// The run would go on for hours.
#[test]
fn a_time_limit_stops_inside_an_epoch() {
    let workplace = hard_to_resume()
        .with("training.stage_0.epochs", "1000000")
        .with("training.stage_0.early_stopping.patience", "1000000")
        .with("local.runtime_limits", "{max_time_per_run: 3}");
    let ended = common::run(command(&workplace, 2, "limited"));
    assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
    for line in [
        "Stop run: Time limit of 3 s exceeded.",
        "Program terminated due to runtime limit.",
    ] {
        assert!(ended.stdout.contains(line), "{}", ended.output());
    }
    let checkpoint = checkpoint(&workplace, "limited");
    let trained = ended.stdout.matches("Train Epoch").count() as u64;
    assert_eq!(checkpoint.iteration, trained, "all that was trained is kept");
    assert_eq!(STEPS * checkpoint.epoch + batches_done(&checkpoint), trained);
}

/// In the place of the waveforms: a pipe that nobody writes to, so that the program waits.
fn put_pipe(path: &Path) {
    fs::remove_file(path).expect("the waveforms");
    let name = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no null in it");
    // SAFETY: a string that ends in a null byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

#[test]
fn a_signal_before_training_ends_the_program() {
    let mut workplace = hard_to_resume();
    let waveforms = workplace.copy_file_of("data.waveform_dataset_path");
    let while_waiting = |workplace: &Workplace| {
        put_pipe(&waveforms);
        let waits = |log: &str| log.contains("Seed: ");
        let ended = interrupt(&workplace.path(""), command(workplace, 2, "run"), USR1, waits);
        assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
        assert!(ended.stderr.contains("SIGUSR1"), "{}", ended.output());
        fs::remove_file(&waveforms).expect("the pipe");
        ended
    };
    let ended = while_waiting(&workplace);
    assert_eq!(ended.status.code(), Some(FAILED), "{}", ended.output());
    assert!(ended.stderr.contains("nothing to save"), "{}", ended.output());
    assert!(!workplace.path("run").exists(), "no train dir is left");

    // With a checkpoint there, it is a stop like any other.
    fs::copy(case("toy").join("waveform_dataset.hdf5"), &waveforms).expect("the waveforms");
    let ended = interrupt_after(5, &workplace, 2, "run", USR1);
    assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
    let latest = workplace.path("run/model_latest.pt");
    let before = fs::read(&latest).expect("a checkpoint");
    let ended = while_waiting(&workplace);
    assert_eq!(ended.status.code(), Some(STOPPED), "{}", ended.output());
    assert!(fs::read(&latest).expect("a checkpoint") == before);
}
