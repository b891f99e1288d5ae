//! The submission file, as HTCondor's own parser reads it. Needs a Python with its bindings, which `HTCONDOR_PYTHON` names
//! (`tests/jobs/setup_htcondor.sh` makes one).

use crate::workplace::in_repository;
use crate::{common, job, local};
use dingo_spmd::jobs::{condor_files, Job};
use dingo_spmd::settings::LocalSettings;
use serde_json::Value;
use std::process::Command;

fn submission_file(job: &Job, local: &LocalSettings) -> String {
    let files = condor_files(job, local);
    files
        .into_iter()
        .find(|file| file.name == "submission_file.sub")
        .expect("a submission file")
        .text
}

/// The job that HTCondor makes of a file, or its message.
fn parsed(file: &str) -> Option<Result<Value, String>> {
    let Some(python) = std::env::var_os("HTCONDOR_PYTHON").filter(|python| !python.is_empty()) else {
        common::skipped(
            "set HTCONDOR_PYTHON to a python with htcondor (tests/jobs/setup_htcondor.sh FOLDER makes one)",
        );
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("submission_file.sub");
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new(python);
    command
        .arg(in_repository("tests/jobs/read_submission_file.py"))
        .arg(path);
    let ended = common::run(command);
    Some(match ended.status.success() {
        true => Ok(serde_json::from_str(&ended.stdout).unwrap()),
        false => Err(ended.stderr),
    })
}

fn requirements_of(ad: &Value) -> String {
    ad["Requirements"]
        .as_str()
        .expect("an expression")
        .replace(['(', ')'], "")
}

/// The condor blocks of Dingo 0.10.3's examples, the last one with num_gpus in its old place, and what a file made of each
/// asks for: GPUs, cores, MB, KB of disk, MB of GPU memory.
const EXAMPLES: &[(&str, [u64; 5])] = &[
    (
        "{num_gpus: 8, condor: {memory_cpus: 256000, memory_gpus: 80000, num_cpus: 64, request_disk: 800GB}}",
        [8, 64, 256_000, 800 << 20, 80_000],
    ),
    (
        "{num_gpus: 1, condor: {num_cpus: 32, memory_cpus: 128000, memory_gpus: 8000, request_disk: 50GB}}",
        [1, 32, 128_000, 50 << 20, 8_000],
    ),
    (
        "{condor: {num_cpus: 16, memory_cpus: 128000, memory_gpus: 8000, request_disk: 50GB}}",
        [1, 16, 128_000, 50 << 20, 8_000],
    ),
    (
        "{condor: {num_gpus: 2, num_cpus: 32, memory_cpus: 256000, memory_gpus: 40000, request_disk: 200GB}}",
        [2, 32, 256_000, 200 << 20, 40_000],
    ),
];

#[test]
fn htcondor_reads_what_dingos_examples_ask_for() {
    for nodes in [1, 3] {
        for (example, [gpus, cpus, memory, disk, gpu_memory]) in EXAMPLES {
            let local = LocalSettings {
                num_nodes: nodes,
                ..local(example)
            };
            let Some(parsed) = parsed(&submission_file(&job(), &local)) else {
                return;
            };
            let ad = parsed.unwrap_or_else(|message| panic!("{example}: {message}"));
            let number = |name: &str| ad[name].as_u64();
            assert_eq!(
                ["RequestGPUs", "RequestCpus", "RequestMemory", "RequestDisk"].map(number),
                [gpus, cpus, memory, disk].map(|n| Some(*n)),
                "{example}: {ad}"
            );
            let gpu_memory = format!("TARGET.CUDAGlobalMemoryMb > {gpu_memory} ");
            assert!((requirements_of(&ad) + " ").contains(&gpu_memory), "{example}: {ad}");
            assert_eq!(ad["Cmd"], "/runs/npe/condor_job.sh");
            assert_eq!((&ad["Iwd"], &ad["Args"]), (&"/tmp".into(), &"7".into()));
            assert_eq!(ad["UserLog"], "/runs/npe/info.log");
            // 5 is the vanilla universe, 11 the parallel one; the number of a machine is filled in when the job runs.
            let (universe, machines, output) = match nodes {
                1 => (5, 1, "/runs/npe/info.out".to_string()),
                _ => (11, 3, "/runs/npe/info_machine#pArAlLeLnOdE#.out".to_string()),
            };
            assert_eq!(
                (number("JobUniverse"), number("MaxHosts")),
                (Some(universe), Some(machines))
            );
            assert_eq!(ad["Out"], output);
        }
    }
}

#[test]
fn requirements_of_both_kinds_and_lines_of_the_users_own() {
    let both = local(
        "{condor: {requirements: 'TARGET.A == 1 || TARGET.B == 2', memory_gpus: 8000, \
         extra_submit_lines: ['+WantX = True', 'request_disk = 1GB']}}",
    );
    let file = submission_file(&job(), &both);
    assert!(file.contains("requirements = (TARGET.A == 1 || TARGET.B == 2) && (TARGET.CUDAGlobalMemoryMb > 8000)\n"));
    let Some(parsed) = parsed(&file) else { return };
    let ad = parsed.unwrap();
    assert_eq!(
        (&ad["WantX"], ad["RequestDisk"].as_u64()),
        (&true.into(), Some(1 << 20))
    );
    // The parser does refuse files.
    let broken = local("{condor: {requirements: 'TARGET.A == (1'}}");
    let refused = crate::condor_file::parsed(&submission_file(&job(), &broken)).expect("a python");
    assert!(refused.is_err_and(|message| message.contains("Parse error")));
}

#[test]
fn only_gpus_are_asked_for_where_there_are_some_to_use() {
    let on_cpus = LocalSettings {
        device: dingo_spmd::settings::Device::Cpu,
        ..local("{num_gpus: 2}")
    };
    assert!(!submission_file(&job(), &on_cpus).contains("request_gpus"));
    assert!(submission_file(&job(), &local("{num_gpus: 2}")).contains("request_gpus = 2\n"));
}
