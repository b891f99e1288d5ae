//! Training steps against Dingo's, on one rank and on several under real mpirun, each taking its share of every batch: the
//! same start and batches must give the same losses, and a run of Dingo's must go on here as it would have there.
//!
//! The cases are read from tests/cases, and from the folder named by DINGO_CASES too when set.

mod common;

use common::on_ranks;
use dingo_spmd::checkpoint::{Checkpoint, OptimizerState};
use dingo_spmd::data::share_of;
use dingo_spmd::nn::{BuildContext, Mode};
use dingo_spmd::posterior::{self, PosteriorModel};
use dingo_spmd::settings::{ModelSettings, TrainSettings, Value};
use dingo_spmd::spmd::{GradientReducer, World};
use dingo_spmd::torch_ext::RankStatistics;
use dingo_spmd::train::{Optimizer, Scheduler};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tch::{no_grad, Kind, Tensor};

/// Relative, of a loss.
const TOLERANCE: f64 = 1e-4;

const RANKS: [usize; 3] = [1, 2, 4];

/// Small, so that there are several buckets.
const BUCKET_BYTES: usize = 100 << 10;

/// Theta and context.
type Batch = (Tensor, Vec<Tensor>);

/// One reference case whose network is supported.
struct Case {
    name: String,
    folder: PathBuf,
    model: ModelSettings,
    /// Of each step.
    batches: Vec<Batch>,
    arrays: HashMap<String, Tensor>,
}

/// A network in training with what belongs to it, on one of the ranks.
struct Run<'w> {
    world: &'w World,
    network: Box<dyn PosteriorModel>,
    reducer: GradientReducer,
    optimizer: Optimizer,
    scheduler: Scheduler,
}

