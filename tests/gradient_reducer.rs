//! Gradients summed over ranks, under real mpirun, against the gradients of one process on the whole batch.

mod common;

use common::{is_worker, on_ranks, run, this_test_on, worker};
use dingo_spmd::spmd::{GradientReducer, ReducerOptions, World};
use dingo_spmd::torch_ext::{sync_batch_norm, BatchNormTensors, RankStatistics};
use std::sync::Arc;
use std::time::Duration;
use tch::{Device, Kind, Tensor};

const ROWS: i64 = 17;
const WIDTH: i64 = 40;
const LAYERS: usize = 4;

/// Small buckets, so that there are several.
const OPTIONS: ReducerOptions = ReducerOptions {
    bucket_bytes: 8 << 10,
    first_bucket_bytes: 1 << 10,
    overlap: true,
    local_norm: false,
    artificial_delay: Duration::ZERO,
};

/// The rows of each rank, deliberately unequal; on four ranks one has none.
fn share(world: &World) -> (i64, i64) {
    let ends: &[i64] = match world.size {
        1 => &[0, ROWS],
        2 => &[0, 5, ROWS],
        3 => &[0, 6, 7, ROWS],
        4 => &[0, 9, 9, 14, ROWS],
        size => panic!("no shares for {size} ranks"),
    };
    (ends[world.rank], ends[world.rank + 1] - ends[world.rank])
}

/// Numbers that are the same on every rank, without a generator: sin(offset), sin(offset + 1), ...
fn numbers(shape: &[i64], offset: f64, kind: Kind) -> Tensor {
    let count = shape.iter().product::<i64>() as f64;
    Tensor::arange_start(offset, offset + count, (Kind::Double, Device::Cpu))
        .sin()
        .view(shape)
        .to_kind(kind)
}

/// Weights and biases of a chain of layers, in registration order, and one parameter that no loss uses.
fn parameters(kind: Kind) -> Vec<Tensor> {
    let mut parameters = Vec::new();
    for layer in 0..LAYERS {
        parameters.push(numbers(&[WIDTH, WIDTH], 1e4 * layer as f64, kind) * 0.3);
        parameters.push(numbers(&[WIDTH], 77.0 * layer as f64, kind));
    }
    parameters.push(numbers(&[3], 5.0, kind));
    parameters
        .iter()
        .map(|parameter| parameter.set_requires_grad(true))
        .collect()
}

/// The mean over all rows of a function of each row: this rank's part of it.
fn loss(parameters: &[Tensor], start: i64, rows: i64) -> Tensor {
    let mut x = numbers(&[ROWS, WIDTH], 0.5, parameters[0].kind()).narrow(0, start, rows);
    for layer in 0..LAYERS {
        x = x
            .linear(&parameters[2 * layer], Some(&parameters[2 * layer + 1]))
            .tanh();
    }
    x.square().sum(None) / ROWS
}

/// The gradients of one process on the whole batch.
fn whole_batch(kind: Kind) -> Vec<Tensor> {
    let parameters = parameters(kind);
    loss(&parameters, 0, ROWS).backward();
    parameters
        .iter()
        .map(|p| if p.grad().defined() { p.grad() } else { p.zeros_like() })
        .collect()
}

fn assert_close(found: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let error = (found - expected).norm().double_value(&[]);
    let norm = expected.norm().double_value(&[]);
    assert!(error <= tolerance * norm, "{what}: off by {error}, norm {norm}");
}

#[test]
fn sums_equal_those_of_one_process() {
    on_ranks("sums_equal_those_of_one_process", &[1, 2, 3, 4], |world| {
        let (start, rows) = share(world);
        for (kind, tolerance) in [(Kind::Float, 1e-6), (Kind::Double, 1e-14)] {
            let expected = whole_batch(kind);
            for overlap in [true, false] {
                let parameters = parameters(kind);
                let options = ReducerOptions { overlap, ..OPTIONS };
                let mut reducer = GradientReducer::with_options(world, &parameters, &options).unwrap();
                assert!(reducer.buckets() > 3);
                for step in 0..3 {
                    reducer.zero().unwrap();
                    let loss = loss(&parameters, start, rows);
                    reducer.prepare(true).unwrap();
                    reducer
                        .set_scalars(&[rows as f64, world.rank as f64 * f64::from(step)])
                        .unwrap();
                    loss.backward();
                    let reduced = reducer.finish().unwrap();
                    assert_eq!(reduced.scalars.double_value(&[0]), ROWS as f64);
                    let ranks = (world.size * (world.size - 1) / 2) as f64;
                    assert_eq!(reduced.scalars.double_value(&[1]), ranks * f64::from(step));
                    for (index, (parameter, expected)) in parameters.iter().zip(&expected).enumerate() {
                        assert_close(
                            &parameter.grad(),
                            expected,
                            tolerance,
                            &format!("parameter {index}, step {step}"),
                        );
                    }
                }
            }
        }
    });
}

