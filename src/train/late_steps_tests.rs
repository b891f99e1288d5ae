//! Steps that the device decides on against those that the host decides on. Both run on the host here: what they are made of
//! is there too.

use super::*;
use crate::checkpoint::StateEntry;
use crate::nn::{build_module, BatchNorm1d, BuildContext, Linear, Mode, ModuleState};
use crate::settings::{LocalSettings, Settings, Value};
use crate::spmd::World;
use std::path::Path;

const SAMPLES: i64 = 6;

/// A small network and what trains it.
struct Run {
    layers: (Linear, BatchNorm1d),
    state: ModuleState,
    stepper: Stepper,
}

impl Run {
    /// By Adam with the loss scale of half precision.
    fn new(world: &World, late: bool) -> Run {
        let settings = Settings::load(Path::new("tests/cases/npe/train_settings.yaml")).unwrap();
        let mut stage = settings.train.stages[0].clone();
        stage.automatic_mixed_precision = true;
        stage.amp_dtype = Some(crate::settings::AmpDtype::Fp16);
        let local = LocalSettings::from_value(serde_yaml::from_str::<Value>("{device: cpu}").unwrap()).unwrap();
        let (layers, state) = build_module(&BuildContext::default(), |scope| {
            Ok((
                Linear::new(&scope.child(0), 4, 3)?,
                BatchNorm1d::new(&scope.child(1), 3)?,
            ))
        })
        .unwrap();
        let optimizer = Optimizer::new(&stage.optimizer, state.parameters()).unwrap();
        assert!(optimizer.can_step_late());
        let mut stepper = Stepper::new(world, &state, optimizer, &stage, &local).unwrap();
        assert!(stepper.late.is_none(), "a step on the host is decided there");
        if late {
            let mut late = LateSteps::on(Device::Cpu);
            late.follow(&stepper.precision.scaler);
            stepper.late = Some(late);
        }
        Run { layers, state, stepper }
    }

    /// A step on numbers of its own, with a gradient and a loss of that size, up to its reduction.
    fn reduced(&mut self, step: i64, spoilt: Spoilt) -> Reduced {
        let numbers = Tensor::arange(SAMPLES * 4, (Kind::Float, Device::Cpu)) + 100 * step;
        let x = numbers.sin().view([SAMPLES, 4]);
        self.stepper.begin().unwrap();
        let y = self
            .layers
            .1
            .forward(&self.layers.0.forward(&x).unwrap(), Mode::Train)
            .unwrap();
        let loss = (y * x.narrow(1, 0, 3)).mean(Kind::Float) * if spoilt == Spoilt::Loss { f64::NAN } else { 1.0 };
        self.stepper.reducer.prepare(true).unwrap();
        self.stepper.reducer.set_scalars(&[loss.double_value(&[])]).unwrap();
        self.stepper.backward(&loss).unwrap();
        if spoilt == Spoilt::Gradient {
            let _ = self.stepper.reducer.flat_gradients()[0].get(0).fill_(f64::INFINITY);
        }
        self.stepper.reducer.finish().unwrap()
    }

    /// Everything that a checkpoint would hold of it.
    fn tensors(&self) -> Vec<Tensor> {
        let optimizer = self.stepper.optimizer.state();
        let entries = optimizer.state.values().flat_map(|entries| entries.values());
        let of_optimizer = entries.filter_map(|entry| match entry {
            StateEntry::Tensor(tensor) => Some(tensor.copy()),
            StateEntry::Plain(_) => None,
        });
        let state = self.state.state_dict();
        let of_network = state.values().map(|tensor| tensor.detach().copy());
        of_network.chain(of_optimizer).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoilt {
    Nothing,
    Loss,
    Gradient,
}

#[test]
fn the_device_decides_as_the_host_does() {
    use Spoilt::{Gradient, Loss, Nothing};
    let world = World::alone(|_| 1);
    let (mut host, mut device) = (Run::new(&world, false), Run::new(&world, true));
    let mut unread = None;
    let steps = [Nothing, Gradient, Nothing, Loss, Gradient, Nothing, Nothing];
    for (step, spoilt) in (0..).zip(steps) {
        let reduced = host.reduced(step, spoilt);
        let loss = Received::of(&reduced.scalars, &reduced.of_ranks).unwrap().mean_loss;
        host.stepper.step(&reduced, loss, SAMPLES as u64).unwrap();

        let reduced = device.reduced(step, spoilt);
        let begun = device.stepper.step_late(reduced, SAMPLES as u64).unwrap();
        if let Some(before) = unread.replace(begun) {
            device.stepper.settle(before).unwrap();
        }
        // What the host counts is one step behind; what the network is trained by is not.
        let parameters = |run: &Run| {
            Tensor::cat(
                &run.state
                    .parameters()
                    .iter()
                    .map(|p| p.detach().view(-1))
                    .collect::<Vec<_>>(),
                0,
            )
        };
        assert!(
            parameters(&device).allclose(&parameters(&host), 1e-5, 1e-7, false),
            "step {step}"
        );
    }
    let end = device.stepper.settle(unread.unwrap()).unwrap();
    assert!(end.loss_is_finite && end.samples == SAMPLES as u64);

    for (found, expected) in device.tensors().iter().zip(host.tensors()) {
        assert!(found.allclose(&expected, 1e-5, 1e-7, false), "{found} {expected}");
    }
    assert_eq!(device.stepper.precision.scaler, host.stepper.precision.scaler);
    assert_eq!(device.stepper.precision.scaler.scale(), 65536.0 / 8.0);
    let scale_there = device.stepper.late.as_ref().unwrap().scale().double_value(&[]);
    assert_eq!(scale_there, device.stepper.precision.scaler.scale());
    assert_eq!(device.stepper.skipped.take_epoch(), host.stepper.skipped.take_epoch());
}

#[test]
fn a_run_that_diverges_ends_and_leaves_the_network_as_it_was() {
    let world = World::alone(|_| 1);
    let mut run = Run::new(&world, true);
    let before = run.tensors();
    let mut ended = 0;
    for step in 1.. {
        let reduced = run.reduced(step, Spoilt::Loss);
        let unread = run.stepper.step_late(reduced, SAMPLES as u64).unwrap();
        if run.stepper.settle(unread).is_err() {
            ended = step;
            break;
        }
    }
    assert_eq!(ended, 10, "local.max_skipped_steps");
    let network = run.state.state_dict().len();
    for (found, expected) in run.tensors().iter().zip(&before).take(network) {
        // Batches are counted whether their step is made or not, as on the host.
        if found.kind() == Kind::Float {
            assert_eq!(found, expected);
        }
    }
}
