//! The script for sbatch. `tests/slurm/run.sh` runs one on a real Slurm.

use crate::{common, job, local};
use dingo_spmd::jobs::{slurm_files, Job, Launcher};
use dingo_spmd::settings::LocalSettings;
use std::process::Command;

fn script(job: &Job, local: &LocalSettings) -> String {
    slurm_files(job, local, &Launcher::Mpirun).remove(0).text
}

/// The directives as sbatch finds them: up to the first command.
fn directives(script: &str) -> Vec<&str> {
    let is_comment = |line: &&str| line.starts_with('#') || line.is_empty();
    let comments = script.lines().take_while(is_comment);
    comments.filter_map(|line| line.strip_prefix("#SBATCH ")).collect()
}

#[test]
fn settings_become_options() {
    let local = local(
        "{num_gpus: 4, num_nodes: 2, slurm: {partition: gpu, account: gw, qos: long, time: '12:00:00', signal_time: 300, \
         constraint: 'a100&nvlink', memory: 256G, cpus_per_task: 8, \
         extra_lines: ['module load openmpi', '#SBATCH --exclusive']}}",
    );
    let script = script(&job(), &local);
    assert_eq!(
        directives(&script),
        [
            "--job-name=npe",
            "--nodes=2",
            "--ntasks-per-node=4",
            "--gres=gpu:4",
            "--cpus-per-task=8",
            "--mem=256G",
            "--time=12:00:00",
            "--partition=gpu",
            "--account=gw",
            "--qos=long",
            "--constraint=\"a100&nvlink\"",
            "--signal=B:USR1@300",
            "--requeue",
            "--output=/runs/npe/slurm-%j.out",
            "--open-mode=append",
            "--exclusive",
        ]
    );
    assert!(script.contains("\n\nmodule load openmpi\n"));
}

#[test]
fn names_that_mean_something_to_a_shell_or_to_sbatch_are_kept() {
    let odd = Job {
        train_dir: "/runs/50% of $it".into(),
        exit_command: Some("echo 'it is' \"done\"".into()),
        ..job()
    };
    let script = script(&odd, &local("{}"));
    assert!(directives(&script).contains(&"--output=\"/runs/50%% of $it/slurm-%j.out\""));
    assert!(directives(&script).contains(&"--job-name=\"50% of $it\""));
    // What bash makes of the assignments.
    let assignments: Vec<&str> = script
        .lines()
        .filter(|line| line.starts_with("train_dir=") || line.starts_with("exit_command="))
        .collect();
    let mut bash = Command::new("bash");
    bash.arg("-c")
        .arg(assignments.join("\n") + "\nprintf '%s|%s' \"$train_dir\" \"$exit_command\"");
    assert_eq!(common::run(bash).stdout, "/runs/50% of $it|echo 'it is' \"done\"");
}

#[test]
fn the_scripts_are_bash() {
    for nodes in [1, 2] {
        let local = LocalSettings {
            num_nodes: nodes,
            ..local("{}")
        };
        let condor = dingo_spmd::jobs::condor_files(&job(), &local).remove(1);
        assert_eq!(condor.name, "condor_job.sh");
        for text in [script(&job(), &local), condor.text] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("job.sh");
            std::fs::write(&path, text).unwrap();
            let mut bash = Command::new("bash");
            bash.arg("-n").arg(&path);
            let ended = common::run(bash);
            assert!(ended.status.success() && ended.stderr.is_empty(), "{}", ended.output());
        }
    }
}