/// A parameter that only some ranks use is the sum over those.
#[test]
fn gradients_missing_on_some_ranks_count_as_zero() {
    on_ranks("gradients_missing_on_some_ranks_count_as_zero", &[2, 3], |world| {
        let parameters = parameters(Kind::Float);
        let mut reducer = GradientReducer::with_options(world, &parameters, &OPTIONS).unwrap();
        for step in 0..3 {
            let lonely = step % world.size;
            reducer.zero().unwrap();
            reducer.prepare(true).unwrap();
            let used = if world.rank == lonely {
                &parameters[..]
            } else {
                &parameters[..2]
            };
            used.iter()
                .map(|parameter| parameter.sum(None))
                .sum::<Tensor>()
                .backward();
            reducer.finish().unwrap();
            for (index, parameter) in parameters.iter().enumerate() {
                let users = if index < 2 { world.size as f64 } else { 1.0 };
                assert_eq!(parameter.grad().min().double_value(&[]), users, "parameter {index}");
                assert_eq!(parameter.grad().max().double_value(&[]), users, "parameter {index}");
            }
        }
    });
}

/// What each rank says arrives everywhere, and the norm is that of a rank's own gradient, though the buckets are summed.
#[test]
fn ranks_tell_one_another_along_with_the_gradients() {
    on_ranks("ranks_tell_one_another_along_with_the_gradients", &[1, 3], |world| {
        for overlap in [true, false] {
            let parameters = parameters(Kind::Float);
            let options = ReducerOptions {
                overlap,
                local_norm: true,
                ..OPTIONS
            };
            let mut reducer = GradientReducer::with_options(world, &parameters, &options).unwrap();
            for step in 0..2 {
                reducer.zero().unwrap();
                let rank = world.rank as f64;
                let loss = parameters[0].sum(None) * (rank + 1.0);
                reducer.prepare(true).unwrap();
                reducer
                    .set_rank_values(&[rank, 10.0 * rank, f64::from(step), 7.0])
                    .unwrap();
                loss.backward();
                let reduced = reducer.finish().unwrap();
                for rank in 0..world.size {
                    let told: Vec<f32> = reduced.of_ranks.get(rank as i64).try_into().unwrap();
                    assert_eq!(told, [rank as f32, 10.0 * rank as f32, step as f32, 7.0]);
                }
                let expected = (rank + 1.0).powi(2) * (WIDTH * WIDTH) as f64;
                assert_eq!(reduced.local_square_norm, (world.size > 1).then_some(expected));
            }
        }
    });
}

/// Accumulation-only passes do not communicate; a reduced one costs a collective per bucket, and nothing else.
#[test]
fn collectives_do_not_grow_with_accumulation() {
    on_ranks("collectives_do_not_grow_with_accumulation", &[2], |world| {
        let parameters = parameters(Kind::Float);
        let expected = whole_batch(Kind::Float);
        let mut reducer = GradientReducer::with_options(world, &parameters, &OPTIONS).unwrap();
        for passes in [1, 2, 5] {
            let (collectives, bytes) = (world.traffic().collectives(), world.traffic().bytes());
            let (start, rows) = share(world);
            reducer.zero().unwrap();
            for pass in 0..passes {
                let loss = loss(&parameters, start, rows) / passes;
                reducer.prepare(pass == passes - 1).unwrap();
                loss.backward();
                if pass < passes - 1 {
                    assert_eq!(world.traffic().collectives(), collectives);
                    assert!(reducer.finish().is_err(), "nothing to finish");
                }
            }
            let reduced = reducer.finish().unwrap();
            assert_eq!(reduced.collectives, reducer.buckets());
            assert_eq!(world.traffic().collectives() - collectives, reducer.buckets() as u64);
            assert_eq!(world.traffic().bytes() - bytes, reduced.bytes as u64);
            assert_close(&parameters[0].grad(), &expected[0], 1e-5, "accumulated");
        }
    });
}

