//! HTCondor: the submission file, with what `dingo_train_condor` asks for in it, and the script that the job runs.
//!
//! On one machine it runs mpirun. On several it is a job of the parallel universe, in which HTCondor starts the same script on
//! each machine; what it takes to start MPI there is in `scripts/machines.sh`.

use super::{Job, JobFile};
use crate::settings::{CondorSettings, Device, LocalSettings};
use std::fmt::Write;

/// Dingo's name.
pub(super) const SUBMISSION_FILE: &str = "submission_file.sub";
const SCRIPT: &str = "condor_job.sh";

const MACHINES: &str = include_str!("scripts/machines.sh");
const CONDOR: &str = include_str!("scripts/condor.sh");

/// Seconds from SIGTERM to SIGKILL when HTCondor wants the machine back: what writing a checkpoint may take.
const TIME_TO_STOP: u64 = 120;

/// The files of a job for HTCondor.
pub fn condor_files(job: &Job, local: &LocalSettings) -> Vec<JobFile> {
    vec![
        JobFile {
            name: SUBMISSION_FILE,
            text: submission_file(job, local),
            executable: false,
        },
        JobFile {
            name: SCRIPT,
            text: script(job, local),
            executable: true,
        },
    ]
}

fn submission_file(job: &Job, local: &LocalSettings) -> String {
    let condor = local.condor.clone().unwrap_or_default();
    let mut lines = Lines::default();
    // Modules, LD_LIBRARY_PATH and $HOME are needed on the other side.
    lines.add("getenv", Some("True"));
    if local.num_nodes > 1 {
        lines.add("universe", Some("parallel"));
        lines.add("machine_count", Some(local.num_nodes));
    }
    lines.add("executable", Some(job.in_train_dir(SCRIPT)));
    lines.add("arguments", Some("$(Cluster)"));
    lines.add("initialdir", Some(job.work_dir.display()));
    lines.add("request_disk", condor.request_disk.as_deref());
    lines.add("request_cpus", condor.num_cpus);
    lines.add("request_memory", condor.memory_cpus.as_deref());
    lines.add("requirements", requirements(&condor));
    if local.device == Device::Cuda {
        lines.add("request_gpus", Some(local.num_gpus));
    }
    lines.add("want_graceful_removal", Some("True"));
    lines.add("job_max_vacate_time", Some(TIME_TO_STOP));
    for line in &condor.extra_submit_lines {
        lines.0 += line;
        lines.0 += "\n";
    }
    lines.0 += "\n";
    for (name, suffix) in [("error", "err"), ("output", "out")] {
        let file = format!("{}.{suffix}", log_name(local, "$(Node)"));
        lines.add(name, Some(job.in_train_dir(&file)));
    }
    lines.add("log", Some(job.in_train_dir("info.log")));
    lines.0 + "queue\n"
}

/// Dingo's name for the log files of one machine; with several, each has its own.
fn log_name(local: &LocalSettings, machine: &str) -> String {
    match local.num_nodes {
        1 => "info".into(),
        _ => format!("info_machine{machine}"),
    }
}

/// The user's, and the GPU memory, both to be met.
fn requirements(condor: &CondorSettings) -> Option<String> {
    let memory = |megabytes: f64| format!("TARGET.CUDAGlobalMemoryMb > {megabytes}");
    match (condor.requirements.clone(), condor.memory_gpus.map(memory)) {
        (Some(requirements), Some(memory)) => Some(format!("({requirements}) && ({memory})")),
        (requirements, memory) => requirements.or(memory),
    }
}

fn script(job: &Job, local: &LocalSettings) -> String {
    let logs = (0..local.num_nodes).flat_map(|machine| {
        let name = log_name(local, &machine.to_string());
        [format!("{name}.out"), format!("{name}.err")]
    });
    let logs: Vec<String> = logs.chain(["info.log".into()]).collect();
    let variables = [
        ("machines", local.num_nodes.to_string()),
        ("ranks_per_machine", local.ranks_per_node().to_string()),
        ("log_files", logs.join(" ")),
    ];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let across_machines = match local.num_nodes {
        1 => String::new(),
        _ => format!("{MACHINES}\n"),
    };
    format!(
        "#!/bin/bash\n# Written by dingo-spmd submit condor, anew for each job.\n{}{across_machines}{CONDOR}",
        job.script(SCRIPT, &variables)
    )
}

/// Lines of a submission file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// `name = value`, if there is a value.
    fn add(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(self.0, "{name} = {value}");
        }
    }
}
