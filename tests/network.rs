//! The network against Dingo's: the same weights and inputs must give the same log-densities, gradients and buffers.
//!
//! The cases are read from tests/cases, and from the folder named by DINGO_CASES too when set.

use dingo_spmd::checkpoint::Checkpoint;
use dingo_spmd::nn::{BuildContext, Mode};
use dingo_spmd::posterior::{self, NormalizingFlow, PosteriorModel};
use dingo_spmd::settings::{ModelSettings, Norm, Value};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use tch::{no_grad, Kind, Tensor};

/// One reference case: its network, loaded with `model_init.pt`, and the arrays of `network.npz`.
struct Case {
    name: String,
    arrays: IndexMap<String, Tensor>,
    saved: IndexMap<String, Tensor>,
    settings: ModelSettings,
}

impl Case {
    /// The network with the case's weights.
    fn model(&self) -> NormalizingFlow {
        let model = NormalizingFlow::new(&self.settings, None, &BuildContext::default()).unwrap();
        model.state().load(&self.saved).unwrap();
        model
    }

    fn theta(&self) -> &Tensor {
        &self.arrays["in_0"]
    }

    fn context(&self) -> Vec<Tensor> {
        (1..)
            .map_while(|i| self.arrays.get(&format!("in_{i}")))
            .map(Tensor::shallow_clone)
            .collect()
    }
}

fn cases() -> Vec<Case> {
    let mut roots = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")];
    roots.extend(std::env::var_os("DINGO_CASES").map(PathBuf::from));
    let mut found: IndexMap<String, Case> = IndexMap::new();
    for root in roots {
        let mut folders: Vec<PathBuf> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).collect();
        folders.sort();
        for folder in folders.iter().filter(|f| f.join("network.npz").exists()) {
            if let Some(case) = read_case(folder) {
                found.insert(case.name.clone(), case);
            }
        }
    }
    assert!(
        found.contains_key("npe") && found.contains_key("toy"),
        "{:?}",
        found.keys()
    );
    found.into_values().collect()
}

fn read_npz(path: &Path) -> IndexMap<String, Tensor> {
    Tensor::read_npz(path).unwrap().into_iter().collect()
}

/// None, said aloud, for a kind of network that does not exist here yet.
fn read_case(folder: &Path) -> Option<Case> {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(folder.join("train_settings.yaml")).unwrap();
    let model = &serde_yaml::from_str::<Value>(&text).unwrap()["model"];
    let kind = model["posterior_model_type"].as_str().unwrap_or("unnamed");
    let transform = model["posterior_kwargs"]["base_transform_kwargs"]["base_transform_type"].as_str();
    let embedding = model["embedding_type"].as_str().unwrap_or("resnet");
    if kind != "normalizing_flow" || transform.unwrap_or("rq-coupling") != "rq-coupling" || embedding != "resnet" {
        eprintln!("SKIPPED: case {name} ({kind}, {transform:?}, embedding {embedding}) is not supported yet");
        return None;
    }
    let checkpoint = Checkpoint::load(folder.join("model_init.pt")).unwrap();
    let settings = ModelSettings::from_value(checkpoint.model_kwargs).unwrap();
    let arrays = read_npz(&folder.join("network.npz"));
    Some(Case {
        name,
        arrays,
        saved: checkpoint.model_state,
        settings,
    })
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    (a.to_kind(Kind::Double) - b.to_kind(Kind::Double))
        .abs()
        .max()
        .double_value(&[])
}

fn norm(t: &Tensor) -> f64 {
    t.to_kind(Kind::Double).norm().double_value(&[])
}

#[test]
fn names_order_and_kinds_are_those_of_the_reference() {
    for case in cases() {
        let model = posterior::build(&case.settings, None, &BuildContext::default()).unwrap();
        let ours: Vec<_> = model
            .state()
            .state_dict()
            .into_iter()
            .map(|(n, t)| (n, t.size(), t.kind()))
            .collect();
        let theirs: Vec<_> = case
            .saved
            .iter()
            .map(|(n, t)| (n.clone(), t.size(), t.kind()))
            .collect();
        assert_eq!(ours, theirs, "{}", case.name);
    }
}

#[test]
fn log_prob_in_evaluation_mode() {
    for case in cases() {
        let log_prob = no_grad(|| case.model().log_prob(case.theta(), &case.context(), Mode::Eval)).unwrap();
        let difference = largest_difference(&log_prob, &case.arrays["log_prob_eval"]);
        eprintln!("{}: {difference:.1e}", case.name);
        assert!(difference <= 1e-4, "{}: {difference:e}", case.name);
    }
}

#[test]
fn a_training_pass_gives_the_reference_loss_gradients_and_buffers() {
    for case in cases() {
        let name = &case.name;
        let model = case.model();
        let loss = model.loss(case.theta(), &case.context(), Mode::Train).unwrap();
        let difference = largest_difference(&-&loss, &case.arrays["log_prob_train"]);
        assert!(difference <= 1e-4, "{name}: log_prob_train differs by {difference:e}");
        loss.mean(Kind::Float).backward();

        let mut worst = 0.0f64;
        for (parameter, tensor) in model.state().named_parameters() {
            let reference = &case.arrays[&format!("grad/{parameter}")];
            let difference = norm(&(tensor.grad() - reference));
            let allowed = (1e-3 * norm(reference)).max(1e-6);
            worst = worst.max(difference / allowed);
            assert!(
                difference <= allowed,
                "{name}: gradient of {parameter} differs by {difference:e} > {allowed:e}"
            );
        }
        let references = case.arrays.keys().filter(|key| key.starts_with("grad/")).count();
        assert_eq!(references, model.state().parameters().len(), "{name}");
        eprintln!("{name}: {difference:.1e}, worst gradient at {worst:.2} of what is allowed");

        for (buffer, tensor) in model.state().named_buffers() {
            let reference = &case.arrays[&format!("buffer_after/{buffer}")];
            let difference = largest_difference(tensor, reference);
            let scale = reference.abs().max().double_value(&[]).max(1.0);
            assert!(
                difference <= 1e-5 * scale,
                "{name}: buffer {buffer} differs by {difference:e}"
            );
        }
    }
}

