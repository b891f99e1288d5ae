//! Ranks that die and disks that are full: the job ends promptly, and the last checkpoint stays good.

use crate::common::{self, run_with, Ended};
use crate::workplace::{parameters, Workplace, FAILED, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;
use std::os::unix::process::CommandExt;
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

/// Kills one of two ranks in the middle of the second epoch; how the job ended, and how long that took.
fn kill_a_rank(workplace: &Workplace, which: usize) -> (Ended, Duration) {
    let mut first_checkpoint: Option<Instant> = None;
    let mut killed: Option<Instant> = None;
    let ended = run_with(workplace.command(2), |mpirun| {
        if first_checkpoint.is_none() && workplace.latest().exists() {
            first_checkpoint = Some(Instant::now());
        }
        // An epoch takes more than a second.
        if killed.is_none() && first_checkpoint.is_some_and(|since| since.elapsed() > Duration::from_millis(200)) {
            let ranks = children(mpirun);
            assert_eq!(ranks.len(), 2, "{ranks:?}");
            // SAFETY: a signal to a process that this test started.
            assert_eq!(unsafe { libc::kill(ranks[which], libc::SIGKILL) }, 0);
            killed = Some(Instant::now());
        }
    });
    let took = killed.expect("the job lived long enough to be killed").elapsed();
    (ended, took)
}

#[test]
fn a_killed_rank_ends_the_job_and_the_run_goes_on_from_the_epoch_before() {
    // Batches of two make an epoch of 114 steps, tens of milliseconds each.
    let workplace = || {
        Workplace::toy()
            .with("training.stage_0.batch_size", "2")
            .with("training.stage_0.epochs", "3")
            .with("local.runtime_limits", "{max_epochs_per_run: 1}")
    };
    let undisturbed = workplace();
    undisturbed.run_to(STOPPED, 2);
    undisturbed.run_to(STOPPED, 2);
    for which in [0, 1] {
        let killed = workplace().with("local.runtime_limits", "{}");
        let (ended, took) = kill_a_rank(&killed, which);
        assert!(!ended.status.success(), "{}", ended.output());
        assert!(took < PROMPTLY, "{took:?}: {}", ended.output());
        assert!(ended.stderr.contains("signal 9"), "{}", ended.output());
        assert!(ended.stdout.contains("Train Epoch: 2 "), "{}", ended.output());
        assert!(
            !ended.stdout.contains("Finished training epoch 2."),
            "{}",
            ended.output()
        );

        assert_eq!(Checkpoint::load(killed.latest()).unwrap().epoch, 1);
        std::fs::write(
            killed.train_dir().join("local_settings.yaml"),
            std::fs::read(undisturbed.train_dir().join("local_settings.yaml")).unwrap(),
        )
        .unwrap();
        killed.run_to(STOPPED, 2);
        assert_eq!(killed.history(), undisturbed.history());
        assert!(parameters(&killed.latest()) == parameters(&undisturbed.latest()));
    }
}

/// What must hold when the second epoch's checkpoint cannot be written: status 1, told once with file and reason, the first
/// one's intact, and no remains.
#[track_caller]
fn assert_kept(workplace: &Workplace, ended: &Ended, before: &[u8], reason: &str) {
    ended.assert_status(FAILED);
    ended.assert_error(&["model_latest.pt", reason]);
    assert!(
        std::fs::read(workplace.latest()).unwrap() == before,
        "the checkpoint was touched"
    );
    assert_eq!(Checkpoint::load(workplace.latest()).unwrap().epoch, 1);
    let remains = workplace.files().into_iter().find(|name| name.contains("partial"));
    assert_eq!(remains, None);
}

/// A run that has made its first epoch, and is to make one more.
fn after_one_epoch(workplace: Workplace) -> (Workplace, Vec<u8>) {
    let workplace = workplace.with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let checkpoint = std::fs::read(workplace.latest()).unwrap();
    (workplace, checkpoint)
}

/// A limit on the size of files stands for a full disk where one cannot be mounted; the kernel answers it with a signal
/// too, which must not end the program without a word.
#[test]
fn a_checkpoint_that_may_not_be_written_leaves_the_one_before() {
    for ranks in [1, 2] {
        let (workplace, before) = after_one_epoch(Workplace::toy());
        let mut command = workplace.command(ranks);
        let limit = libc::rlimit {
            rlim_cur: before.len() as u64 / 2,
            rlim_max: before.len() as u64 / 2,
        };
        // SAFETY: only a system call between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let ended = common::run(command);
        assert_kept(&workplace, &ended, &before, "File too large");
    }
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

    /// Leaves `bytes` free.
    fn fill_up_to(&self, bytes: usize) {
        use std::io::Write;
        let filler = self.path.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        let mut written = 0;
        while file.write_all(&[1; 4096]).is_ok() {
            written += 4096;
        }
        file.set_len(written - bytes as u64).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).output();
    }
}

#[test]
fn a_full_disk_leaves_the_checkpoint_before() {
    let workplace = Workplace::toy();
    let Some(disk) = SmallDisk::mount(&workplace.train_dir(), 8) else {
        println!("SKIPPED: only root can mount a small disk; the limit on file sizes is tested all the same");
        return;
    };
    let (workplace, before) = after_one_epoch(workplace);
    disk.fill_up_to(before.len() / 2);
    let ended = workplace.run(1);
    assert_kept(&workplace, &ended, &before, "No space left on device");
    drop(disk);
}
