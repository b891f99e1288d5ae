//! Settings files as users write them.

mod bad_input;
mod changes;
mod log_lines;
mod values;

use dingo_spmd::settings::yaml;
use dingo_spmd::settings::{Settings, SettingsError, TrainSettings, Value};
use std::path::{Path, PathBuf};

const NPE: &str = "tests/cases/npe/train_settings.yaml";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    let path = in_repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn npe() -> TrainSettings {
    Settings::load(&in_repository(NPE)).unwrap().train
}

/// The tree of the npe case, with `yaml` in the place of `key`; an empty `yaml` removes the key.
fn changed(key: &str, yaml: &str) -> Value {
    let mut tree = yaml::read(&text_of(NPE)).unwrap().value;
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut at = &mut tree;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        at = &mut at[part];
    }
    let at = at.as_mapping_mut().unwrap_or_else(|| panic!("{section} is no section"));
    if yaml.is_empty() {
        assert!(at.shift_remove(name).is_some(), "{key} is not there");
    } else {
        at.insert(name.into(), yaml::read(yaml).unwrap().value);
    }
    tree
}

fn parse(tree: &Value) -> Result<Settings, SettingsError> {
    Settings::parse(&yaml::write(tree), "my.yaml")
}

fn with(key: &str, yaml: &str) -> Settings {
    parse(&changed(key, yaml)).unwrap_or_else(|error| panic!("{key} = {yaml}: {error}"))
}

/// The message of the error that `yaml` in the place of `key` causes.
fn message(key: &str, yaml: &str) -> String {
    match parse(&changed(key, yaml)) {
        Ok(_) => panic!("{key} = {yaml} was accepted"),
        Err(error) => error.to_string(),
    }
}
