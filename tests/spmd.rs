//! The world of ranks under real mpirun: collectives, failure.

mod common;

use common::{is_worker, on_ranks, run, this_test_on, worker};
use dingo_spmd::settings::Device;
use dingo_spmd::spmd::{Collectives, RankFailure, World};
use std::time::Duration;
use tch::Tensor;

/// The promise: a job with a rank that failed is gone by then.
const PROMPTLY: Duration = Duration::from_secs(10);

#[test]
fn ranks_know_and_hear_one_another() {
    on_ranks("ranks_know_and_hear_one_another", &[1, 2, 3, 4], |world| {
        let (rank, size) = (world.rank, world.size);
        assert_eq!(
            (world.local_rank, world.local_size, world.node, world.nodes),
            (rank, size, 0, 1),
            "one machine"
        );
        assert_eq!(world.hosts, vec![world.hosts[0].clone(); size]);
        assert_eq!(world.gather(rank as u64).unwrap(), (0..size as u64).collect::<Vec<_>>());

        let texts: Vec<String> = (0..size).map(|rank| "å".repeat(rank)).collect();
        assert_eq!(world.gather_strings(&texts[rank]).unwrap(), texts);
        assert_eq!(world.gather_strings("").unwrap(), vec![String::new(); size]);
        assert_eq!(
            world.broadcast_value(if rank == 0 { u64::MAX - 1 } else { 0 }).unwrap(),
            u64::MAX - 1
        );
        let root = size - 1;
        let bytes = if rank == root {
            vec![1, 2, 3]
        } else {
            vec![9; 10 * rank]
        };
        assert_eq!(world.broadcast_bytes(bytes, root).unwrap(), [1, 2, 3]);

        let mine = rank as f64 + 0.5;
        assert_eq!(world.max_of(mine).unwrap(), size as f64 - 0.5);
        assert_eq!(world.min_of(-(rank as i64)).unwrap(), 1 - size as i64);
        let mut values = [mine, 1.0];
        world.sum(&mut values).unwrap();
        assert_eq!(values, [(size * size) as f64 / 2.0, size as f64]);
        assert!(world.any(rank == root).unwrap() && !world.any(false).unwrap());

        let collectives = world.collectives();
        let tensor = Tensor::from_slice(&[rank as f32, 1.0]);
        let gathered = collectives.all_gather(&tensor).unwrap();
        assert_eq!(gathered.size(), [size as i64, 2]);
        assert_eq!(gathered.double_value(&[root as i64, 0]), root as f64);
        collectives.all_reduce_sum(&tensor).unwrap();
        assert_eq!(tensor.double_value(&[1]), size as f64);
        let tensor = Tensor::from_slice(&[rank as f64]);
        collectives.broadcast(&tensor, root).unwrap();
        assert_eq!(tensor.double_value(&[0]), root as f64);
        collectives.barrier().unwrap();
        let before = world.traffic().collectives();
        world.barrier().unwrap();
        assert_eq!(world.traffic().collectives() - before, u64::from(size > 1));
    });
}

/// Half precision and tensors with gaps are refused before MPI sees them.
#[test]
fn tensors_that_cannot_be_carried_are_refused() {
    on_ranks("tensors_that_cannot_be_carried_are_refused", &[2], |world| {
        let tensor = Tensor::ones([4, 4], (tch::Kind::Float, tch::Device::Cpu));
        let message = |tensor: &Tensor| world.collectives().all_reduce_sum(tensor).unwrap_err().to_string();
        assert!(message(&tensor.to_kind(tch::Kind::Half)).contains("Half"));
        assert!(message(&tensor.narrow(1, 0, 2)).contains("[4, 2]"));
    });
}

/// Drawn on rank 0, brought to all by MPI. Needs no GPU; a program without CUDA says so, with one error on all ranks.
#[test]
fn ranks_meet_by_one_id() {
    on_ranks("ranks_meet_by_one_id", &[1, 2, 4], |world| {
        let ids = [(); 2].map(|()| world.share_unique_id());
        let [Ok(one), Ok(other)] = ids else {
            let error = ids.into_iter().find_map(Result::err).unwrap();
            assert!(error.to_string().contains("built without CUDA"), "{error}");
            return;
        };
        assert_ne!(one, other);
        let as_text = |id: &[u8; 128]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for id in [one, other] {
            assert_ne!(id, [0; 128]);
            assert_eq!(
                world.gather_strings(&as_text(&id)).unwrap(),
                vec![as_text(&id); world.size]
            );
        }
    });
}

