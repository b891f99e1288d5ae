//! Training steps as an epoch makes them, on the reference case `toy`, under real mpirun: accumulation, steps that are
//! skipped, what the ranks say to one another.

mod common;

use common::{is_worker, on_ranks, run, this_test_on, worker};
use dingo_spmd::data::{AsdDataset, Loader, LoaderOptions, Pipeline, WaveformDataset};
use dingo_spmd::nn::{BuildContext, Mode};
use dingo_spmd::posterior::{self, PosteriorModel};
use dingo_spmd::settings::{LocalSettings, Norm, Settings, StageSettings, TrainSettings, Value};
use dingo_spmd::spmd::World;
use dingo_spmd::torch_ext::OpCounter;
use dingo_spmd::train::{
    compare_replicas, train_epoch, EpochEnd, EpochInfo, Interrupts, LossInfo, Optimizer, PrintEvery, Stepper,
    TrainError, Training,
};
use std::path::Path;
use std::sync::Arc;
use tch::{no_grad, Tensor};

const SEED: u64 = 5;

/// A run of `toy` on this rank, ready for its first step.
struct Run {
    model: Box<dyn PosteriorModel>,
    loader: Loader,
    stepper: Stepper,
    stage: StageSettings,
    samples: usize,
}

/// What a test varies.
#[derive(Clone)]
struct Options {
    samples: usize,
    batch_size: usize,
    passes: usize,
    norm: Norm,
    /// Keys of `local`.
    local: &'static str,
}

const OPTIONS: Options = Options {
    samples: 48,
    batch_size: 12,
    passes: 1,
    norm: Norm::None,
    local: "{device: cpu}",
};

fn local(yaml: &str) -> LocalSettings {
    LocalSettings::from_value(serde_yaml::from_str::<Value>(yaml).unwrap()).unwrap()
}

fn toy_settings() -> TrainSettings {
    let case = Path::new("tests/cases/toy");
    Settings::load(&case.join("train_settings.yaml")).unwrap().train
}

/// The transforms of the case; also completes the settings.
fn pipeline(settings: &mut TrainSettings) -> Arc<Pipeline> {
    let case = Path::new("tests/cases/toy");
    let data = &settings.data;
    let dataset = WaveformDataset::open(&case.join(&data.waveform_dataset_path), data, true).unwrap();
    let dataset = Arc::new(dataset);
    let asds = AsdDataset::open(
        &case.join(&settings.stages[0].asd_dataset_path),
        &data.detectors,
        dataset.domain(),
    );
    let pipeline = Pipeline::new(dataset.clone(), Arc::new(asds.unwrap()), data, SEED).unwrap();
    settings.set_context_parameters(Vec::new());
    settings.set_standardization(pipeline.standardization());
    let bins = dataset.domain().num_bins() - dataset.domain().min_index();
    settings.complete_model(
        settings.data.inference_parameters.len(),
        [settings.data.detectors.len(), 3, bins],
    );
    Arc::new(pipeline)
}

impl Run {
    fn new(world: &World, options: &Options) -> Run {
        let mut settings = toy_settings();
        let pipeline = pipeline(&mut settings);
        settings.model.embedding.norm = options.norm;
        settings.model.posterior.base_transform.norm = options.norm;
        let local = local(options.local);
        let mut stage = settings.stages.swap_remove(0);
        stage.batch_size = options.batch_size;
        stage.gradient_updates_per_optimizer_step = options.passes;
        let synchronized = world.size > 1 && local.sync_batch_norm;
        let context = BuildContext {
            seed: SEED,
            batch_norm_ranks: synchronized.then(|| Arc::new(world.collectives()) as _),
            ..BuildContext::default()
        };
        let model = posterior::build(&settings.model, None, &context).unwrap();
        let loader_options = LoaderOptions {
            batch_size: options.batch_size,
            rank: world.rank,
            world_size: world.size,
            shuffle: false,
            seed: SEED,
            threads: 1,
        };
        let indices: Vec<usize> = (0..options.samples).collect();
        let optimizer = Optimizer::new(&stage.optimizer, model.state().parameters()).unwrap();
        let stepper = Stepper::new(world, model.state(), optimizer, &stage, &local).unwrap();
        Run {
            loader: Loader::new(pipeline, indices.into(), loader_options),
            model,
            stepper,
            stage,
            samples: options.samples,
        }
    }