fn repository_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn read_npz(path: &Path) -> HashMap<String, Tensor> {
    Tensor::read_npz(path).unwrap().into_iter().collect()
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
                common::skipped(&format!("case {name}: {error}"));
                return None;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let arrays = read_npz(&folder.join("trajectory.npz"));
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

    /// The network of a checkpoint with a fresh optimizer and scheduler of stage 0. Every parameter is trainable, and
    /// BatchNorm takes the statistics of all ranks.
    fn begin<'w>(&self, world: &'w World, checkpoint: &Checkpoint) -> Run<'w> {
        let ranks: Arc<dyn RankStatistics> = Arc::new(world.collectives());
        let context = BuildContext {
            batch_norm_ranks: (world.size > 1).then_some(ranks),
            ..BuildContext::default()
        };
        let network = posterior::build(&self.model, None, &context).unwrap();
        network.state().load(&checkpoint.model_state).unwrap();
        let reducer = GradientReducer::new(world, &network.state().parameters(), BUCKET_BYTES).unwrap();
        // Data options that are not supported yet do not matter here: those of another case stand in.
        let mut settings = checkpoint.metadata.train_settings.clone();
        let npe = Checkpoint::load(repository_cases().join("npe/model_init.pt")).unwrap();
        settings["data"] = npe.metadata.train_settings["data"].clone();
        let stage = TrainSettings::from_value(settings).unwrap().stages.swap_remove(0);
        let mut optimizer = Optimizer::new(&stage.optimizer, network.state().parameters()).unwrap();
        let scheduler = Scheduler::new(&stage.scheduler, &mut optimizer);
        Run {
            world,
            network,
            reducer,
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

impl Run<'_> {
    /// One optimizer step for each batch; the losses before it.
    fn train(&mut self, batches: &[Batch]) -> Vec<f64> {
        let step = |batch: &Batch| {
            let loss = self.backward(batch);
            self.optimizer.step().unwrap();
            loss
        };
        batches.iter().map(step).collect()
    }

    /// The gradients of the mean loss over the batch, each rank taking its share of it; the loss.
    fn backward(&mut self, (theta, context): &Batch) -> f64 {
        let count = theta.size()[0];
        let share = share_of(count as usize, self.world.rank, self.world.size);
        let own = |whole: &Tensor| whole.narrow(0, share.start as i64, share.len() as i64);
        let context: Vec<Tensor> = context.iter().map(own).collect();
        self.reducer.zero().unwrap();
        let loss = self.network.loss(&own(theta), &context, Mode::Train).unwrap();
        let loss = loss.sum(Kind::Float) / count;
        self.reducer.prepare(true).unwrap();
        self.reducer.set_scalars(&[loss.double_value(&[])]).unwrap();
        loss.backward();
        self.reducer.finish().unwrap().scalars.double_value(&[0])
    }

    fn test_loss(&self, (theta, context): &Batch) -> f64 {
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

/// A scheduler's state with all its numbers as floats, without the best loss, which is equal to rounding only.
fn comparable(state: &Value) -> Value {
    match state {
        Value::Mapping(entries) => {
            let entries = entries.iter().filter(|(name, _)| name.as_str() != Some("best"));
            Value::Mapping(entries.map(|(name, value)| (name.clone(), comparable(value))).collect())
        }
        Value::Sequence(values) => Value::Sequence(values.iter().map(comparable).collect()),
        other => other.as_f64().map_or(other.clone(), Value::from),
    }
}

#[test]
fn steps_from_the_same_start_follow_dingo() {
    on_ranks("steps_from_the_same_start_follow_dingo", &RANKS, |world| {
        for case in cases() {
            let mut run = case.begin(world, &case.checkpoint("model_init.pt"));
            let losses = run.train(&case.batches);
            case.assert_losses(&losses, &case.recorded("losses"));
            let test_loss = run.test_loss(&case.batches[0]);
            case.assert_losses(&[test_loss], &case.recorded("final_eval_loss"));

            run.scheduler.step(&mut run.optimizer, test_loss);
            let trained = case.checkpoint("model_trained.pt").training.unwrap();
            let name = &case.name;
            assert_eq!(
                layout(&run.optimizer.state()),
                layout(&trained.optimizer.unwrap()),
                "{name}"
            );
            let (ours, dingos) = (run.scheduler.state(), trained.scheduler.unwrap());
            assert_eq!(comparable(&ours), comparable(&dingos), "{name}");
        }
    });
}

#[test]
fn a_run_of_dingos_is_continued() {
    on_ranks("a_run_of_dingos_is_continued", &RANKS, |world| {
        for case in cases() {
            let checkpoint = case.checkpoint("model_trained.pt");
            let mut run = case.begin(world, &checkpoint);
            let training = checkpoint.training.as_ref().unwrap();
            run.optimizer.load_state(training.optimizer.as_ref().unwrap()).unwrap();
            run.scheduler.load_state(training.scheduler.as_ref().unwrap()).unwrap();

            let text = std::fs::read_to_string(case.folder.join("continued.json")).unwrap();
            let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(Some(run.optimizer.lr()), expected["lr"].as_f64(), "{}", case.name);
            let losses: Vec<f64> = serde_json::from_value(expected["losses"].clone()).unwrap();
            case.assert_losses(&run.train(&case.batches), &losses);
        }
    });
}

/// The batch of `network.npz` has fewer samples than there may be ranks.
#[test]
fn gradients_summed_over_ranks_are_dingos() {
    on_ranks("gradients_summed_over_ranks_are_dingos", &RANKS, |world| {
        for case in cases() {
            let arrays = read_npz(&case.folder.join("network.npz"));
            let input = |i: usize| arrays.get(&format!("in_{i}")).map(Tensor::shallow_clone);
            let batch = (input(0).unwrap(), (1..).map_while(input).collect());
            let mut run = case.begin(world, &case.checkpoint("model_init.pt"));
            run.backward(&batch);
            for (name, parameter) in run.network.state().named_parameters() {
                let expected = &arrays[&format!("grad/{name}")];
                let (off, norm) = (norm(&(parameter.grad() - expected)), norm(expected));
                let allowed = (1e-3 * norm).max(1e-6);
                assert!(off <= allowed, "{}, {name}: off by {off}, norm {norm}", case.name);
            }
        }
    });
}

fn norm(tensor: &Tensor) -> f64 {
    tensor.norm().double_value(&[])
}
