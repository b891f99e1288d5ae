//! Optimizers and schedulers against PyTorch: `tests/optimizers/make_fixtures.py` wrote what torch 2.11.0 does.

use dingo_spmd::checkpoint::{OptimizerState, ParameterGroup, StateEntry};
use dingo_spmd::settings::{OptimizerSettings, SchedulerSettings, Value};
use dingo_spmd::train::{Optimizer, Scheduler};
use indexmap::IndexMap;
use tch::{Kind, Tensor};

/// Relative to the largest magnitude of a tensor.
const TOLERANCE: f64 = 1e-6;

fn fixture(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/optimizers")
        .join(name);
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_sequence().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(|x| x.as_f64().unwrap()).collect()
}

fn tensor(value: &Value) -> Tensor {
    assert_eq!(value["dtype"], "torch.float32");
    let shape: Vec<i64> = list(&value["shape"]).iter().map(|n| n.as_i64().unwrap()).collect();
    Tensor::from_slice(&numbers(&value["data"]))
        .to_kind(Kind::Float)
        .reshape(shape)
}

fn tensors(value: &Value) -> Vec<Tensor> {
    list(value).iter().map(tensor).collect()
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    assert_eq!(found.kind(), expected.kind(), "{what}");
    let (found, expected) = (found.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let difference = (&found - &expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]);
    assert!(
        difference <= TOLERANCE * scale,
        "{what}: off by {difference}, of {scale}"
    );
}

/// Equal in value, types and order of keys; a whole float is the same as an int, NaN as NaN.
fn assert_same(found: &Value, expected: &Value, what: &str) {
    match (found, expected) {
        (Value::Mapping(found), Value::Mapping(expected)) => {
            let keys = |mapping: &serde_yaml::Mapping| mapping.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(found), keys(expected), "{what}");
            for ((key, found), expected) in found.iter().zip(expected.values()) {
                assert_same(found, expected, &format!("{what}.{}", key.as_str().unwrap()));
            }
        }
        (Value::Sequence(found), Value::Sequence(expected)) => {
            assert_eq!(found.len(), expected.len(), "{what}");
            for (found, expected) in found.iter().zip(expected) {
                assert_same(found, expected, what);
            }
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!(
                found == expected || found.is_nan() && expected.is_nan(),
                "{what}: {found}, not {expected}"
            );
        }
        _ => assert_eq!(found, expected, "{what}"),
    }
}

fn float(kwargs: &Value, key: &str, default: f64) -> f64 {
    kwargs.get(key).map_or(default, |value| value.as_f64().unwrap())
}

fn flag(kwargs: &Value, key: &str) -> bool {
    kwargs.get(key).is_some_and(|value| value.as_bool().unwrap())
}

/// With PyTorch's defaults.
fn optimizer_settings(case: &Value) -> OptimizerSettings {
    let kwargs = &case["kwargs"];
    let lr = float(kwargs, "lr", 1e-3);
    let betas = kwargs
        .get("betas")
        .map_or((0.9, 0.999), |betas| (numbers(betas)[0], numbers(betas)[1]));
    let weight_decay = float(kwargs, "weight_decay", 0.0);
    match case["type"].as_str().unwrap() {
        "adam" => OptimizerSettings::Adam {
            lr,
            betas,
            eps: float(kwargs, "eps", 1e-8),
            weight_decay,
            amsgrad: flag(kwargs, "amsgrad"),
        },
        "adamw" => OptimizerSettings::AdamW {
            lr,
            betas,
            eps: float(kwargs, "eps", 1e-8),
            weight_decay: float(kwargs, "weight_decay", 0.01),
            amsgrad: flag(kwargs, "amsgrad"),
        },
        "sgd" => OptimizerSettings::Sgd {
            lr,
            momentum: float(kwargs, "momentum", 0.0),
            dampening: float(kwargs, "dampening", 0.0),
            weight_decay,
            nesterov: flag(kwargs, "nesterov"),
        },
        "rmsprop" => OptimizerSettings::RmsProp {
            lr,
            alpha: float(kwargs, "alpha", 0.99),
            eps: float(kwargs, "eps", 1e-8),
            weight_decay,
            momentum: float(kwargs, "momentum", 0.0),
            centered: flag(kwargs, "centered"),
        },
        "adagrad" => OptimizerSettings::Adagrad {
            lr,
            lr_decay: float(kwargs, "lr_decay", 0.0),
            weight_decay,
            initial_accumulator_value: float(kwargs, "initial_accumulator_value", 0.0),
            eps: float(kwargs, "eps", 1e-10),
        },
        other => panic!("{other}"),
    }
}

