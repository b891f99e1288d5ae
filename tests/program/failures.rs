//! Ranks that die and disks that are full: the job ends promptly, and the last checkpoint stays good.

use crate::common::{self, run_with, Ended};
use crate::workplace::{parameters, Workplace, FAILED, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A job that lost a rank is gone by then.
const PROMPTLY: Duration = Duration::from_secs(10);

/// The processes that a process has started.
fn children(process: u32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| pid.parse().expect("a process id"))
        .collect()
}

/// A run of many epochs that lasts until something ends it.
fn long_run() -> Workplace {
    // Batches of eight make an epoch of 29 steps; not one of them is a permanent checkpoint.
    Workplace::toy()
        .with("training.stage_0.batch_size", "8")
        .with("training.stage_0.epochs", "1000")
        .with("local.checkpoint_epochs", "")
}

/// Runs and does something once to the processes of the ranks, in the third epoch or a later one, when `model_latest.pt` is
/// that of a whole epoch. Gives how it ended, and how long after.
fn disturb(workplace: &Workplace, ranks: usize, disturb: impl Fn(&[i32])) -> (Ended, Duration) {
    let mut disturbed: Option<Instant> = None;
    let ended = run_with(workplace.command(ranks), |process| {
        let history = std::fs::read_to_string(workplace.train_dir().join("history.txt"));
        // The second row is written after the first epoch's checkpoint.
        if disturbed.is_none() && history.is_ok_and(|rows| rows.lines().count() >= 2) {
            let processes = match ranks {
                1 => vec![process as i32],
                _ => children(process),
            };
            assert_eq!(processes.len(), ranks, "{processes:?}");
            disturb(&processes);
            disturbed = Some(Instant::now());
        }
    });
    let since = disturbed.expect("the job lived long enough").elapsed();
    (ended, since)
}

#[test]
fn a_killed_rank_ends_the_job_and_the_run_goes_on_as_if_nothing_had_happened() {
    for which in [0, 1] {
        let mut killed = long_run();
        let (ended, took) = disturb(&killed, 2, |ranks| {
            // SAFETY: a signal to a process that this test started.
            assert_eq!(unsafe { libc::kill(ranks[which], libc::SIGKILL) }, 0);
        });
        assert!(!ended.status.success(), "{}", ended.output());
        assert!(took < PROMPTLY, "{took:?}: {}", ended.output());
        assert!(ended.stderr.contains("signal 9"), "{}", ended.output());

        let epoch = Checkpoint::load(killed.latest()).unwrap().epoch;
        let more = format!("max_epochs_total: {}", epoch + 1);
        let local = format!("{{device: cpu, seed: 1, runtime_limits: {{{more}}}}}");
        std::fs::write(killed.train_dir().join("local_settings.yaml"), &local).unwrap();
        killed.run_to(STOPPED, 2);
        killed.set("local", &local);
        let undisturbed = long_run().with("local", &local);
        undisturbed.run_to(STOPPED, 2);
        assert_eq!(killed.history(), undisturbed.history());
        assert!(parameters(&killed.latest()) == parameters(&undisturbed.latest()));
    }
}

/// A rank that is stopped says nothing and dies of nothing, so only the time tells.
#[test]
fn a_rank_that_hangs_is_named_and_the_job_ends() {
    let workplace = long_run().with("local.collective_timeout", "1");
    let mut stopped = std::sync::Mutex::new(0);
    let (ended, took) = disturb(&workplace, 2, |ranks| {
        *stopped.lock().unwrap() = ranks[1];
        // SAFETY: a signal to a process that this test started.
        assert_eq!(unsafe { libc::kill(ranks[1], libc::SIGSTOP) }, 0);
    });
    // SAFETY: as above; it must not be left behind, should mpirun not have ended it.
    unsafe { libc::kill(*stopped.get_mut().unwrap(), libc::SIGKILL) };
    ended.assert_status(FAILED);
    assert!(took < PROMPTLY, "{took:?}: {}", ended.output());
    ended.assert_error(&["rank 0 on ", "rank 1 on ", "not answering", "local.collective_timeout"]);
    assert!(Checkpoint::load(workplace.latest()).unwrap().epoch >= 1);
}

/// What must hold when checkpoints cannot be written any more: status 1, told once with file and reason, the last one
/// intact, and no remains.
#[track_caller]
fn assert_last_checkpoint_kept(workplace: &Workplace, ended: &Ended, reason: &str) {
    ended.assert_status(FAILED);
    ended.assert_error(&["model_latest.pt", reason]);
    assert!(Checkpoint::load(workplace.latest()).unwrap().epoch >= 1);
    let remains = workplace.files().into_iter().find(|name| name.contains("partial"));
    assert_eq!(remains, None);
}

/// A limit on the size of files stands for a full disk where one cannot be mounted; the kernel answers it with a signal
/// too, which must not end the program without a word.
#[test]
fn a_checkpoint_that_may_not_be_written_leaves_the_one_before() {
    let workplace = long_run();
    let (ended, _) = disturb(&workplace, 1, |ranks| {
        let limit = libc::rlimit {
            rlim_cur: 100_000,
            rlim_max: 100_000,
        };
        // SAFETY: `limit` is read, and no old limit is asked for.
        let limited = unsafe { libc::prlimit(ranks[0], libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
        assert_eq!(limited, 0);
    });
    assert_last_checkpoint_kept(&workplace, &ended, "File too large");
}

/// A file system in memory, unmounted at the end.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// None where this user may not mount.
    fn mount(path: &Path, megabytes: usize) -> Option<SmallDisk> {
        std::fs::create_dir(path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "none"])
            .arg(path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| SmallDisk { path: path.to_owned() })
    }

    /// Leaves at most `bytes` free, for good: what is being written may replace a file and so make room again.
    fn keep_full(&self, bytes: u64) {
        let filler = self.path.join("filler");
        for _ in 0..6 {
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&filler)
                .unwrap();
            while file.write_all(&[1; 4096]).is_ok() {}
            let length = file.metadata().unwrap().len();
            file.set_len(length.saturating_sub(bytes)).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).output();
    }
}

#[test]
fn a_full_disk_leaves_the_checkpoint_before() {
    for ranks in [1, 2] {
        let workplace = long_run();
        let Some(disk) = SmallDisk::mount(&workplace.train_dir(), 8) else {
            common::skipped("only root can mount a small disk; the limit on file sizes is tested all the same");
            return;
        };
        // Room for the history, but not for a checkpoint of a megabyte beside the one that is there.
        let (ended, _) = disturb(&workplace, ranks, |_| disk.keep_full(500_000));
        assert_last_checkpoint_kept(&workplace, &ended, "No space left on device");
    }
}
