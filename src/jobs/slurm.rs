//! Slurm: the script for sbatch.

use super::{Job, JobFile, Launcher};
use crate::settings::{Device, LocalSettings};

pub(super) const SCRIPT: &str = "slurm_job.sh";

const SLURM: &str = include_str!("scripts/slurm.sh");

/// The file of a job for Slurm.
pub fn slurm_files(job: &Job, local: &LocalSettings, launcher: &Launcher) -> Vec<JobFile> {
    let slurm = local.slurm.clone().unwrap_or_default();
    let is_directive = |line: &&String| line.starts_with("#SBATCH");
    let mut text = String::from("#!/bin/bash\n# Written by dingo-spmd submit slurm, anew for each job.\n");
    for option in options(job, local) {
        text += &format!("#SBATCH {option}\n");
    }
    // sbatch takes the last of several that say the same, so these count; and none behind the first command.
    for line in slurm.extra_lines.iter().filter(is_directive) {
        text += &format!("{line}\n");
    }
    text += "\n";
    for line in slurm.extra_lines.iter().filter(|line| !is_directive(line)) {
        text += &format!("{line}\n");
    }
    let (launcher, mpi_type) = launcher.words();
    text += &job.script(SCRIPT, &[("launcher", launcher), ("mpi_type", mpi_type)]);
    vec![JobFile {
        name: SCRIPT,
        text: text + SLURM,
        executable: true,
    }]
}

/// sbatch's options: one task for each GPU, and SIGUSR1 to the script ahead of the time limit. A job that loses its machine to
/// another or to a failure is queued again by Slurm itself.
fn options(job: &Job, local: &LocalSettings) -> Vec<String> {
    let slurm = local.slurm.clone().unwrap_or_default();
    let ranks = local.ranks_per_node();
    let name = job
        .train_dir
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    // sbatch replaces % and the letter behind it in names of files.
    let output = job
        .in_train_dir("slurm-%%j.out")
        .replace('%', "%%")
        .replace("%%%%j", "%j");
    let optional = |option: &str, value: Option<String>| value.map(|value| format!("--{option}={}", quoted(&value)));
    let mut options = vec![
        format!("--job-name={}", quoted(&name.unwrap_or_else(|| "dingo-spmd".into()))),
        format!("--nodes={}", local.num_nodes),
        format!("--ntasks-per-node={ranks}"),
    ];
    if local.device == Device::Cuda {
        options.push(format!("--gres=gpu:{ranks}"));
    }
    options.extend(
        [
            optional("cpus-per-task", slurm.cpus_per_task.map(|cpus| cpus.to_string())),
            optional("mem", slurm.memory),
            optional("time", slurm.time),
            optional("partition", slurm.partition),
            optional("account", slurm.account),
            optional("qos", slurm.qos),
            optional("constraint", slurm.constraint),
        ]
        .into_iter()
        .flatten(),
    );
    options.extend([
        format!("--signal=B:USR1@{}", slurm.signal_time),
        "--requeue".into(),
        format!("--output={}", quoted(&output)),
        "--open-mode=append".into(),
    ]);
    options
}

/// For a line of `#SBATCH`, which sbatch splits at spaces outside of quotes.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    match value.chars().all(is_plain) {
        true => value.into(),
        false => format!("\"{}\"", value.replace('\\', r"\\").replace('"', r#"\""#)),
    }
}
