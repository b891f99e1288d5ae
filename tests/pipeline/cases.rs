//! The reference cases.

use crate::SEED;
use dingo_spmd::data::{AsdDataset, DataError, DetectorNetwork, Pipeline, WaveformDataset};
use dingo_spmd::settings::{DataSettings, TrainSettings, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The cases in the repository, and those in the folder that DINGO_CASES names, if all their transforms are supported.
pub fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = ["npe", "toy"].map(|name| Path::new("tests/cases").join(name)).into();
    if let Some(folder) = std::env::var_os("DINGO_CASES") {
        let more = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        cases.extend(more.filter(|case| case.join("transforms.npz").exists() && is_supported(case)));
    }
    cases
}

fn is_supported(case: &Path) -> bool {
    let text = std::fs::read_to_string(case.join("transforms.json")).unwrap();
    ![
        "MultibandedFrequencyDomain",
        "GNPE",
        "ChirpPriorConditioning",
        "Tokenization",
    ]
    .iter()
    .any(|no| text.contains(no))
}

/// The data section and the last stage's ASDs. Cases of any posterior model do: the model section is replaced by one that
/// is supported.
fn data_settings(case: &Path) -> (DataSettings, PathBuf) {
    let read = |case: &Path| -> Value {
        serde_yaml::from_str(&std::fs::read_to_string(case.join("train_settings.yaml")).unwrap()).unwrap()
    };
    let mut settings = read(case);
    settings["model"] = read(Path::new("tests/cases/npe"))["model"].clone();
    settings.as_mapping_mut().unwrap().shift_remove("local");
    let settings = TrainSettings::from_value(settings).unwrap();
    let stage = settings.stages.last().unwrap();
    (settings.data, case.join(&stage.asd_dataset_path))
}

/// Dataset and ASDs as the case's last stage has them, and the data settings as `change` leaves them.
pub fn try_pipeline(
    case: &Path,
    change: impl FnOnce(&mut DataSettings),
) -> Result<(Pipeline, DataSettings), DataError> {
    let (mut data, asd_path) = data_settings(case);
    change(&mut data);
    let dataset = Arc::new(WaveformDataset::open(
        &case.join(&data.waveform_dataset_path),
        &data,
        true,
    )?);
    let names: Vec<String> = DetectorNetwork::new(&data.detectors, data.ref_time)?
        .names()
        .map(String::from)
        .collect();
    let asds = Arc::new(AsdDataset::open(&asd_path, &names, dataset.domain())?);
    Ok((Pipeline::new(dataset, asds, &data, SEED)?, data))
}

/// A case's pipeline as its settings have it.
pub fn pipeline(case: &str) -> Arc<Pipeline> {
    let (pipeline, _) = try_pipeline(&Path::new("tests/cases").join(case), |_| ()).unwrap();
    Arc::new(pipeline)
}
