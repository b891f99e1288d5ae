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
use dingo_spmd::settings::{yaml, Device, LocalSettings};

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
    // Until training on GPUs is there, the settings refuse it.
    value["device"] = "cpu".into();
    let local = LocalSettings::from_value(value).unwrap_or_else(|error| panic!("{text}: {error}"));
    LocalSettings {
        device: Device::Cuda,
        ..local
    }
}
