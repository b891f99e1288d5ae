//! GPUs that are asked for where there are none.

use crate::common;
use crate::workplace::Workplace;

/// Never the CPU in silence: one message, and nothing is made.
#[test]
fn cuda_without_a_gpu_is_refused() {
    if dingo_spmd::torch_ext::cuda::device_count().is_ok() {
        return common::skipped("this machine has a GPU");
    }
    for ranks in [1, 2] {
        let workplace = Workplace::toy().with("local.device", "cuda");
        let ended = common::run(workplace.command(ranks));
        ended.assert_refused(&["local.device: is cuda, but rank 0 on ", "has no GPU"]);
        assert!(!workplace.train_dir().exists());
    }
}

/// What is visible is part of the reason.
#[test]
fn gpus_hidden_by_the_environment_are_told() {
    let workplace = Workplace::toy().with("local.device", "cuda");
    let mut command = workplace.command(1);
    command.env("CUDA_VISIBLE_DEVICES", "");
    common::run(command).assert_refused(&["local.device: is cuda", "(CUDA_VISIBLE_DEVICES is \"\")"]);
}

/// The log says who runs where.
#[test]
fn the_log_names_hosts_ranks_and_libraries() {
    let workplace = Workplace::toy().with("training.stage_0.epochs", "1");
    let ended = common::run(workplace.command(2));
    assert!(ended.status.success(), "{}", ended.output());
    assert!(ended.stdout.contains(": ranks 0-1 on CPUs\n"), "{}", ended.output());
    assert!(!workplace.train_dir().join("info_gpus.txt").exists());
}