#[test]
fn samples_have_the_density_that_sampling_says() {
    tch::manual_seed(1);
    for case in cases() {
        let (model, context) = (case.model(), case.context());
        let (samples, log_prob) = no_grad(|| model.sample_and_log_prob(&context, 50)).unwrap();
        let (batch, dim) = (case.theta().size()[0], case.theta().size()[1]);
        assert_eq!(
            (samples.size(), log_prob.size()),
            (vec![batch, 50, dim], vec![batch, 50])
        );
        let repeated: Vec<Tensor> = context
            .iter()
            .map(|c| c.repeat_interleave_self_int(50, 0, None))
            .collect();
        let again = no_grad(|| model.log_prob(&samples.view([-1, dim]), &repeated, Mode::Eval)).unwrap();
        let difference = largest_difference(&again, &log_prob.view(-1));
        eprintln!("{}: {difference:.1e}", case.name);
        assert!(difference <= 1e-3, "{}: {difference:e}", case.name);
    }
}

#[test]
fn the_inverse_undoes_the_network() {
    for case in cases() {
        let (model, context, theta) = (case.model(), case.context(), case.theta());
        let network = model.network();
        let (noise, logabsdet) = no_grad(|| network.to_noise(theta, &context, Mode::Eval)).unwrap();
        let (back, inverse_logabsdet) = no_grad(|| network.from_noise(&noise, &context)).unwrap();
        let difference = largest_difference(&back, theta);
        eprintln!("{}: {difference:.1e}", case.name);
        assert!(difference <= 1e-4, "{}: {difference:e}", case.name);
        assert!(
            largest_difference(&inverse_logabsdet, &-logabsdet) <= 1e-3,
            "{}",
            case.name
        );
    }
}

/// Lowest and highest value that a fresh tensor may have, as PyTorch, nflows and Dingo initialize it; the distribution is
/// uniform in between. `fan_in` is the width of the layer's weight.
fn initial_range(name: &str, fan_in: Option<i64>) -> (f64, f64) {
    if name.contains("norm_layers") {
        let value = if name.ends_with("weight") || name.ends_with("running_var") {
            1.0
        } else {
            0.0
        };
        return (value, value);
    }
    if name.contains("linear_layers.1") {
        return (-1e-3, 1e-3);
    }
    if let Some(fan_in) = fan_in {
        let bound = 1.0 / (fan_in as f64).sqrt();
        return (-bound, bound);
    }
    match name.rsplit('.').next().unwrap() {
        // softplus⁻¹(1 - 1e-3)
        "unconstrained_upper_diag" => (0.539742, 0.539743),
        "bias" | "lower_entries" | "upper_entries" => (0.0, 0.0),
        other => panic!("no distribution for {other}"),
    }
}

#[test]
fn fresh_weights_have_the_distributions_of_the_reference() {
    for mut case in cases() {
        for norm in [Norm::None, Norm::BatchNorm, Norm::LayerNorm] {
            case.settings.posterior.base_transform.norm = norm;
            case.settings.embedding.norm = norm;
            let build = |seed| {
                let context = BuildContext {
                    seed,
                    ..BuildContext::default()
                };
                posterior::build(&case.settings, None, &context).unwrap()
            };
            let model = build(1);
            for (name, tensor) in model.state().named_parameters() {
                let weight = name
                    .strip_suffix("bias")
                    .map_or(name.to_string(), |layer| format!("{layer}weight"));
                let fan_in = model.state().get(&weight).and_then(|w| w.size().get(1).copied());
                let (low, high) = initial_range(name, fan_in);
                let (min, max) = (tensor.min().double_value(&[]), tensor.max().double_value(&[]));
                assert!(
                    min >= low - 1e-9 && max <= high + 1e-9,
                    "{name}: {min} to {max} is not in {low} to {high}"
                );
                let count = tensor.numel() as f64;
                if high > low && count >= 100.0 {
                    let width = high - low;
                    let mean = tensor.mean(Kind::Double).double_value(&[]);
                    let std = tensor.to_kind(Kind::Double).std(true).double_value(&[]);
                    // Five standard errors: 1/√12 of the width for the mean, and less than half of that for std.
                    let error = 5.0 * width / (12.0 * count).sqrt();
                    assert!((mean - (low + high) / 2.0).abs() < error, "{name}: mean {mean}");
                    assert!((std - width / 12f64.sqrt()).abs() < error / 2.0, "{name}: std {std}");
                }
            }
            let (same, other) = (build(1).state().state_dict(), build(2).state().state_dict());
            let differs = |a: &IndexMap<String, Tensor>| {
                model
                    .state()
                    .state_dict()
                    .iter()
                    .filter(|(name, t)| !t.equal(&a[*name]))
                    .count()
            };
            assert_eq!(differs(&same), 0, "one seed must give one network");
            assert!(differs(&other) > 0);
        }
    }
}
