//! Training steps against Dingo's: the same start and batches must give the same losses, and a run of Dingo's must go on
//! here as it would have there.
//!
//! The cases are read from tests/cases, and from the folder named by DINGO_CASES too when set.

use dingo_spmd::checkpoint::{Checkpoint, OptimizerState};
use dingo_spmd::nn::{BuildContext, Mode};
use dingo_spmd::posterior::{self, PosteriorModel};
use dingo_spmd::settings::{ModelSettings, TrainSettings, Value};
use dingo_spmd::train::{Optimizer, Scheduler};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tch::{no_grad, Kind, Tensor};

/// Relative, of a loss.
const TOLERANCE: f64 = 1e-4;

/// One reference case whose network is supported.
struct Case {
    name: String,
    folder: PathBuf,
    model: ModelSettings,
    /// Theta and context of each step.
    batches: Vec<(Tensor, Vec<Tensor>)>,
    arrays: HashMap<String, Tensor>,
}

/// A network in training with what belongs to it.
struct Run {
    network: Box<dyn PosteriorModel>,
    optimizer: Optimizer,
    scheduler: Scheduler,
}

fn repository_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// The supported cases; those that are not are named.
fn cases() -> Vec<Case> {
    let roots = std::iter::once(repository_cases()).chain(std::env::var_os("DINGO_CASES").map(PathBuf::from));
    let mut folders: Vec<PathBuf> = roots
        .flat_map(|root| std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display())))
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("trajectory.npz").exists())
        .collect();
    folders.sort();
    let cases: Vec<Case> = folders.into_iter().filter_map(Case::read).collect();
    for name in ["npe", "toy"] {
        assert!(cases.iter().any(|case| case.name == name), "{name} is missing");
    }
    cases
}

impl Case {
    fn read(folder: PathBuf) -> Option<Case> {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let checkpoint = Checkpoint::load(folder.join("model_init.pt")).unwrap();
        let model = match ModelSettings::from_value(checkpoint.model_kwargs) {
            Ok(model) => model,
            Err(error) if error.to_string().contains("not supported yet") => {
                eprintln!("SKIPPED {name}: {error}");
                return None;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let arrays: HashMap<_, _> = Tensor::read_npz(folder.join("trajectory.npz"))
            .unwrap()
            .into_iter()
            .collect();
        let input = |step: usize, i: usize| Some(arrays.get(&format!("step{step}/in_{i}"))?.shallow_clone());
        let batches = (0..)
            .map_while(|step| Some((input(step, 0)?, (1..).map_while(|i| input(step, i)).collect())))
            .collect();
        Some(Case {
            name,
            folder,
            model,
            batches,
            arrays,
        })
    }

    fn checkpoint(&self, file: &str) -> Checkpoint {
        Checkpoint::load(self.folder.join(file)).unwrap()
    }

    /// The network of a checkpoint with a fresh optimizer and scheduler of stage 0. Every parameter is trainable.
    fn begin(&self, checkpoint: &Checkpoint) -> Run {
        let network = posterior::build(&self.model, None, &BuildContext::default()).unwrap();
        network.state().load(&checkpoint.model_state).unwrap();
        // Data options that are not supported yet do not matter here: those of another case stand in.
        let mut settings = checkpoint.metadata.train_settings.clone();
        let npe = Checkpoint::load(repository_cases().join("npe/model_init.pt")).unwrap();
        settings["data"] = npe.metadata.train_settings["data"].clone();
        let stage = TrainSettings::from_value(settings).unwrap().stages.swap_remove(0);
        let mut optimizer = Optimizer::new(&stage.optimizer, network.state().parameters()).unwrap();
        let scheduler = Scheduler::new(&stage.scheduler, &mut optimizer);
        Run {
            network,
            optimizer,
            scheduler,
        }
    }

    fn assert_losses(&self, found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{}", self.name);
        for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
            let relative = (found - expected).abs() / expected.abs();
            println!(
                "{}, step {step}: {found:.6}, Dingo {expected:.6}, relative {relative:.1e}",
                self.name
            );
            assert!(
                relative <= TOLERANCE,
                "{}, step {step}: {found}, not {expected}",
                self.name
            );
        }
    }

    fn recorded(&self, name: &str) -> Vec<f64> {
        Vec::try_from(self.arrays[name].to_kind(Kind::Double).reshape(-1)).unwrap()
    }
}

impl Run {
    /// One optimizer step for each batch; the losses before it.
    fn train(&mut self, batches: &[(Tensor, Vec<Tensor>)]) -> Vec<f64> {
        let step = |(theta, context): &(Tensor, Vec<Tensor>)| {
            self.optimizer.zero_grad().unwrap();
            let loss = self
                .network
                .loss(theta, context, Mode::Train)
                .unwrap()
                .mean(Kind::Float);
            loss.backward();
            self.optimizer.step().unwrap();
            loss.double_value(&[])
        };
        batches.iter().map(step).collect()
    }

    fn test_loss(&self, (theta, context): &(Tensor, Vec<Tensor>)) -> f64 {
        let loss = no_grad(|| self.network.loss(theta, context, Mode::Eval)).unwrap();
        loss.mean(Kind::Float).double_value(&[])
    }
}

/// Everything about an optimizer's state but the values of its tensors: PyTorch's keys in their order, options, indices.
fn layout(state: &OptimizerState) -> String {
    let names = state
        .state
        .iter()
        .map(|(index, entries)| (index, entries.keys().collect::<Vec<_>>()));
    let groups = state.param_groups.iter().map(|group| {
        let options = group.options.iter();
        // Python's 0 and 0.0 are the same here.
        let options = options.map(|(key, value)| (key, value.as_f64().map_or(value.clone(), Value::from)));
        (options.collect::<Vec<_>>(), &group.params)
    });
    format!("{:?} {:?}", names.collect::<Vec<_>>(), groups.collect::<Vec<_>>())
}

#[test]
fn steps_from_the_same_start_follow_dingo() {
    for case in cases() {
        let mut run = case.begin(&case.checkpoint("model_init.pt"));
        let losses = run.train(&case.batches);
        case.assert_losses(&losses, &case.recorded("losses"));
        let test_loss = run.test_loss(&case.batches[0]);
        case.assert_losses(&[test_loss], &case.recorded("final_eval_loss"));

        run.scheduler.step(&mut run.optimizer, test_loss);
        let trained = case.checkpoint("model_trained.pt").training.unwrap();
        assert_eq!(
            layout(&run.optimizer.state()),
            layout(&trained.optimizer.unwrap()),
            "{}",
            case.name
        );
    }
}

#[test]
fn a_run_of_dingos_is_continued() {
    for case in cases() {
        let checkpoint = case.checkpoint("model_trained.pt");
        let mut run = case.begin(&checkpoint);
        let training = checkpoint.training.as_ref().unwrap();
        run.optimizer.load_state(training.optimizer.as_ref().unwrap()).unwrap();
        run.scheduler.load_state(training.scheduler.as_ref().unwrap()).unwrap();

        let text = std::fs::read_to_string(case.folder.join("continued.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(Some(run.optimizer.lr()), expected["lr"].as_f64(), "{}", case.name);
        let losses: Vec<f64> = serde_json::from_value(expected["losses"].clone()).unwrap();
        case.assert_losses(&run.train(&case.batches), &losses);
    }
}
