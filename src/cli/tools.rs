//! Arguments of the commands that work on files, without ranks.

use super::TrainArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The arguments that the run would be started with
    #[command(flatten)]
    pub train: TrainArgs,

    /// Number of ranks that the run would be started on [default: local.num_gpus]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ranks: Option<u64>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A .pt checkpoint, or an HDF5 file: waveforms, ASDs, an SVD basis, a model
    pub file: PathBuf,

    /// Also list every tensor of the network
    #[arg(long)]
    pub tensors: bool,
}

#[derive(Debug, Args)]
pub struct AppendStageArgs {
    /// Checkpoint of the run
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,

    /// YAML file with the settings of one stage
    #[arg(long, alias = "stage_settings_file", value_name = "FILE")]
    pub stage_settings_file: PathBuf,

    /// Where the checkpoint with the new plan is written; may be the checkpoint itself
    #[arg(long, alias = "out_file", value_name = "FILE")]
    pub out_file: PathBuf,

    /// Replace the stage of this number instead
    #[arg(long, value_name = "N")]
    pub replace: Option<usize>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Checkpoint, of this program or of Dingo
    pub checkpoint: PathBuf,

    /// Where the model is written: .pt without training state, or .hdf5 as dingo_pt_to_hdf5 writes it
    pub out_file: PathBuf,

    /// Put _vN into the name of the file, as dingo_pt_to_hdf5 does
    #[arg(short = 'n', long, alias = "model_version_number", value_name = "N")]
    pub model_version_number: Option<u64>,
}