/// With PyTorch's defaults.
fn scheduler_settings(case: &Value) -> SchedulerSettings {
    let kwargs = &case["kwargs"];
    match case["type"].as_str().unwrap() {
        "step" => SchedulerSettings::Step {
            step_size: kwargs["step_size"].as_u64().unwrap(),
            gamma: float(kwargs, "gamma", 0.1),
        },
        "cosine" => SchedulerSettings::Cosine {
            t_max: float(kwargs, "T_max", f64::NAN),
            eta_min: float(kwargs, "eta_min", 0.0),
        },
        "reduce_on_plateau" => SchedulerSettings::ReduceOnPlateau {
            factor: float(kwargs, "factor", 0.1),
            patience: float(kwargs, "patience", 10.0) as u64,
            threshold: float(kwargs, "threshold", 1e-4),
            threshold_relative: kwargs.get("threshold_mode").is_none_or(|mode| mode == "rel"),
            cooldown: float(kwargs, "cooldown", 0.0) as u64,
            min_lr: float(kwargs, "min_lr", 0.0),
            eps: float(kwargs, "eps", 1e-8),
            maximize: kwargs.get("mode").is_some_and(|mode| mode == "max"),
        },
        other => panic!("{other}"),
    }
}

fn saved_state(value: &Value) -> OptimizerState {
    let entry =
        |(name, entry): (&Value, &Value)| (name.as_str().unwrap().to_owned(), StateEntry::Tensor(tensor(entry)));
    let states = value["state"].as_mapping().unwrap().iter();
    let groups = list(&value["param_groups"]).iter().map(|group| {
        let options = group.as_mapping().unwrap().iter().filter(|(key, _)| *key != "params");
        ParameterGroup {
            options: options
                .map(|(key, value)| (key.as_str().unwrap().to_owned(), value.clone()))
                .collect(),
            params: numbers(&group["params"]).iter().map(|&index| index as usize).collect(),
        }
    });
    OptimizerState {
        state: states
            .map(|(index, entries)| {
                let entries: IndexMap<_, _> = entries.as_mapping().unwrap().iter().map(entry).collect();
                (index.as_str().unwrap().parse().unwrap(), entries)
            })
            .collect(),
        param_groups: groups.collect(),
    }
}

/// Keys and their order, shapes, types and values.
fn assert_same_state(found: &OptimizerState, expected: &OptimizerState, what: &str) {
    let indices = |state: &OptimizerState| state.state.keys().copied().collect::<Vec<_>>();
    assert_eq!(indices(found), indices(expected), "{what}");
    for (index, expected) in &expected.state {
        let found = &found.state[index];
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{what}"
        );
        for ((name, found), expected) in found.iter().zip(expected.values()) {
            let (StateEntry::Tensor(found), StateEntry::Tensor(expected)) = (found, expected) else {
                panic!("{what}: {name} is not a tensor");
            };
            assert_close(found, expected, &format!("{what}: {index}.{name}"));
        }
    }
    let group = |state: &OptimizerState| {
        let [group] = state.param_groups.as_slice() else {
            panic!("{what}: one group")
        };
        let options = group
            .options
            .iter()
            .map(|(key, value)| (Value::from(key.as_str()), value.clone()));
        (Value::Mapping(options.collect()), group.params.clone())
    };
    assert_same(&group(found).0, &group(expected).0, what);
    assert_eq!(group(found).1, group(expected).1, "{what}");
}

/// The parameters of a case, and which of them are frozen when.
struct Problem {
    fixture: Value,
    gradients: Vec<Vec<Tensor>>,
}

impl Problem {
    fn new() -> Problem {
        let fixture = fixture("optimizers.yaml");
        let gradients = list(&fixture["gradients"]).iter().map(tensors).collect();
        Problem { fixture, gradients }
    }

