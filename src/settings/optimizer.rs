//! Optimizer and scheduler of a stage: PyTorch's keyword names, defaults and ranges.

use super::keys;
use super::section::{Section, ANY_NUMBER, BELOW_1, BETWEEN_0_AND_1, NOT_NEGATIVE, POSITIVE};
use super::{SettingsError, Value};

#[derive(Debug, Clone, PartialEq)]
pub enum OptimizerSettings {
    Adam {
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        amsgrad: bool,
    },
    AdamW {
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        amsgrad: bool,
    },
    Sgd {
        lr: f64,
        momentum: f64,
        dampening: f64,
        weight_decay: f64,
        nesterov: bool,
    },
    RmsProp {
        lr: f64,
        alpha: f64,
        eps: f64,
        weight_decay: f64,
        momentum: f64,
        centered: bool,
    },
    Adagrad {
        lr: f64,
        lr_decay: f64,
        weight_decay: f64,
        initial_accumulator_value: f64,
        eps: f64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum SchedulerSettings {
    Step {
        step_size: u64,
        gamma: f64,
    },
    Cosine {
        t_max: f64,
        eta_min: f64,
    },
    /// Other fields: PyTorch's ReduceLROnPlateau.
    ReduceOnPlateau {
        factor: f64,
        patience: u64,
        threshold: f64,
        threshold_relative: bool,
        cooldown: u64,
        min_lr: f64,
        eps: f64,
        maximize: bool,
    },
}

#[derive(Clone, Copy)]
enum OptimizerType {
    Adam,
    AdamW,
    Sgd,
    RmsProp,
    Adagrad,
}

impl OptimizerSettings {
    pub(super) fn read(mut optimizer: Section) -> Result<Self, SettingsError> {
        let optimizer_type = optimizer.choice(
            "type",
            &[
                ("adam", Ok(OptimizerType::Adam)),
                ("adamw", Ok(OptimizerType::AdamW)),
                ("sgd", Ok(OptimizerType::Sgd)),
                ("rmsprop", Ok(OptimizerType::RmsProp)),
                ("adagrad", Ok(OptimizerType::Adagrad)),
                ("lbfgs", Err("it evaluates the loss several times per step")),
            ],
        )?;
        match optimizer_type {
            OptimizerType::Adam => Self::read_adam(optimizer),
            OptimizerType::AdamW => Self::read_adamw(optimizer),
            OptimizerType::Sgd => Self::read_sgd(optimizer),
            OptimizerType::RmsProp => Self::read_rmsprop(optimizer),
            OptimizerType::Adagrad => Self::read_adagrad(optimizer),
        }
    }

    fn read_adam(mut adam: Section) -> Result<Self, SettingsError> {
        adam.check_keys(keys::ADAM)?;
        Ok(OptimizerSettings::Adam {
            lr: adam.number_or("lr", 1e-3, &NOT_NEGATIVE)?,
            betas: adam.pair_or("betas", (0.9, 0.999), &BELOW_1)?,
            eps: adam.number_or("eps", 1e-8, &NOT_NEGATIVE)?,
            weight_decay: adam.number_or("weight_decay", 0.0, &NOT_NEGATIVE)?,
            amsgrad: adam.flag_or("amsgrad", false)?,
        })
    }

    fn read_adamw(mut adamw: Section) -> Result<Self, SettingsError> {
        adamw.check_keys(keys::ADAMW)?;
        Ok(OptimizerSettings::AdamW {
            lr: adamw.number_or("lr", 1e-3, &NOT_NEGATIVE)?,
            betas: adamw.pair_or("betas", (0.9, 0.999), &BELOW_1)?,
            eps: adamw.number_or("eps", 1e-8, &NOT_NEGATIVE)?,
            weight_decay: adamw.number_or("weight_decay", 1e-2, &NOT_NEGATIVE)?,
            amsgrad: adamw.flag_or("amsgrad", false)?,
        })
    }

    fn read_sgd(mut sgd: Section) -> Result<Self, SettingsError> {
        sgd.check_keys(keys::SGD)?;
        let lr = sgd.number_or("lr", 1e-3, &NOT_NEGATIVE)?;
        let momentum = sgd.number_or("momentum", 0.0, &NOT_NEGATIVE)?;
        let dampening = sgd.number_or("dampening", 0.0, &ANY_NUMBER)?;
        let weight_decay = sgd.number_or("weight_decay", 0.0, &NOT_NEGATIVE)?;
        let nesterov = sgd.flag_or("nesterov", false)?;
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let allowed =
                format!("false, or momentum above 0 and dampening 0 (momentum is {momentum}, dampening {dampening})");
            return Err(sgd.wrong("nesterov", &allowed));
        }
        Ok(OptimizerSettings::Sgd {
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
        })
    }

    fn read_rmsprop(mut rmsprop: Section) -> Result<Self, SettingsError> {
        rmsprop.check_keys(keys::RMSPROP)?;
        Ok(OptimizerSettings::RmsProp {
            lr: rmsprop.number_or("lr", 1e-2, &NOT_NEGATIVE)?,
            alpha: rmsprop.number_or("alpha", 0.99, &NOT_NEGATIVE)?,
            eps: rmsprop.number_or("eps", 1e-8, &NOT_NEGATIVE)?,
            weight_decay: rmsprop.number_or("weight_decay", 0.0, &NOT_NEGATIVE)?,
            momentum: rmsprop.number_or("momentum", 0.0, &NOT_NEGATIVE)?,
            centered: rmsprop.flag_or("centered", false)?,
        })
    }

    fn read_adagrad(mut adagrad: Section) -> Result<Self, SettingsError> {
        adagrad.check_keys(keys::ADAGRAD)?;
        Ok(OptimizerSettings::Adagrad {
            lr: adagrad.number_or("lr", 1e-2, &NOT_NEGATIVE)?,
            lr_decay: adagrad.number_or("lr_decay", 0.0, &NOT_NEGATIVE)?,
            weight_decay: adagrad.number_or("weight_decay", 0.0, &NOT_NEGATIVE)?,
            initial_accumulator_value: adagrad.number_or("initial_accumulator_value", 0.0, &NOT_NEGATIVE)?,
            eps: adagrad.number_or("eps", 1e-10, &NOT_NEGATIVE)?,
        })
    }
}

#[derive(Clone, Copy)]
enum SchedulerType {
    Step,
    Cosine,
    ReduceOnPlateau,
}

impl SchedulerSettings {
    pub(super) fn read(mut scheduler: Section) -> Result<Self, SettingsError> {
        let scheduler_type = scheduler.choice(
            "type",
            &[
                ("step", Ok(SchedulerType::Step)),
                ("cosine", Ok(SchedulerType::Cosine)),
                ("reduce_on_plateau", Ok(SchedulerType::ReduceOnPlateau)),
            ],
        )?;
        match scheduler_type {
            SchedulerType::Step => {
                scheduler.check_keys(keys::STEP)?;
                Ok(SchedulerSettings::Step {
                    step_size: scheduler.count("step_size", 1)?,
                    gamma: scheduler.number_or("gamma", 0.1, &NOT_NEGATIVE)?,
                })
            }
            SchedulerType::Cosine => {
                scheduler.check_keys(keys::COSINE)?;
                Ok(SchedulerSettings::Cosine {
                    t_max: scheduler.number("T_max", &POSITIVE)?,
                    eta_min: scheduler.number_or("eta_min", 0.0, &ANY_NUMBER)?,
                })
            }
            SchedulerType::ReduceOnPlateau => Self::read_reduce_on_plateau(scheduler),
        }
    }