    /// An epoch of training; what `LossInfo` knows of it.
    fn train(&mut self, world: &World, epoch: u64) -> anyhow::Result<LossInfo> {
        let info = EpochInfo {
            mode: Mode::Train,
            epoch,
            dataset_len: self.samples as u64,
            batch_size: self.stage.batch_size as u64,
            distributed: world.size > 1,
        };
        let mut info = LossInfo::new(info, PrintEvery::Batches(1));
        let mut training = Training {
            model: self.model.as_ref(),
            loader: &self.loader,
            stepper: &mut self.stepper,
            interrupts: &mut Interrupts::never(),
        };
        let end = train_epoch(&mut training, epoch, 0, &mut info)?;
        assert_eq!(end, EpochEnd::Complete);
        Ok(info)
    }

    /// The gradients of the last step, as one tensor.
    fn gradient(&self) -> Tensor {
        Tensor::cat(self.stepper.reducer.flat_gradients(), 0)
    }

    fn parameters(&self) -> Tensor {
        let flat: Vec<Tensor> = self
            .model
            .state()
            .parameters()
            .iter()
            .map(|p| p.detach().reshape([-1]))
            .collect();
        Tensor::cat(&flat, 0)
    }
}

/// Whatever the number of parameters: what a step does beside the network is not an operation for each of them.
#[test]
fn a_step_makes_few_calls_of_libtorch() {
    on_ranks("a_step_makes_few_calls_of_libtorch", &[1, 2], |world| {
        let mut run = Run::new(world, &OPTIONS);
        run.train(world, 1).unwrap();
        let parameters = run.parameters();
        run.stepper.begin().unwrap();
        let _ = run.stepper.reducer.flat_gradients()[0].shallow_clone().fill_(1.0);
        let counter = OpCounter::start().unwrap();
        run.stepper.reducer.prepare(true).unwrap();
        let reduced = run.stepper.reducer.finish().unwrap();
        run.stepper.step(&reduced, 0.0, 12).unwrap();
        run.stepper.begin().unwrap();
        let calls = counter.calls();
        assert!(calls < 20, "{calls}");
        assert_ne!(run.parameters(), parameters);
    });
}

fn relative(found: &Tensor, expected: &Tensor) -> f64 {
    (found - expected).norm().double_value(&[]) / expected.norm().double_value(&[])
}

/// k passes of B samples make the step that one pass of k B makes, on any number of ranks.
#[test]
fn accumulation_equals_a_larger_batch() {
    on_ranks("accumulation_equals_a_larger_batch", &[1, 2], |world| {
        let mut whole = Run::new(
            world,
            &Options {
                batch_size: 48,
                ..OPTIONS
            },
        );
        let mut loss = whole.train(world, 1).unwrap();
        assert_eq!(loss.iteration(), 1);
        for passes in [2, 4] {
            let options = Options {
                batch_size: 48 / passes,
                passes,
                ..OPTIONS
            };
            let mut accumulated = Run::new(world, &options);
            let mut info = accumulated.train(world, 1).unwrap();
            assert_eq!(info.iteration(), 1);
            let error = relative(&accumulated.gradient(), &whole.gradient());
            assert!(error < 1e-5, "{passes} passes: the gradient is off by {error}");
            let (found, expected) = (info.average().unwrap(), loss.average().unwrap());
            assert!((found - expected).abs() < 1e-5 * expected.abs(), "{found} {expected}");
        }
    });
}

/// As in Dingo, batches that are too few for a step are not even computed; a last batch that is smaller counts as a pass.
#[test]
fn an_incomplete_step_is_left_out() {
    on_ranks("an_incomplete_step_is_left_out", &[1, 2], |world| {
        // Batches of 8, 8, 8, 8, 8, 4.
        for (passes, steps, samples) in [(2, 3, 44.0), (4, 1, 32.0), (6, 1, 44.0)] {
            let options = Options {
                samples: 44,
                batch_size: 8,
                passes,
                ..OPTIONS
            };
            let mut run = Run::new(world, &options);
            let mut info = run.train(world, 1).unwrap();
            assert_eq!(
                (info.iteration(), info.sums().unwrap()[1]),
                (steps, samples),
                "{passes} passes"
            );
        }
    });
}