/// Freezing and unfreezing between stages: the reducer is dropped and made anew for what is trained.
#[test]
fn the_trainable_set_may_change() {
    on_ranks("the_trainable_set_may_change", &[2], |world| {
        let parameters = parameters(Kind::Float);
        let expected = whole_batch(Kind::Float);
        let (start, rows) = share(world);
        for frozen in [2, 0, 4] {
            let mut trained = Vec::new();
            for (index, parameter) in parameters.iter().enumerate() {
                let parameter = parameter.set_requires_grad(index >= frozen);
                if index >= frozen {
                    trained.push(parameter);
                }
            }
            let mut reducer = GradientReducer::with_options(world, &trained, &OPTIONS).unwrap();
            reducer.zero().unwrap();
            reducer.prepare(true).unwrap();
            loss(&parameters, start, rows).backward();
            reducer.finish().unwrap();
            for (index, parameter) in parameters.iter().enumerate() {
                match index < frozen {
                    true => assert!(!parameter.grad().defined(), "parameter {index} is frozen"),
                    false => assert_close(&parameter.grad(), &expected[index], 1e-6, &format!("parameter {index}")),
                }
            }
            drop(reducer);
            assert!(parameters.iter().all(|parameter| !parameter.grad().defined()));
        }
    });
}

#[test]
fn a_second_backward_pass_is_an_error_on_the_rank_that_did_it() {
    on_ranks(
        "a_second_backward_pass_is_an_error_on_the_rank_that_did_it",
        &[2],
        |world| {
            let parameters = parameters(Kind::Float);
            let mut reducer = GradientReducer::with_options(world, &parameters, &OPTIONS).unwrap();
            reducer.prepare(true).unwrap();
            loss(&parameters, 0, 3).backward();
            if world.rank == 1 {
                loss(&parameters, 0, 3).backward();
            }
            assert!(reducer.prepare(true).is_err(), "the step was not finished");
            assert_eq!(reducer.finish().is_err(), world.rank == 1);
        },
    );
}

/// Both kinds of communication at once: the main thread in batch normalization's collectives, the communication thread
/// in the buckets'.
#[test]
fn batch_normalization_communicates_beside_the_buckets() {
    on_ranks(
        "batch_normalization_communicates_beside_the_buckets",
        &[2, 4],
        |world| {
            let loss = |parameters: &[Tensor], start, rows, normalize: &dyn Fn(&Tensor, &Tensor, &Tensor) -> Tensor| {
                let mut x = numbers(&[ROWS, WIDTH], 0.5, Kind::Float).narrow(0, start, rows);
                for layer in 0..LAYERS {
                    let (weight, bias) = (&parameters[2 * layer], &parameters[2 * layer + 1]);
                    x = normalize(&x.matmul(&weight.tr()), &(bias + 2.0), bias).tanh();
                }
                x.square().sum(None) / ROWS
            };
            let whole = parameters(Kind::Float);
            let none = None::<&Tensor>;
            let batch_norm =
                |x: &Tensor, w: &Tensor, b: &Tensor| x.batch_norm(Some(w), Some(b), none, none, true, 0.1, 1e-5, false);
            loss(&whole, 0, ROWS, &batch_norm).backward();

            let parameters = parameters(Kind::Float);
            let ranks: Arc<dyn RankStatistics> = Arc::new(world.collectives());
            let synchronized = |x: &Tensor, weight: &Tensor, bias: &Tensor| {
                let tensors = BatchNormTensors {
                    weight: Some(weight),
                    bias: Some(bias),
                    ..BatchNormTensors::default()
                };
                sync_batch_norm(x, tensors, 0.1, 1e-5, &ranks).unwrap()
            };
            let mut reducer = GradientReducer::with_options(world, &parameters, &OPTIONS).unwrap();
            let (start, rows) = share(world);
            for step in 0..20 {
                reducer.zero().unwrap();
                let loss = loss(&parameters, start, rows, &synchronized);
                reducer.prepare(true).unwrap();
                loss.backward();
                reducer.finish().unwrap();
                for index in 0..2 * LAYERS {
                    let what = format!("parameter {index}, step {step}");
                    assert_close(&parameters[index].grad(), &whole[index].grad(), 1e-5, &what);
                }
            }
        },
    );
}

/// Ranks that leave amidst a step neither hang nor crash before they have told why. MPI cannot end in an orderly way
/// then, so the job ends by abort; its status shows that the ranks came that far.
#[test]
fn a_reducer_can_be_dropped_amidst_a_step() {
    const STATUS: i32 = 7;
    if is_worker() {
        return worker(|world| {
            let parameters = parameters(Kind::Float);
            let mut reducer = GradientReducer::with_options(world, &parameters, &OPTIONS)?;
            reducer.prepare(true)?;
            if world.rank == 0 {
                loss(&parameters, 0, 3).backward();
            }
            drop(reducer);
            world.barrier()?;
            world.abort(STATUS);
        });
    }
    let ended = run(this_test_on(2, "a_reducer_can_be_dropped_amidst_a_step"));
    assert_eq!(ended.status.code(), Some(STATUS), "{}", ended.output());
}
