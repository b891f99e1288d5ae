//! Submission to a cluster: HTCondor and Slurm.
//!
//! [`submit`] writes into the train dir what the scheduler is given, a shell script that a user can read, and hands it over.
//! The script runs the training, and when that was stopped at a limit it calls this program's `submit` again: so each job is
//! submitted with the local settings as they are by then. [`Job`] is what both schedulers have in common.

mod condor;
mod error;
mod job;
mod launcher;
mod shell;
mod slurm;

pub use condor::condor_files;
pub use error::JobsError;
pub use job::{Job, JobFile, SubmitRequest};
pub use launcher::Launcher;
pub use slurm::slurm_files;

use crate::checkpoint::replace_file;
use crate::settings::{CondorSettings, LocalSettings};
use anyhow::Result;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Who runs the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    Condor,
    Slurm,
}

/// What is to be written and run to submit a job.
struct Submission {
    files: Vec<JobFile>,
    /// The program that takes the job, and its arguments.
    command: Vec<String>,
}

/// Writes a job for the training in `request.train_dir` there and submits it; a dry run prints both instead.
///
/// # Errors
/// As a training with the same settings would find before it opens its data; and a scheduler that is not there or refuses.
pub fn submit(scheduler: Scheduler, request: &SubmitRequest) -> Result<()> {
    // What settings mean for a training is told when it trains.
    let level = log::max_level();
    log::set_max_level(level.min(log::LevelFilter::Warn));
    let read = Job::read(scheduler, request);
    log::set_max_level(level);
    let Some((job, local)) = read? else {
        log::info!("All training stages are complete: there is nothing to submit.");
        return Ok(());
    };
    let submission = match scheduler {
        Scheduler::Condor => for_condor(&job, &local),
        Scheduler::Slurm => for_slurm(&job, &local)?,
    };
    match request.dry_run {
        true => Ok(submission.print(&job)?),
        false => Ok(submission.carry_out(&job)?),
    }
}

/// With Dingo's `bid`, the command of the MPI for Intelligent Systems' cluster that takes one.
fn for_condor(job: &Job, local: &LocalSettings) -> Submission {
    let condor: CondorSettings = local.condor.clone().unwrap_or_default();
    let mut command: Vec<String> = match condor.bid {
        Some(bid) => vec!["condor_submit_bid".into(), bid],
        None => vec!["condor_submit".into()],
    };
    command.push(job.in_train_dir(condor::SUBMISSION_FILE));
    Submission {
        files: condor_files(job, local),
        command,
    }
}

fn for_slurm(job: &Job, local: &LocalSettings) -> Result<Submission> {
    let launcher = Launcher::choose(local.slurm.as_ref().and_then(|slurm| slurm.launcher))?;
    Ok(Submission {
        files: slurm_files(job, local, &launcher),
        command: vec!["sbatch".into(), job.in_train_dir(slurm::SCRIPT)],
    })
}

impl Submission {
    fn print(&self, job: &Job) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for file in &self.files {
            writeln!(out, "==> {} <==\n{}", job.in_train_dir(file.name), file.text)?;
        }
        writeln!(out, "==> would be submitted with <==\n{}", shell::words(&self.command))
    }

    fn carry_out(&self, job: &Job) -> Result<(), JobsError> {
        for file in &self.files {
            file.write(&job.train_dir)?;
        }
        let [program, arguments @ ..] = &self.command[..] else {
            return Ok(());
        };
        let mut command = Command::new(program);
        command.args(arguments);
        // One job submits the next, which must not take over what was said of the first.
        for (name, _) in std::env::vars_os() {
            let of_a_job = ["SLURM_", "SRUN_", "PMIX_", "OMPI_COMM_", "_CONDOR_"];
            let name = name.to_string_lossy();
            if of_a_job.iter().any(|prefix| name.starts_with(prefix)) && name != "SLURM_CONF" {
                command.env_remove(&*name);
            }
        }
        log::info!("Submitting: {}", shell::words(&self.command));
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(JobsError::Refused {
                command: program.clone(),
                status,
            }),
            Err(reason) if reason.kind() == ErrorKind::NotFound => Err(JobsError::NoScheduler {
                command: program.clone(),
            }),
            Err(reason) => Err(JobsError::Io {
                action: "start",
                path: program.into(),
                reason,
            }),
        }
    }
}

impl JobFile {
    /// In the place of an earlier one as a whole: a script of that name may be running, and submitting this.
    fn write(&self, train_dir: &Path) -> Result<(), JobsError> {
        let path = train_dir.join(self.name);
        let mode = if self.executable { 0o755 } else { 0o644 };
        replace_file(&path, |out| {
            out.write_all(self.text.as_bytes())?;
            out.get_ref().set_permissions(std::fs::Permissions::from_mode(mode))
        })
        .map_err(|reason| JobsError::Io {
            action: "write",
            path,
            reason,
        })
    }
}