/// Nothing in a step synchronizes the ranks but the buckets of its one reduction, however many passes it has.
#[test]
fn a_step_costs_its_buckets_and_nothing_else() {
    on_ranks("a_step_costs_its_buckets_and_nothing_else", &[2, 3], |world| {
        for norm in [Norm::None, Norm::LayerNorm] {
            for (passes, steps) in [(1, 8), (2, 4), (4, 2)] {
                let options = Options {
                    batch_size: 6,
                    passes,
                    norm,
                    local: "{device: cpu, bucket_size_mb: 0.01, gradient_noise_scale: true}",
                    ..OPTIONS
                };
                let mut run = Run::new(world, &options);
                let buckets = run.stepper.reducer.buckets() as u64;
                assert!(buckets > 2);
                let before = world.traffic().collectives();
                run.train(world, 1).unwrap();
                let collectives = world.traffic().collectives() - before;
                assert_eq!(collectives, steps * buckets, "{norm:?}, {passes} passes");
            }
        }
    });
}

/// Synchronized batch normalization costs one collective a layer and direction beside that, in each pass.
#[test]
fn batch_normalization_adds_its_own_collectives_alone() {
    on_ranks("batch_normalization_adds_its_own_collectives_alone", &[2], |world| {
        let counted = |local| {
            let options = Options {
                norm: Norm::BatchNorm,
                local,
                ..OPTIONS
            };
            let mut run = Run::new(world, &options);
            let before = world.traffic().collectives();
            run.train(world, 1).unwrap();
            let names = run.model.state().named_buffers().map(|(name, _)| name.to_owned());
            let layers = names.filter(|name| name.ends_with("running_mean")).count() as u64;
            let collectives = world.traffic().collectives() - before;
            (collectives - 4 * run.stepper.reducer.buckets() as u64, layers)
        };
        let (synchronized, layers) = counted("{device: cpu}");
        assert_eq!(synchronized, 4 * 2 * layers);
        assert_eq!(counted("{device: cpu, sync_batch_norm: false}").0, 0);
    });
}

/// The three ways to normalize. Synchronized and by layers, two ranks train as one does; each by its own share, they do not,
/// yet they hold the same network once the statistics are averaged.
#[test]
fn three_ways_to_normalize() {
    const TEST: &str = "three_ways_to_normalize";
    on_ranks(TEST, &[2], |world| {
        let alone = World::alone(|_| 1);
        for (norm, local, as_one) in [
            (Norm::BatchNorm, "{device: cpu}", true),
            (Norm::BatchNorm, "{device: cpu, sync_batch_norm: false}", false),
            (Norm::LayerNorm, "{device: cpu}", true),
        ] {
            let options = Options { norm, local, ..OPTIONS };
            let (mut one, mut two) = (Run::new(&alone, &options), Run::new(world, &options));
            let mut difference: f64 = 0.0;
            for epoch in 1..=3 {
                let expected = one.train(&alone, epoch).unwrap().average().unwrap();
                let found = two.train(world, epoch).unwrap().average().unwrap();
                difference = difference.max((found - expected).abs() / expected.abs());
            }
            if !as_one {
                let state = two.model.state();
                let mean = || {
                    state.get("flow._transform._transforms.0._transforms.1.transform_net.blocks.0.batch_norm_layers.0.running_mean").unwrap().copy()
                };
                let before = mean();
                let gathered = world.gather_slices(&Vec::<f32>::try_from(&before).unwrap()).unwrap();
                assert_ne!(gathered[0], gathered[1], "the shares differ");
                two.stepper.statistics.average(world).unwrap();
                let average: Vec<f32> = gathered[0]
                    .iter()
                    .zip(&gathered[1])
                    .map(|(a, b)| (a + b) / 2.0)
                    .collect();
                assert!((mean() - Tensor::from_slice(&average)).abs().max().double_value(&[]) < 1e-6);
            }
            compare_replicas(world, two.model.state()).unwrap();
            println!("{norm:?}, {local}: the losses on two ranks differ by {difference:.1e}");
            assert_eq!(difference < 1e-4, as_one, "{norm:?}, {local}: {difference}");
        }
    });
}

