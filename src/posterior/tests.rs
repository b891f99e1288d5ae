//! Small networks filled by a formula, with the log-densities that Dingo 0.10.3 gives for the same numbers. They cover the
//! options that the reference cases of the repository lack.

use super::*;
use crate::settings::{Activation, BaseTransformSettings, EmbeddingSettings, FlowSettings, Norm, SvdSettings};
use crate::torch_ext::RankStatistics;
use std::sync::{Arc, Barrier, Mutex};
use tch::{no_grad, Device, Kind};

const DOUBLE: (Kind, Device) = (Kind::Double, Device::Cpu);

fn settings(norm: Norm, unconditional: bool, added: bool, flow: Activation, embedding: Activation) -> ModelSettings {
    ModelSettings {
        posterior_model_type: PosteriorModelType::NormalizingFlow,
        posterior: FlowSettings {
            num_flow_steps: 2,
            base_transform: BaseTransformSettings {
                hidden_dim: 6,
                num_transform_blocks: 2,
                activation: flow,
                dropout_probability: 0.0,
                norm,
                num_bins: 4,
                tail_bound: 2.0,
                apply_unconditional_transform: unconditional,
            },
            input_dim: Some(5),
            context_dim: Some(if added { 6 } else { 4 }),
        },
        embedding: EmbeddingSettings {
            output_dim: 4,
            hidden_dims: vec![7, 5],
            activation: embedding,
            dropout: 0.0,
            norm,
            svd: SvdSettings {
                size: 3,
                num_training_samples: 1,
                num_validation_samples: 1,
                no_init: false,
            },
            input_dims: Some([2, 3, 4]),
            added_context: added,
        },
    }
}

/// f(0), f(1), … in the given shape.
fn ramp(shape: &[i64], f: impl Fn(Tensor) -> Tensor) -> Tensor {
    f(Tensor::arange(shape.iter().product::<i64>(), DOUBLE))
        .view(shape)
        .to_kind(Kind::Float)
}

/// Sets tensor i of the state to sin(i), sin(i + 1), …, halved, but for running statistics, and every permutation to one.
fn fill(state: &ModuleState) {
    let mut saved = state.state_dict();
    for (i, (name, tensor)) in saved.iter_mut().enumerate() {
        if name.ends_with("_permutation") {
            *tensor = Tensor::from_slice(&[3i64, 0, 4, 1, 2]);
        } else if tensor.kind() == Kind::Float && !name.contains("running") {
            *tensor = ramp(&tensor.size(), |n| (n + i as f64).sin() * 0.5);
        }
    }
    state.load(&saved).unwrap();
}

fn check(model: &ModelSettings, eval: [f64; 3], train: [f64; 3], gradient_norm: f64) {
    let network = build(model, None, &BuildContext::default()).unwrap();
    fill(network.state());
    let theta = ramp(&[3, 5], |n| (n * 2.0).sin() * 1.5);
    let mut context = vec![ramp(&[3, 2, 3, 4], |n| n.cos())];
    if model.embedding.added_context {
        context.push(ramp(&[3, 2], |n| n.sin()));
    }
    let close = |ours: &Tensor, expected: [f64; 3]| {
        let difference = (ours.to_kind(Kind::Double) - Tensor::from_slice(&expected))
            .abs()
            .max()
            .double_value(&[]);
        assert!(difference < 1e-4, "{ours} is not {expected:?}");
    };
    close(
        &no_grad(|| network.log_prob(&theta, &context, Mode::Eval)).unwrap(),
        eval,
    );
    let loss = network.loss(&theta, &context, Mode::Train).unwrap();
    close(&-&loss, train);
    loss.mean(Kind::Float).backward();
    let square: f64 = network
        .state()
        .parameters()
        .iter()
        .map(|p| p.grad().square().sum(Kind::Double).double_value(&[]))
        .sum();
    assert!(
        (square.sqrt() / gradient_norm - 1.0).abs() < 1e-4,
        "{} is not {gradient_norm}",
        square.sqrt()
    );
}

#[test]
fn layer_norm_added_context_and_unconditional_transform() {
    let log_prob = [-15.870005, -14.575684, -11.488187];
    let model = settings(Norm::LayerNorm, true, true, Activation::LeakyRelu, Activation::Gelu);
    check(&model, log_prob, log_prob, 15.965265927568627);
    let log_prob = [-24.642006, -17.895662, -19.138485];
    let model = settings(Norm::LayerNorm, false, true, Activation::Gelu, Activation::Relu);
    check(&model, log_prob, log_prob, 36.10067234738789);
}

