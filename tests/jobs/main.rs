//! Submission to HTCondor and Slurm: what is handed over, and jobs that follow one another.

#[path = "../common/mod.rs"]
mod common;
mod condor_chain;
mod condor_file;
mod request;
mod slurm_script;
#[path = "../program/workplace.rs"]
#[allow(dead_code)]
mod workplace;

use dingo_spmd::jobs::Job;
use dingo_spmd::settings::{yaml, LocalSettings};
use workplace::Workplace;

/// A training in `/runs/npe`.
fn job() -> Job {
    Job {
        program: "/opt/dingo-spmd".into(),
        work_dir: "/tmp".into(),
        train_dir: "/runs/npe".into(),
        checkpoint: None,
        exit_command: None,
    }
}

/// A `local` section for GPUs.
fn local(text: &str) -> LocalSettings {
    let mut value = yaml::read(text).expect("YAML").value;
    value["device"] = "cuda".into();
    LocalSettings::from_value(value).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A train dir as Dingo's users prepare it: with train_settings.yaml in it.
fn prepared(workplace: &Workplace) {
    std::fs::create_dir_all(workplace.train_dir()).unwrap();
    workplace.write_settings();
    std::fs::copy(
        workplace.settings_file(),
        workplace.train_dir().join("train_settings.yaml"),
    )
    .unwrap();
}