    fn read_reduce_on_plateau(mut plateau: Section) -> Result<Self, SettingsError> {
        plateau.check_keys(keys::REDUCE_ON_PLATEAU)?;
        Ok(SchedulerSettings::ReduceOnPlateau {
            factor: plateau.number_or("factor", 0.1, &BETWEEN_0_AND_1)?,
            patience: plateau.count_or("patience", 10, 0)?,
            threshold: plateau.number_or("threshold", 1e-4, &ANY_NUMBER)?,
            threshold_relative: either(&mut plateau, "threshold_mode", "rel", "abs")?,
            cooldown: plateau.count_or("cooldown", 0, 0)?,
            min_lr: read_min_lr(&mut plateau)?,
            eps: plateau.number_or("eps", 1e-8, &NOT_NEGATIVE)?,
            maximize: !either(&mut plateau, "mode", "min", "max")?,
        })
    }
}

/// Whether `key` holds the first, default, of two words.
fn either(section: &mut Section, key: &str, first: &str, second: &str) -> Result<bool, SettingsError> {
    match section.get(key) {
        None => Ok(true),
        Some(_) => section.choice(key, &[(first, Ok(true)), (second, Ok(false))]),
    }
}

/// A number, or a list with one number per parameter group, of which there is one.
fn read_min_lr(plateau: &mut Section) -> Result<f64, SettingsError> {
    match plateau.get("min_lr") {
        Some(Value::Sequence(values)) => match values.as_slice() {
            [only] if only.as_f64().is_some_and(|x| x >= 0.0) => Ok(only.as_f64().unwrap_or_default()),
            _ => Err(plateau.wrong("min_lr", "a number that is at least 0, or a list of one such number")),
        },
        _ => plateau.number_or("min_lr", 0.0, &NOT_NEGATIVE),
    }
}
