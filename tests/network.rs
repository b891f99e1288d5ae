//! The network against Dingo's: the same weights and inputs must give the same log-densities, gradients and buffers.
//!
//! The cases are read from tests/cases, and from the folder named by DINGO_CASES too when set.

use dingo_spmd::nn::{BuildContext, Mode, ModuleState, NnError};
use dingo_spmd::posterior::{self, PosteriorModel};
use dingo_spmd::settings::{
    Activation, BaseTransformSettings, EmbeddingSettings, FlowSettings, ModelSettings, Norm, PosteriorModelType,
    SvdSettings, Value,
};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use tch::{no_grad, Device, Kind, Tensor};

/// One reference case: its network, loaded with `model_init.pt`, and the arrays of `network.npz`.
struct Case {
    name: String,
    arrays: IndexMap<String, Tensor>,
    saved: IndexMap<String, Tensor>,
    settings: ModelSettings,
}

impl Case {
    fn model(&self) -> Box<dyn PosteriorModel> {
        let model = posterior::build(&self.settings, None, &BuildContext::default()).unwrap();
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

fn read_case(folder: &Path) -> Option<Case> {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(folder.join("train_settings.yaml")).unwrap();
    let yaml: Value = serde_yaml::from_str(&text).unwrap();
    let model = &yaml["model"];
    let kind = model["posterior_model_type"].as_str().unwrap();
    let transform = model["posterior_kwargs"]["base_transform_kwargs"]["base_transform_type"].as_str();
    let tokens = model
        .get("embedding_type")
        .is_some_and(|v| v.as_str() == Some("transformer"));
    if kind != "normalizing_flow" || transform.is_some_and(|t| t != "rq-coupling") || tokens {
        eprintln!("SKIPPED {name}: {kind}, {transform:?}, not supported yet");
        return None;
    }
    let arrays = read_npz(&folder.join("network.npz"));
    let saved = read_npz(&Path::new("/work/tmp/nn_state").join(format!("{name}.npz")));
    let settings = temp_settings(model, &arrays);
    Some(Case {
        name,
        arrays,
        saved,
        settings,
    })
}

fn temp_settings(model: &Value, arrays: &IndexMap<String, Tensor>) -> ModelSettings {
    let b = &model["posterior_kwargs"]["base_transform_kwargs"];
    let e = &model["embedding_kwargs"];
    let norm = |v: &Value| match v.get("norm").and_then(|n| n.as_str()) {
        Some("LayerNorm") => Norm::LayerNorm,
        Some("BatchNorm") => Norm::BatchNorm,
        _ if v.get("batch_norm").is_some_and(|b| b.as_bool() == Some(true)) => Norm::BatchNorm,
        _ => Norm::None,
    };
    let act = |v: &Value| match v["activation"].as_str().unwrap() {
        "elu" => Activation::Elu,
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "leaky_relu" => Activation::LeakyRelu,
        _ => panic!(),
    };
    let s = arrays["in_1"].size();
    let n = |v: &Value| v.as_u64().unwrap() as usize;
    let added = arrays.get("in_2").map_or(0, |t| t.size()[1] as usize);
    ModelSettings {
        posterior_model_type: PosteriorModelType::NormalizingFlow,
        posterior: FlowSettings {
            num_flow_steps: n(&model["posterior_kwargs"]["num_flow_steps"]),
            base_transform: BaseTransformSettings {
                hidden_dim: n(&b["hidden_dim"]),
                num_transform_blocks: n(&b["num_transform_blocks"]),
                activation: act(b),
                dropout_probability: b["dropout_probability"].as_f64().unwrap(),
                norm: norm(b),
                num_bins: n(&b["num_bins"]),
                tail_bound: b.get("tail_bound").map_or(1.0, |t| t.as_f64().unwrap()),
                apply_unconditional_transform: false,
            },
            input_dim: Some(arrays["in_0"].size()[1] as usize),
            context_dim: Some(n(&e["output_dim"]) + added),
        },
        embedding: EmbeddingSettings {
            output_dim: n(&e["output_dim"]),
            hidden_dims: e["hidden_dims"].as_sequence().unwrap().iter().map(n).collect(),
            activation: act(e),
            dropout: e["dropout"].as_f64().unwrap(),
            norm: norm(e),
            svd: SvdSettings {
                size: n(&e["svd"]["size"]),
                num_training_samples: 0,
                num_validation_samples: 0,
                no_init: false,
            },
            input_dims: Some([s[1] as usize, s[2] as usize, s[3] as usize]),
            added_context: added > 0,
        },
    }
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