    fn middle(&self) -> usize {
        self.fixture["middle"].as_u64().unwrap() as usize
    }

    fn is_frozen(&self, index: usize, step: usize) -> bool {
        let number = |key: &str| self.fixture[key].as_u64().unwrap() as usize;
        index == number("frozen") || index == number("thawed") && step < number("thaw_step")
    }

    /// Puts each step's gradients on the parameters, frozen ones too, and lets the optimizer step.
    fn train(
        &self,
        steps: std::ops::Range<usize>,
        parameters: &[Tensor],
        optimizer: &mut Optimizer,
        mut scheduler: Option<&mut Scheduler>,
    ) {
        for step in steps {
            optimizer.zero_grad().unwrap();
            for (index, (parameter, gradient)) in parameters.iter().zip(&self.gradients[step]).enumerate() {
                let _ = parameter.set_requires_grad(true);
                (parameter * gradient).sum(Kind::Float).backward();
                let _ = parameter.set_requires_grad(!self.is_frozen(index, step));
            }
            optimizer.step().unwrap();
            if let Some(scheduler) = scheduler.as_deref_mut() {
                scheduler.step(optimizer, f64::NAN);
            }
        }
    }

    fn cases(&self) -> impl Iterator<Item = (&Value, String)> {
        let cases = list(&self.fixture["cases"]).iter();
        cases.map(|case| (case, format!("{} {:?}", case["type"].as_str().unwrap(), case["kwargs"])))
    }
}

fn handles(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().map(Tensor::shallow_clone).collect()
}

fn new_optimizer(case: &Value, parameters: &[Tensor]) -> (Optimizer, Option<Scheduler>) {
    let mut optimizer = Optimizer::new(&optimizer_settings(case), handles(parameters)).unwrap();
    let settings = SchedulerSettings::Step {
        step_size: 3,
        gamma: 0.5,
    };
    let scheduler = flag(case, "scheduled").then(|| Scheduler::new(&settings, &mut optimizer));
    (optimizer, scheduler)
}

fn assert_all_close(found: &[Tensor], expected: &Value, what: &str) {
    for (found, expected) in found.iter().zip(tensors(expected)) {
        assert_close(&found.detach(), &expected, what);
    }
}

#[test]
fn optimizers_follow_pytorch() {
    let problem = Problem::new();
    for (case, what) in problem.cases() {
        let parameters = tensors(&problem.fixture["initial"]);
        let (mut optimizer, mut scheduler) = new_optimizer(case, &parameters);
        problem.train(0..problem.middle(), &parameters, &mut optimizer, scheduler.as_mut());
        assert_all_close(&parameters, &case["middle"], &what);
        assert_same_state(&optimizer.state(), &saved_state(&case["middle_state"]), &what);
        problem.train(problem.middle()..8, &parameters, &mut optimizer, scheduler.as_mut());
        assert_all_close(&parameters, &case["final"], &what);
        assert_same_state(&optimizer.state(), &saved_state(&case["final_state"]), &what);
    }
}

#[test]
fn pytorchs_state_is_continued() {
    let problem = Problem::new();
    for (case, what) in problem.cases() {
        let parameters = tensors(&case["middle"]);
        let (mut optimizer, mut scheduler) = new_optimizer(case, &parameters);
        let middle = saved_state(&case["middle_state"]);
        // The file's learning rate and options are what counts.
        optimizer.set_lr(77.0);
        optimizer.load_state(&middle).unwrap();
        assert_same_state(&optimizer.state(), &middle, &what);
        if let Some(scheduler) = &mut scheduler {
            let state = serde_yaml::from_str(
                "{step_size: 3, gamma: 0.5, base_lrs: [0.01], last_epoch: 4, _step_count: 5, _last_lr: [0.005]}",
            );
            scheduler.load_state(&state.unwrap()).unwrap();
        }
        problem.train(problem.middle()..8, &parameters, &mut optimizer, scheduler.as_mut());
        assert_all_close(&parameters, &case["final"], &what);
        assert_same_state(&optimizer.state(), &saved_state(&case["final_state"]), &what);
    }
}