/// A weight that is not finite makes every loss so: no step is made, nothing changes, and the run ends after as many as
/// allowed, on all ranks alike.
#[test]
fn steps_without_a_finite_loss_are_skipped() {
    on_ranks("steps_without_a_finite_loss_are_skipped", &[1, 2], |world| {
        let options = Options {
            norm: Norm::BatchNorm,
            local: "{device: cpu, max_skipped_steps: 6}",
            ..OPTIONS
        };
        let mut run = Run::new(world, &options);
        let mut parameters = run.model.state().parameters();
        let (whole, kept) = (parameters[0].copy(), parameters[0].detach().copy());
        drop(whole);
        // On one rank alone: the loss is the sum over all.
        if world.rank == 0 {
            no_grad(|| drop(parameters[0].fill_(f64::NAN)));
        }
        let statistics = run
            .model
            .state()
            .named_buffers()
            .map(|(_, buffer)| buffer.copy())
            .collect::<Vec<_>>();
        let before = run.parameters();
        let mut info = run.train(world, 1).unwrap();
        assert_eq!((info.iteration(), info.sums().unwrap()), (4, [0.0, 0.0]));
        assert_eq!(run.stepper.skipped.take_epoch(), 4);
        assert!(
            before.allclose(&run.parameters(), 0.0, 0.0, true),
            "nothing has changed"
        );
        for ((name, now), before) in run.model.state().named_buffers().zip(&statistics) {
            assert!(
                name.ends_with("num_batches_tracked") || *before == *now,
                "{name} has changed"
            );
        }

        // The bad luck ends in time: the count begins anew.
        no_grad(|| parameters[0].copy_(&kept));
        run.train(world, 2).unwrap();
        assert!(relative(&run.parameters(), &before.nan_to_num(0.0, None, None)) > 0.0);
        assert_eq!(run.stepper.skipped.take_epoch(), 0);

        no_grad(|| drop(parameters[0].fill_(f64::INFINITY)));
        run.train(world, 3).unwrap();
        let error = run.train(world, 4).unwrap_err();
        let diverged = error.downcast_ref::<TrainError>();
        assert!(
            matches!(diverged, Some(TrainError::Diverged { steps: 6, .. })),
            "{error}"
        );
    });
}

/// One bit of one parameter on one rank is enough, and the ranks are named.
#[test]
fn replicas_that_differ_are_an_error() {
    const TEST: &str = "replicas_that_differ_are_an_error";
    if is_worker() {
        return worker(|world| {
            let run = Run::new(world, &OPTIONS);
            compare_replicas(world, run.model.state())?;
            if world.rank == 1 {
                let mut parameter = run.model.state().parameters().pop().unwrap().flatten(0, -1).get(0);
                let next = f32::from_bits((parameter.double_value(&[]) as f32).to_bits() ^ 1);
                let _ = no_grad(|| parameter.fill_(f64::from(next)));
            }
            compare_replicas(world, run.model.state())?;
            Ok(0)
        });
    }
    let ended = run(this_test_on(3, TEST));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output());
    let message = ended
        .stderr
        .lines()
        .find(|line| line.contains("no longer hold the same network"));
    let message = message.unwrap_or_else(|| panic!("{}", ended.output()));
    let groups: Vec<&str> = message.split(" | ").collect();
    assert_eq!(groups.len(), 2, "{message}");
    assert!(
        groups[0].contains("rank 0 on") && groups[0].contains("rank 2 on"),
        "{message}"
    );
    assert!(
        groups[1].contains("rank 1 on") && !groups[1].contains("rank 2"),
        "{message}"
    );
    assert_eq!(
        ended.stderr.matches("no longer hold").count(),
        1,
        "told once: {}",
        ended.output()
    );
}