#[test]
fn batch_norm_with_unconditional_transform() {
    let model = settings(Norm::BatchNorm, true, false, Activation::Relu, Activation::LeakyRelu);
    check(
        &model,
        [-30.833361, -18.041504, -19.151627],
        [-30.660444, -17.794699, -18.602495],
        38.21967752607622,
    );
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let model = || settings(Norm::None, false, false, Activation::Elu, Activation::Elu);
    let message = |model: &ModelSettings| match build(model, None, &BuildContext::default()) {
        Ok(_) => panic!("built"),
        Err(error) => error.to_string(),
    };
    let mut incomplete = model();
    incomplete.posterior.input_dim = None;
    assert!(message(&incomplete).contains("input_dim: not known"));
    let mut incomplete = model();
    incomplete.embedding.input_dims = None;
    assert!(message(&incomplete).contains("input_dims: not known"));
    let mut other = model();
    other.posterior.context_dim = Some(7);
    assert!(
        message(&other).contains("context_dim: 7, but the embedding gives 4"),
        "{}",
        message(&other)
    );
    let mut merged = model();
    merged.embedding.added_context = true;
    assert!(message(&merged).contains("context_dim: 4, but the embedding gives 4 and added context"));
    let mut empty = model();
    empty.embedding.hidden_dims.clear();
    assert!(message(&empty).contains("hidden_dims"));

    let network = build(&model(), None, &BuildContext::default()).unwrap();
    let (theta, strain) = (ramp(&[3, 5], |n| n), ramp(&[3, 2, 3, 4], |n| n));
    let two = [strain, theta.shallow_clone()];
    assert!(network
        .loss(&theta, &two, Mode::Eval)
        .unwrap_err()
        .to_string()
        .contains("expected 1 kinds of context"));
    assert!(network.loss(&theta, &[], Mode::Eval).is_err());
}

#[test]
fn one_sample_has_no_batch_statistics() {
    let model = settings(Norm::BatchNorm, false, false, Activation::Elu, Activation::Elu);
    let network = build(&model, None, &BuildContext::default()).unwrap();
    let (theta, context) = (ramp(&[1, 5], |n| n), [ramp(&[1, 2, 3, 4], |n| n)]);
    let message = network.loss(&theta, &context, Mode::Train).unwrap_err().to_string();
    assert!(message.contains("at least 2 samples"), "{message}");
    assert!(network.loss(&theta, &context, Mode::Eval).is_ok());
}

/// Ranks that are threads of one process.
struct ThreadRank {
    rank: usize,
    slots: Arc<Mutex<Vec<Tensor>>>,
    barrier: Arc<Barrier>,
}

impl ThreadRank {
    fn group(size: usize) -> Vec<Arc<dyn RankStatistics>> {
        let slots = Arc::new(Mutex::new((0..size).map(|_| Tensor::new()).collect()));
        let barrier = Arc::new(Barrier::new(size));
        (0..size)
            .map(|rank| {
                Arc::new(ThreadRank {
                    rank,
                    slots: slots.clone(),
                    barrier: barrier.clone(),
                }) as _
            })
            .collect()
    }
}

impl RankStatistics for ThreadRank {
    fn all_gather(&self, local: &Tensor) -> Result<Tensor, String> {
        self.slots.lock().unwrap()[self.rank] = local.detach();
        self.barrier.wait();
        let gathered = Tensor::stack(&self.slots.lock().unwrap(), 0);
        self.barrier.wait();
        Ok(gathered)
    }

    fn all_reduce_sum(&self, values: &Tensor) -> Result<(), String> {
        let sum = self.all_gather(&values.copy())?.sum_dim_intlist(0, false, None::<Kind>);
        values.shallow_clone().copy_(&sum);
        Ok(())
    }
}

/// Loss, gradients and buffers of one training pass over rows `start..start + count` of 7; the loss is this share of the mean.
fn pass(ranks: Option<Arc<dyn RankStatistics>>, start: i64, count: i64) -> (f64, Vec<Tensor>, Vec<Tensor>) {
    let model = settings(Norm::BatchNorm, false, true, Activation::Elu, Activation::Gelu);
    let context = BuildContext {
        batch_norm_ranks: ranks,
        ..BuildContext::default()
    };
    let network = build(&model, None, &context).unwrap();
    fill(network.state());
    let theta = ramp(&[7, 5], |n| (n * 2.0).sin() * 1.5).narrow(0, start, count);
    let strain = ramp(&[7, 2, 3, 4], |n| n.cos()).narrow(0, start, count);
    let added = ramp(&[7, 2], |n| n.sin()).narrow(0, start, count);
    let loss = network
        .loss(&theta, &[strain, added], Mode::Train)
        .unwrap()
        .sum(Kind::Float)
        / 7.0;
    loss.backward();
    let gradients = network.state().parameters().iter().map(Tensor::grad).collect();
    let buffers = network
        .state()
        .named_buffers()
        .map(|(_, buffer)| buffer.copy())
        .collect();
    (loss.double_value(&[]), gradients, buffers)
}

