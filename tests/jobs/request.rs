//! What `submit` is asked for, and what it refuses before it writes anything.

use crate::common::{self, Ended};
use crate::prepared;
use crate::workplace::{in_repository, program, Workplace, BAD_INPUT, COMPLETE, FAILED, STOPPED};

fn submit(workplace: &Workplace, scheduler: &str, arguments: &[&str]) -> Ended {
    let mut command = program(1);
    command
        .args(["submit", scheduler, "--train-dir"])
        .arg(workplace.train_dir());
    // No scheduler on PATH.
    command.args(arguments).env("PATH", "/nowhere");
    common::run(command)
}

#[test]
fn a_dry_run_prints_everything_and_writes_nothing() {
    let workplace = Workplace::toy().with("local.condor", "{bid: 25}");
    prepared(&workplace);
    for (scheduler, parts) in [
        ("condor", ["==> ", "getenv = True", "condor_submit_bid 25 "]),
        ("slurm", ["#SBATCH --requeue", "launcher=mpirun", "sbatch "]),
    ] {
        let ended = submit(
            &workplace,
            scheduler,
            &["--dry-run", "--exit-command", "echo it is done"],
        );
        ended.assert_status(COMPLETE);
        parts.into_iter().for_each(|part| ended.assert_says(part));
        ended.assert_says("exit_command='echo it is done'");
        assert_eq!(workplace.files(), ["train_settings.yaml"]);
    }
}

#[test]
fn mistakes_are_told_before_anything_is_written() {
    let empty = Workplace::toy();
    let nowhere = empty.train_dir();
    let message = [nowhere.to_str().unwrap(), "train_settings.yaml", "model_latest.pt"];
    submit(&empty, "slurm", &[]).assert_refused(&message);
    assert!(!nowhere.exists());
    for (scheduler, key, yaml, parts) in [
        (
            "slurm",
            "local.slurm",
            "{time: 12:00:00}",
            ["train_settings.yaml", "local.slurm.time: found 43200"],
        ),
        (
            "slurm",
            "local.slurm",
            "{launcher: srun}",
            ["local.slurm.launcher: found 'srun'", "use mpirun"],
        ),
        (
            "condor",
            "local.num_nodes",
            "0",
            ["local.num_nodes: found 0", "at least 1"],
        ),
        (
            "condor",
            "local.num_gpus",
            "3",
            ["train_settings.yaml: training.stage_0.batch_size: found 64", "3 ranks"],
        ),
        (
            "condor",
            "training.stage_0.epochs",
            "none",
            ["train_settings.yaml", "training.stage_0.epochs"],
        ),
    ] {
        let workplace = Workplace::toy().with(key, yaml);
        prepared(&workplace);
        submit(&workplace, scheduler, &[]).assert_refused(&parts);
        assert_eq!(workplace.files(), ["train_settings.yaml"]);
    }
    let workplace = Workplace::toy();
    prepared(&workplace);
    submit(&workplace, "condor", &["--checkpoint", "nowhere.pt"]).assert_refused(&["nowhere.pt"]);
    assert_eq!(submit(&workplace, "pbs", &[]).status.code(), Some(BAD_INPUT));
}

#[test]
fn a_scheduler_that_is_not_there_is_named() {
    let workplace = Workplace::toy();
    prepared(&workplace);
    for (scheduler, command) in [("condor", "condor_submit"), ("slurm", "sbatch")] {
        let ended = submit(&workplace, scheduler, &[]);
        ended.assert_status(FAILED);
        ended.assert_error(&[command, "not on PATH"]);
    }
}

/// Of the old place, whether it counts or not.
#[test]
fn num_gpus_in_the_condor_block_is_deprecated() {
    let old = Workplace::toy().with("local.condor", "{num_gpus: 2}");
    let both = Workplace::toy()
        .with("local.condor", "{num_gpus: 8}")
        .with("local.num_gpus", "2");
    for workplace in [old, both] {
        prepared(&workplace);
        let ended = submit(&workplace, "condor", &["--dry-run"]);
        ended.assert_says("local.condor.num_gpus is deprecated");
        ended.assert_says("ranks_per_machine=2");
    }
}

/// The train dir's local settings count then, and the settings of the training are in the checkpoint.
#[test]
fn a_run_that_goes_on_needs_no_settings_file() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let local = workplace.train_dir().join("local_settings.yaml");
    let text = std::fs::read_to_string(&local).unwrap();
    std::fs::write(&local, text + "num_gpus: 2\nslurm:\n  partition: here\n").unwrap();
    let ended = submit(&workplace, "slurm", &["--dry-run"]);
    ended.assert_status(COMPLETE);
    ended.assert_says("--ntasks-per-node=2");
    ended.assert_says("--partition=here");

    // A scheduler that they say nothing of is looked for in the settings file.
    let workplace = workplace.with("local.condor", "{num_cpus: 5}");
    prepared(&workplace);
    submit(&workplace, "condor", &["--dry-run"]).assert_says("request_cpus = 5");
    submit(&workplace, "slurm", &["--dry-run"]).assert_says("--partition=here");
}

#[test]
fn a_training_that_is_complete_is_not_submitted() {
    let workplace = Workplace::toy();
    workplace.run_to(COMPLETE, 1);
    let ended = submit(&workplace, "condor", &[]);
    ended.assert_status(COMPLETE);
    ended.assert_says("nothing to submit");
}

/// The example in the README holds every key there is.
#[test]
fn the_readmes_settings_are_understood() {
    let readme = std::fs::read_to_string(in_repository("README.md")).unwrap();
    let is_of_the_block = |line: &&str| line.starts_with("      ");
    let lines = readme.lines().skip_while(|line| *line != "    local:").skip(1);
    let block: Vec<&str> = lines.take_while(is_of_the_block).collect();
    let local = crate::local(&block.join("\n"));
    assert_eq!(local.ranks(), 16);
    let all_given = |name: &str| local.raw[name].as_mapping().unwrap().len();
    assert_eq!((all_given("slurm"), all_given("condor")), (10, 7));
    assert_eq!(local.slurm.unwrap().time.as_deref(), Some("24:00:00"));
    assert_eq!(local.condor.unwrap().extra_submit_lines, ["use template : FullNode"]);
}
