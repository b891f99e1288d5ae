//! Ranks that hang: the job ends with a message that names them.

mod common;

use common::{is_worker, run, this_test_on, worker, Ended};
use dingo_spmd::spmd::{GradientReducer, World};
use std::time::Duration;
use tch::{Device, Kind, Tensor};

const LIMIT: Duration = Duration::from_secs(1);

/// Long after the job must have ended.
const ASLEEP: Duration = Duration::from_secs(60);

/// Runs this test on three ranks, with its collectives watched.
fn ends(test: &str, body: impl FnOnce(&World)) -> Option<Ended> {
    if is_worker() {
        worker(|world| {
            world.watch_collectives(LIMIT)?;
            world.barrier()?;
            body(world);
            Ok(0)
        });
        return None;
    }
    let ended = run(this_test_on(3, test));
    assert!(!ended.status.success(), "{}", ended.output());
    assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
    Some(ended)
}

/// The one message of the watchdogs.
fn message(ended: &Ended) -> &str {
    let mut messages = ended.stderr.lines().filter(|line| line.contains("has not completed"));
    let message = messages.next().unwrap_or_else(|| panic!("{}", ended.output()));
    assert_eq!(messages.next(), None, "{}", ended.output());
    message
}

#[test]
fn a_rank_that_sleeps_is_named() {
    let Some(ended) = ends("a_rank_that_sleeps_is_named", |world| {
        if world.rank == 1 {
            std::thread::sleep(ASLEEP);
        }
        world.sum_of(1.0).unwrap();
    }) else {
        return;
    };
    let message = message(&ended);
    assert!(message.starts_with("Error: rank 0 on "), "{message}");
    for part in [
        "an exchange of numbers",
        "within 1 s (local.collective_timeout)",
        "not arrived: rank 1 on ",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("rank 2"), "{message}");
}

/// Also in the background, where gradients are summed; and the ranks that wait need not include the first.
#[test]
fn a_gradient_that_does_not_come_is_missed() {
    let Some(ended) = ends("a_gradient_that_does_not_come_is_missed", |world| {
        let parameter = Tensor::ones([100], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let mut reducer = GradientReducer::new(world, &[parameter.shallow_clone()], 1 << 20).unwrap();
        for step in 0..3 {
            reducer.zero().unwrap();
            reducer.prepare(true).unwrap();
            if step == 2 && world.rank != 1 {
                std::thread::sleep(ASLEEP);
            }
            parameter.sum(Kind::Float).backward();
            reducer.finish().unwrap();
        }
    }) else {
        return;
    };
    let message = message(&ended);
    assert!(message.starts_with("Error: rank 1 on "), "{message}");
    assert!(message.contains("the sum of the gradients"), "{message}");
    assert!(
        message.contains("not arrived: rank 0 on ") && message.contains("rank 2 on "),
        "{message}"
    );
}

/// A process that is stopped cannot even answer.
#[test]
fn a_rank_that_is_stopped_is_named() {
    let Some(ended) = ends("a_rank_that_is_stopped_is_named", |world| {
        if world.rank == 2 {
            // SAFETY: a signal to this process.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        world.barrier().unwrap();
    }) else {
        return;
    };
    let message = message(&ended);
    assert!(message.contains("not answering at all: rank 2 on "), "{message}");
    assert!(!message.contains("not arrived"), "{message}");
}

/// Waiting for less than the limit, many times, is what ranks do.
#[test]
fn short_waits_are_no_concern() {
    common::on_ranks("short_waits_are_no_concern", &[1, 2], |world| {
        world.watch_collectives(LIMIT).unwrap();
        for turn in 0..6 {
            if turn % world.size == world.rank {
                std::thread::sleep(LIMIT / 3);
            }
            world.barrier().unwrap();
        }
        assert!(
            world.size == 1 || world.watch_collectives(LIMIT).is_err(),
            "they are watched already"
        );
    });
}