#[test]
fn a_loaded_state_is_a_copy() {
    let problem = Problem::new();
    let (case, what) = problem.cases().next().unwrap();
    let parameters = tensors(&case["middle"]);
    let (mut optimizer, _) = new_optimizer(case, &parameters);
    let saved = saved_state(&case["middle_state"]);
    optimizer.load_state(&saved).unwrap();
    problem.train(4..8, &parameters, &mut optimizer, None);
    assert_same_state(&saved, &saved_state(&case["middle_state"]), &what);
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let problem = Problem::new();
    let case = |name: &str| problem.cases().find(|(case, _)| case["type"] == name).unwrap().0;
    // The optimizer of one type, the state of another after a change, the message.
    type Change = fn(&mut OptimizerState);
    let refused: [(&str, &str, Change, &str); 10] = [
        (
            "adam",
            "sgd",
            |_| (),
            "optimizer_state_dict.param_groups.0.betas: is missing",
        ),
        (
            "adam",
            "adam",
            |s| s.param_groups.clear(),
            "optimizer_state_dict.param_groups: has 0 groups, one is needed",
        ),
        (
            "adam",
            "adam",
            |s| s.param_groups[0].params.truncate(3),
            "optimizer_state_dict.param_groups.0.params: lists 3 parameters, the network has 4",
        ),
        (
            "adam",
            "adam",
            |s| drop(s.param_groups[0].options.insert("lr".into(), "fast".into())),
            "optimizer_state_dict.param_groups.0.lr: fast stands where a number is needed",
        ),
        (
            "adam",
            "adam",
            |s| drop(s.param_groups[0].options.insert("maximize".into(), true.into())),
            "optimizer_state_dict.param_groups.0.maximize: only false is supported",
        ),
        (
            "adam",
            "adam",
            |s| drop(s.state.get_mut(&0).unwrap().shift_remove("exp_avg_sq")),
            "optimizer_state_dict.state.0.exp_avg_sq: is missing",
        ),
        (
            "adam",
            "adam",
            |s| {
                s.state.get_mut(&0).unwrap()["exp_avg"] =
                    StateEntry::Tensor(Tensor::zeros([3, 2], (Kind::Float, tch::Device::Cpu)))
            },
            "optimizer_state_dict.state.0.exp_avg: has shape [3, 2], the parameter has [2, 3]",
        ),
        (
            "adam",
            "adam",
            |s| s.state.get_mut(&0).unwrap()["step"] = StateEntry::Tensor(Tensor::from(-1.5f32)),
            "optimizer_state_dict.state.0.step: is not a count",
        ),
        (
            "adam",
            "adam",
            |s| drop(s.state.insert(9, IndexMap::new())),
            "optimizer_state_dict.state.9: is the state of a parameter that param_groups does not list",
        ),
        (
            "adagrad",
            "adagrad",
            |s| drop(s.state.remove(&1)),
            "optimizer_state_dict.state.1: is missing",
        ),
    ];
    for (ours, theirs, change, message) in refused {
        let (mut optimizer, _) = new_optimizer(case(ours), &tensors(&problem.fixture["initial"]));
        let before = optimizer.state();
        let mut saved = saved_state(&case(theirs)["middle_state"]);
        change(&mut saved);
        assert_eq!(optimizer.load_state(&saved).unwrap_err().to_string(), message);
        assert_same_state(&optimizer.state(), &before, "nothing is changed");
    }
}

