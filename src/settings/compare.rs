//! Whether a settings file still says what a checkpoint was trained with.

use super::{LocalSettings, TrainSettings, Value};
use std::fmt;

/// A key that does not say the same in two places. `None`: the key is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Dotted, such as `training.stage_0.batch_size`.
    pub key: String,
    pub here: Option<Value>,
    pub there: Option<Value>,
}

impl Difference {
    /// The value in the first place, for messages.
    pub fn shown_here(&self) -> String {
        shown(&self.here)
    }

    /// The value in the second place, for messages.
    pub fn shown_there(&self) -> String {
        shown(&self.there)
    }
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or("absent".into(), super::section::shown)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}: {} here, {} there",
            self.key,
            self.shown_here(),
            self.shown_there()
        )
    }
}

/// Keys that training adds to the settings; that they are missing in a user's file means nothing.
const COMPLETED_KEYS: [&str; 7] = [
    "data.standardization",
    "data.context_parameters",
    "model.posterior_kwargs.input_dim",
    "model.posterior_kwargs.context_dim",
    "model.embedding_kwargs.input_dims",
    "model.embedding_kwargs.added_context",
    "model.embedding_type",
];

impl TrainSettings {
    /// What differs from a checkpoint's settings in `data`, `model` and the stages already begun, when each stage before
    /// the current one ran for all its epochs.
    pub fn differences(&self, checkpoint: &TrainSettings, completed_epochs: u64) -> Vec<Difference> {
        self.differences_with_stages_begun(checkpoint, checkpoint.stages_begun(completed_epochs))
    }

    /// [`TrainSettings::differences`] for a run whose stages may have ended early.
    pub fn differences_with_stages_begun(&self, checkpoint: &TrainSettings, stages_begun: usize) -> Vec<Difference> {
        let mut differences = Vec::new();
        for section in ["data", "model"] {
            compare(
                self.raw.get(section),
                checkpoint.raw.get(section),
                section,
                &mut differences,
            );
        }
        let stage = |settings: &TrainSettings, name: &str| settings.raw.get("training")?.get(name).cloned();
        for n in 0..stages_begun {
            let name = format!("stage_{n}");
            let (here, there) = (stage(self, &name), stage(checkpoint, &name));
            compare(
                here.as_ref(),
                there.as_ref(),
                &format!("training.{name}"),
                &mut differences,
            );
        }
        differences
            .retain(|difference| !(difference.here.is_none() && COMPLETED_KEYS.contains(&difference.key.as_str())));
        differences
    }

    /// How many stages have at least one of `completed_epochs` epochs, when none ended early.
    pub fn stages_begun(&self, completed_epochs: u64) -> usize {
        let mut first_epoch = 0;
        let begins = self.stages.iter().map(|stage| {
            let begin = first_epoch;
            first_epoch += stage.epochs as u64;
            begin
        });
        begins.take_while(|&begin| begin < completed_epochs).count()
    }
}

impl LocalSettings {
    /// What differs from the local settings in a train directory, where a seed may have been recorded.
    pub fn differences(&self, other: &LocalSettings) -> Vec<Difference> {
        let mut differences = Vec::new();
        compare(Some(&self.raw), Some(&other.raw), "local", &mut differences);
        differences.retain(|difference| !(difference.here.is_none() && difference.key == "local.seed"));
        differences
    }
}

/// Collects the keys below `key` that differ. Sections are compared key by key in any order, absent and null are the
/// same except for `norm`, where absent is a default of its own, and numbers are compared as numbers.
fn compare(here: Option<&Value>, there: Option<&Value>, key: &str, differences: &mut Vec<Difference>) {
    if let (Some(Value::Mapping(here)), Some(Value::Mapping(there))) = (here, there) {
        let only_there = there.keys().filter(|key| !here.contains_key(key));
        for name in here.keys().chain(only_there) {
            let path = format!("{key}.{}", name.as_str().unwrap_or_default());
            compare(here.get(name), there.get(name), &path, differences);
        }
        return;
    }
    let null_is_absent = !key.ends_with(".norm");
    let given = |value: Option<&Value>| value.filter(|value| !(null_is_absent && value.is_null())).cloned();
    let (here, there) = (given(here), given(there));
    let same = match (&here, &there) {
        (Some(here), Some(there)) => same_value(here, there),
        (here, there) => here.is_none() && there.is_none(),
    };
    if !same {
        differences.push(Difference {
            key: key.into(),
            here,
            there,
        });
    }
}

fn same_value(here: &Value, there: &Value) -> bool {
    match (here, there) {
        (Value::Number(here), Value::Number(there)) => here == there || here.as_f64() == there.as_f64(),
        (Value::Sequence(here), Value::Sequence(there)) => {
            here.len() == there.len() && here.iter().zip(there).all(|(here, there)| same_value(here, there))
        }
        _ => here == there,
    }
}
