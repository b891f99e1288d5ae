//! Our checkpoints in Dingo's own hands. Needs a Python with Dingo, which `DINGO_PYTHON` names.

use crate::common;
use crate::workplace::{case, Workplace, COMPLETE, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;
use dingo_spmd::nn::{BuildContext, Mode};
use dingo_spmd::posterior;
use dingo_spmd::settings::ModelSettings;
use std::path::{Path, PathBuf};
use std::process::Command;
use tch::{Kind, Tensor};

/// The python that `DINGO_PYTHON` names.
pub fn python() -> Option<impl Fn() -> Command> {
    let Some(python) = std::env::var_os("DINGO_PYTHON").filter(|python| !python.is_empty()) else {
        common::skipped("set DINGO_PYTHON to a python with dingo-gw==0.10.3 to compare with Dingo");
        return None;
    };
    Some(move || {
        let mut command = Command::new(&python);
        command.env("OMP_NUM_THREADS", "1");
        command
    })
}

/// One of Dingo's own commands, beside its python.
pub fn tool(name: &str) -> Option<impl Fn() -> Command> {
    let python = python()?;
    let tool = Path::new(python().get_program()).with_file_name(name);
    Some(move || {
        let mut command = Command::new(&tool);
        command.env("OMP_NUM_THREADS", "1");
        command
    })
}

/// Dingo at work on a checkpoint.
pub fn check(checkpoint: &Path) -> Option<Command> {
    let mut command = python()?();
    command
        .arg(crate::workplace::in_repository("tests/program/check_with_dingo.py"))
        .arg(checkpoint);
    Some(command)
}

/// A folder for Dingo to train on in.
pub fn train_dir(workplace: &Workplace) -> PathBuf {
    let folder = workplace.path("dingos");
    std::fs::create_dir(&folder).unwrap();
    let local = "{device: cpu, num_workers: 0, runtime_limits: {max_time_per_run: 3600, max_epochs_per_run: 9}, \
                 checkpoint_epochs: 9}";
    std::fs::write(folder.join("local_settings.yaml"), local).unwrap();
    folder
}

/// Mean loss in evaluation mode on the inputs of a case's `network.npz`, as we compute it.
fn evaluation_loss(checkpoint: &Path, inputs: &Path) -> f64 {
    let checkpoint = Checkpoint::load(checkpoint).unwrap();
    let settings = ModelSettings::from_value(checkpoint.model_kwargs).unwrap();
    let model = posterior::build(&settings, None, &BuildContext::default()).unwrap();
    model.state().load(&checkpoint.model_state).unwrap();
    let arrays = Tensor::read_npz(inputs).unwrap();
    let input = |i: usize| {
        let found = arrays.iter().find(|(name, _)| *name == format!("in_{i}"));
        found.map(|(_, tensor)| tensor.shallow_clone())
    };
    let context: Vec<Tensor> = (1..).map_while(input).collect();
    let loss = tch::no_grad(|| model.loss(&input(0).unwrap(), &context, Mode::Eval)).unwrap();
    loss.mean(Kind::Double).double_value(&[])
}

/// The number behind `name: ` in an output.
fn number(output: &str, name: &str) -> f64 {
    let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("{name} is not in {output}"))
        .parse()
        .unwrap()
}

#[test]
fn dingo_computes_the_same_with_our_checkpoints() {
    for (name, workplace) in [("toy", Workplace::toy()), ("npe", Workplace::npe())] {
        workplace.run_to(COMPLETE, 2);
        let inputs = case(name).join("network.npz");
        let Some(mut command) = check(&workplace.latest()) else {
            return;
        };
        command.arg("--inputs").arg(&inputs);
        let ended = common::run(command);
        ended.assert_status(0);
        let (dingos, ours) = (
            number(&ended.stdout, "eval loss"),
            evaluation_loss(&workplace.latest(), &inputs),
        );
        assert!((dingos - ours).abs() <= 1e-4, "{name}: {ours}, Dingo {dingos}");
    }
}

/// From the middle of a stage, with our optimizer and scheduler states.
#[test]
fn dingo_trains_on_from_our_checkpoints() {
    for workplace in [Workplace::toy(), Workplace::npe()] {
        let Some(mut command) = check(&workplace.latest()) else {
            return;
        };
        let workplace = workplace.with("local.runtime_limits", "{max_epochs_per_run: 1}");
        workplace.run_to(STOPPED, 2);
        let folder = train_dir(&workplace);
        command.arg("--resume").arg(&folder);
        let ended = common::run(command);
        ended.assert_status(0);
        assert_eq!(number(&ended.stdout, "epochs trained by Dingo"), 2.0);
        let ours = Checkpoint::load(workplace.latest()).unwrap();
        let dingos = Checkpoint::load(folder.join("model_latest.pt")).unwrap();
        assert_eq!((ours.epoch, dingos.epoch), (1, 3));
        assert!(dingos.iteration > ours.iteration);
        let rates: Vec<f64> = crate::workplace::history(&folder).iter().map(|row| row.lr).collect();
        let initial = workplace.history()[0].lr;
        assert_eq!(rates[0], initial / 2.0, "the scheduler goes on");
    }
}