#[test]
fn old_and_empty_states_are_read() {
    let problem = Problem::new();
    let case = |name: &str| problem.cases().find(|(case, _)| case["type"] == name).unwrap().0;
    // PyTorch before 1.12: a plain step, fewer options.
    let (mut optimizer, _) = new_optimizer(case("adam"), &tensors(&case("adam")["middle"]));
    let mut saved = saved_state(&case("adam")["middle_state"]);
    saved.state.get_mut(&0).unwrap()["step"] = StateEntry::Plain(4.into());
    saved.param_groups[0]
        .options
        .retain(|key, _| ["lr", "betas", "eps", "weight_decay", "initial_lr"].contains(&key.as_str()));
    optimizer.load_state(&saved).unwrap();
    assert_same_state(
        &optimizer.state(),
        &saved_state(&case("adam")["middle_state"]),
        "old adam",
    );

    // A momentum buffer that is None stands for no update yet.
    let momentum = problem
        .cases()
        .filter(|(case, _)| case["type"] == "sgd")
        .nth(1)
        .unwrap()
        .0;
    let parameters = tensors(&problem.fixture["initial"]);
    let (mut optimizer, _) = new_optimizer(momentum, &parameters);
    let mut saved = saved_state(&momentum["middle_state"]);
    for entries in saved.state.values_mut() {
        entries["momentum_buffer"] = StateEntry::Plain(Value::Null);
    }
    saved.param_groups[0].options.insert("lr".into(), 0.01.into());
    optimizer.load_state(&saved).unwrap();
    problem.train(0..problem.middle(), &parameters, &mut optimizer, None);
    assert_all_close(&parameters, &momentum["middle"], "sgd from an empty buffer");
}

#[test]
fn schedulers_follow_pytorch() {
    let fixture = fixture("schedulers.yaml");
    let losses = numbers(&fixture["losses"]);
    for case in list(&fixture["cases"]) {
        let what = format!("{} {:?}", case["type"].as_str().unwrap(), case["kwargs"]);
        let sgd = serde_yaml::from_str("{type: sgd, kwargs: {lr: 0.001}, scheduled: false}").unwrap();
        let new = || {
            let (mut optimizer, _) = new_optimizer(&sgd, &[]);
            let scheduler = Scheduler::new(&scheduler_settings(case), &mut optimizer);
            (optimizer, scheduler)
        };
        let (mut optimizer, mut scheduler) = new();
        let states = list(&case["states"]);
        let lrs = numbers(&case["lrs"]);
        assert_same(&scheduler.state(), &states[0], &what);
        for (epoch, &loss) in losses.iter().enumerate() {
            // The same step from a scheduler that starts from what PyTorch saved.
            let (mut resumed_optimizer, mut resumed) = new();
            resumed_optimizer.load_state(&optimizer.state()).unwrap();
            resumed.load_state(&states[epoch]).unwrap();
            resumed.step(&mut resumed_optimizer, loss);
            assert_eq!(resumed_optimizer.lr(), lrs[epoch], "{what}, resumed, epoch {epoch}");
            assert_same(&resumed.state(), &states[epoch + 1], &what);

            scheduler.step(&mut optimizer, loss);
            assert_eq!(optimizer.lr(), lrs[epoch], "{what}, epoch {epoch}");
            assert_same(&scheduler.state(), &states[epoch + 1], &what);
        }
        let initial_lr = optimizer.state().param_groups[0].options.get("initial_lr").cloned();
        assert_eq!(initial_lr.unwrap_or(Value::Null), case["initial_lr"], "{what}");
    }
}

#[test]
fn another_schedulers_state_is_refused() {
    let fixture = fixture("schedulers.yaml");
    let cases = list(&fixture["cases"]);
    let case = |name: &str| cases.iter().find(|case| case["type"] == name).unwrap();
    let sgd = serde_yaml::from_str("{type: sgd, kwargs: {lr: 0.001}, scheduled: false}").unwrap();
    for (ours, theirs, message) in [
        ("step", "cosine", "scheduler_state_dict.step_size: is missing"),
        ("cosine", "reduce_on_plateau", "scheduler_state_dict.T_max: is missing"),
        ("reduce_on_plateau", "step", "scheduler_state_dict.min_lrs: is missing"),
    ] {
        let (mut optimizer, _) = new_optimizer(&sgd, &[]);
        let mut scheduler = Scheduler::new(&scheduler_settings(case(ours)), &mut optimizer);
        let error = scheduler.load_state(&list(&case(theirs)["states"])[1]).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let (mut optimizer, _) = new_optimizer(&sgd, &[]);
    let mut scheduler = Scheduler::new(&scheduler_settings(case("step")), &mut optimizer);
    let error = scheduler.load_state(&Value::Null).unwrap_err();
    assert_eq!(error.to_string(), "scheduler_state_dict: is not a dictionary");
}