#[test]
fn synchronized_ranks_are_one_batch_even_one_without_rows() {
    let (loss, gradients, buffers) = pass(None, 0, 7);
    let shares = [(0, 4), (4, 0), (4, 3)];
    let threads: Vec<_> = (ThreadRank::group(3).into_iter().zip(shares))
        .map(|(ranks, (start, count))| std::thread::spawn(move || pass(Some(ranks), start, count)))
        .collect();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();

    let total: f64 = results.iter().map(|(loss, ..)| loss).sum();
    assert!((total / loss - 1.0).abs() < 1e-5, "{total} is not {loss}");
    for (i, expected) in gradients.iter().enumerate() {
        let sum = &results[0].1[i] + &results[1].1[i] + &results[2].1[i];
        let (difference, scale) = (
            (sum - expected).norm().double_value(&[]),
            expected.norm().double_value(&[]),
        );
        assert!(
            difference <= (1e-4 * scale).max(1e-6),
            "gradient {i}: {difference:e} of {scale:e}"
        );
    }
    for (i, expected) in buffers.iter().enumerate() {
        for (_, _, ours) in &results {
            assert!(ours[i].equal(&results[0].2[i]), "buffer {i} differs between ranks");
            assert!(
                (&ours[i] - expected).abs().max().double_value(&[]) < 1e-5,
                "buffer {i}: {} {expected}",
                ours[i]
            );
        }
    }
}

/// In a short type the networks' numbers have few digits, but the flow's own arithmetic has all: densities come in single
/// precision and are those of single precision but for the networks' rounding, gradients are finite, and the flow is
/// inverted as exactly as without.
#[test]
fn mixed_precision_keeps_the_flow_exact() {
    use crate::torch_ext::Autocast;
    // Of nine samples in ten. On the way back the networks' inputs are off by some 1e-7; where that takes one of them over a
    // limit of rounding to the short type, the sample gets another spline, and misses by 1e-3.
    let most = |difference: Tensor| {
        let by_sample = difference.abs().amax(1, false).to_kind(Kind::Double);
        by_sample.quantile_scalar(0.9, 0, false, "linear").double_value(&[])
    };
    for (norm, unconditional) in [(Norm::BatchNorm, false), (Norm::LayerNorm, true), (Norm::None, true)] {
        let settings = settings(norm, unconditional, false, Activation::Elu, Activation::Elu);
        let model = NormalizingFlow::new(&settings, None, &BuildContext::default()).unwrap();
        fill(model.state());
        let theta = ramp(&[64, 5], |n| (n * 2.0).sin() * 1.5);
        let context = [ramp(&[64, 2, 3, 4], |n| n.cos())];
        // Densities, and how far the inverse of the flow misses.
        let tested = || {
            no_grad(|| {
                let loss = model.loss(&theta, &context, Mode::Eval).unwrap();
                let (noise, _) = model.network().to_noise(&theta, &context, Mode::Eval).unwrap();
                let (restored, _) = model.network().from_noise(&noise, &context).unwrap();
                assert_eq!((loss.kind(), restored.kind()), (Kind::Float, Kind::Float));
                (loss, most(restored - &theta))
            })
        };
        for (kind, rounding) in [(Kind::BFloat16, 2f64.powi(-8)), (Kind::Half, 2f64.powi(-11))] {
            let (single, single_miss) = tested();
            let short = Autocast::on(Device::Cpu, kind).unwrap();
            let (loss, miss) = tested();
            let training_loss = model.loss(&theta, &context, Mode::Train).unwrap();
            drop(short);
            let error = (&loss - &single).square().mean(Kind::Double).sqrt().double_value(&[]);
            let scale = single.square().mean(Kind::Double).sqrt().double_value(&[]);
            println!(
                "{norm:?} {kind:?}: {:.2} of the rounding, missed by {miss:.1e}, single {single_miss:.1e}",
                error / scale / rounding
            );
            assert!(
                error > 0.0 && error < 8.0 * rounding * scale,
                "{norm:?} {kind:?}: {error} of {scale}"
            );
            assert!(
                miss < 8.0 * single_miss,
                "{norm:?} {kind:?}: {miss}, in single precision {single_miss}"
            );
            training_loss.mean(Kind::Float).backward();
            for (name, parameter) in model.state().named_parameters() {
                let mut gradient = parameter.grad();
                let norm = gradient.norm().double_value(&[]);
                assert!(norm.is_finite() && norm > 0.0, "{name}: {norm}");
                let _ = gradient.zero_();
            }
        }
    }
}