/// All ranks get the same error, before anything else happens.
#[test]
fn gpus_that_are_not_there_are_an_error_on_all_ranks() {
    if dingo_spmd::torch_ext::cuda::device_count().is_ok() {
        return common::skipped("this machine has a GPU");
    }
    on_ranks("gpus_that_are_not_there_are_an_error_on_all_ranks", &[1, 3], |world| {
        let error = world.use_device(Device::Cuda).unwrap_err();
        let message = error.to_string();
        assert!(error.is::<dingo_spmd::settings::SettingsError>(), "{message}");
        assert!(
            message.starts_with("local.device: is cuda, but rank 0 on "),
            "{message}"
        );
        assert_eq!(world.gather_strings(&message).unwrap(), vec![message; world.size]);
        assert_eq!(world.device(), tch::Device::Cpu);
    });
}

fn bad_input() -> anyhow::Error {
    anyhow::Error::new(std::fmt::Error).context("mass_1 is negative")
}

/// A phase that fails on one rank fails on all, with its status; the message is told once.
#[test]
fn agreed_failures_end_all_ranks_alike() {
    if is_worker() {
        return worker(|world| {
            assert_eq!(world.agree(Ok(world.rank))?, world.rank);
            let result = if world.rank > 0 { Err(bad_input()) } else { Ok(()) };
            let error = world.agree(result).unwrap_err();
            let failure = error.downcast_ref::<RankFailure>().expect("the agreed failure");
            assert_eq!((failure.rank, failure.status), (1, 2));
            let everywhere = world.agree::<()>(Err(bad_input())).unwrap_err().to_string();
            assert!(!everywhere.contains("rank"), "{everywhere}");
            Err(error)
        });
    }
    let ended = run(this_test_on(3, "agreed_failures_end_all_ranks_alike"));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.output());
    assert_eq!(
        ended.stderr.matches("Error: rank 1 on ").count(),
        1,
        "{}",
        ended.output()
    );
    assert_eq!(
        ended.stderr.matches("mass_1 is negative").count(),
        1,
        "{}",
        ended.output()
    );
}

/// Which rank a failing job loses.
const FAILS: &str = "DINGO_TEST_FAILING_RANK";

/// Jobs on three ranks, each of which loses one by what `fail` does while the others wait for it. `check` sees how they
/// ended.
fn lose_a_rank(test: &str, fail: impl FnOnce(&World) -> anyhow::Result<i32>, check: impl Fn(usize, &common::Ended)) {
    if is_worker() {
        return worker(|world| {
            if std::env::var(FAILS).is_ok_and(|rank| rank == world.rank.to_string()) {
                return fail(world);
            }
            world.barrier()?;
            Ok(0)
        });
    }
    for rank in [0, 1] {
        let mut command = this_test_on(3, test);
        command.env(FAILS, rank.to_string());
        let ended = run(command);
        assert!(
            !ended.status.success() && ended.took < PROMPTLY,
            "{:?} {}",
            ended.took,
            ended.output()
        );
        check(rank, &ended);
    }
}

#[test]
fn an_error_on_one_rank_ends_the_job() {
    lose_a_rank(
        "an_error_on_one_rank_ends_the_job",
        |_| Err(bad_input()),
        |rank, ended| {
            assert!(
                ended.stderr.contains(&format!("Error: rank {rank} on ")),
                "{}",
                ended.output()
            );
            assert!(ended.stderr.contains("mass_1 is negative"), "{}", ended.output());
            assert_eq!(ended.status.code(), Some(2), "{}", ended.output());
        },
    );
}

#[test]
fn a_panic_on_any_thread_ends_the_job() {
    lose_a_rank(
        "a_panic_on_any_thread_ends_the_job",
        |_| {
            let _ = std::thread::spawn(|| panic!("out of neutron stars")).join();
            Ok(0)
        },
        |rank, ended| {
            assert!(ended.stderr.contains("out of neutron stars"), "{}", ended.output());
            assert!(ended.stderr.contains(&format!("rank {rank} on ")), "{}", ended.output());
            assert_eq!(ended.status.code(), Some(1), "{}", ended.output());
        },
    );
}

#[test]
fn a_killed_rank_ends_the_job() {
    lose_a_rank(
        "a_killed_rank_ends_the_job",
        |_| {
            // SAFETY: sends a signal to this process, as the kernel does when memory runs out.
            unsafe { libc::raise(libc::SIGKILL) };
            Ok(0)
        },
        |rank, ended| {
            assert!(ended.stderr.contains(&format!("rank {rank} ")), "{}", ended.output());
            assert!(ended.stderr.contains("signal 9"), "{}", ended.output());
        },
    );
}
