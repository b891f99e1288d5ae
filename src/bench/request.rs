//! What is to be measured.

use crate::settings::{LocalSettings, Norm, StageSettings, TrainSettings};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A request, as the command line gives it.
#[derive(Debug, Clone)]
pub struct BenchRequest {
    pub settings: PathBuf,
    /// Random numbers for data: no file is read.
    pub synthetic: bool,
    /// Frequency bins of synthetic data, where the settings do not say.
    pub bins: Option<usize>,
    /// Steps that count.
    pub steps: usize,
    /// Steps before them that do not.
    pub warm_up: usize,
    /// Whether the first layer is frozen; else as the first stage says.
    pub freeze: Option<bool>,
    /// Over all ranks; none is that of the first stage.
    pub batch_sizes: Vec<usize>,
    /// None is what the settings say.
    pub variants: Vec<Variant>,
    /// Of the epoch whose time is told.
    pub samples: u64,
    /// Rows are appended.
    pub csv: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub picture: Option<PathBuf>,
}

impl BenchRequest {
    /// All batch sizes with all variants. `batch_size`: where the request names none.
    pub fn configurations(&self, batch_size: usize) -> Vec<Configuration> {
        let sizes = if self.batch_sizes.is_empty() {
            vec![batch_size]
        } else {
            self.batch_sizes.clone()
        };
        let variants = if self.variants.is_empty() {
            vec![Variant::AsSet]
        } else {
            self.variants.clone()
        };
        let of_size = |batch_size: usize| {
            let freeze = self.freeze;
            let of_variant = move |&variant: &Variant| Configuration {
                variant,
                batch_size,
                freeze,
            };
            variants.iter().map(of_variant).collect::<Vec<_>>()
        };
        sizes.into_iter().flat_map(of_size).collect()
    }
}

/// One thing to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    pub variant: Variant,
    /// Over all ranks.
    pub batch_size: usize,
    pub freeze: Option<bool>,
}

/// How the network normalizes, or computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum Variant {
    /// As the settings say.
    AsSet,
    /// BatchNorm over the whole batch of all ranks.
    Sync,
    /// BatchNorm over each rank's share.
    PerRank,
    LayerNorm,
    /// Mixed precision.
    Amp,
}

impl Variant {
    const ALL: [Variant; 5] = [
        Variant::AsSet,
        Variant::Sync,
        Variant::PerRank,
        Variant::LayerNorm,
        Variant::Amp,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Variant::AsSet => "as-set",
            Variant::Sync => "sync",
            Variant::PerRank => "per-rank",
            Variant::LayerNorm => "layer-norm",
            Variant::Amp => "amp",
        }
    }

    fn apply(self, settings: &mut TrainSettings, local: &mut LocalSettings) {
        let mut normalize_by = |norm: Norm| {
            settings.model.embedding.norm = norm;
            settings.model.posterior.base_transform.norm = norm;
        };
        match self {
            Variant::AsSet => {}
            Variant::Sync | Variant::PerRank => {
                normalize_by(Norm::BatchNorm);
                local.sync_batch_norm = self == Variant::Sync;
            }
            Variant::LayerNorm => normalize_by(Norm::LayerNorm),
            Variant::Amp => settings.stages[0].automatic_mixed_precision = true,
        }
    }
}

impl From<Variant> for &'static str {
    fn from(variant: Variant) -> &'static str {
        variant.name()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let known = Variant::ALL.into_iter().find(|variant| variant.name() == text);
        known.ok_or_else(|| match text {
            "graph" => "CUDA graphs need a GPU, and GPUs are not supported yet".into(),
            _ => format!(
                "there is no such variant; known are {}",
                Variant::ALL.map(Variant::name).join(", ")
            ),
        })
    }
}

impl Configuration {
    /// Puts itself in the place of what the settings say of the first stage, the only one measured.
    pub fn apply(&self, settings: &mut TrainSettings, local: &mut LocalSettings) {
        self.variant.apply(settings, local);
        let stage: &mut StageSettings = &mut settings.stages[0];
        stage.batch_size = self.batch_size;
        stage.freeze_rb_layer = self.freeze.or(stage.freeze_rb_layer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_known_by_their_names() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        assert!("batch-norm"
            .parse::<Variant>()
            .is_err_and(|error| error.contains("per-rank, layer-norm")));
        assert!("graph".parse::<Variant>().is_err_and(|error| error.contains("GPU")));
    }
}
