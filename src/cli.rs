//! The command line: parsed once, into what the program is to do.

mod tools;

pub use tools::{AppendStageArgs, CheckArgs, ExportArgs, InspectArgs};

use crate::bench::dataset::DatasetRequest;
use crate::bench::{BenchRequest, Variant};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// Trains Dingo's gravitational-wave posterior networks, data-parallel under MPI.
///
/// Start one process per rank with mpirun or srun:  mpirun -np 8 dingo-spmd settings.yaml
///
/// Exit status: 0 all stages are complete; 2 bad settings or input; 3 stopped at a limit or by a signal (SIGTERM,
/// SIGINT, SIGUSR1), with a checkpoint from which the same command goes on; 1 anything else.
#[derive(Debug, Parser)]
#[command(
    name = "dingo-spmd",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure training steps: their time, what they are made of, and what they cost
    Bench(Box<BenchArgs>),
    /// Draw what `bench --csv` has measured: time per epoch over batch size, for each number of ranks
    BenchPlot(BenchPlotArgs),
    /// Write a dataset to measure with, in Dingo's format
    BenchDataset(BenchDatasetArgs),
    /// Measure how many samples per second one thread of the data pipeline makes
    BenchData(BenchDataArgs),
    /// Find everything that a run would be refused for, and say what it would do; starts nothing, needs no mpirun
    Check(CheckArgs),
    /// Say what is in a checkpoint or an HDF5 file (as dingo_ls)
    Inspect(InspectArgs),
    /// Add a stage to the plan in a checkpoint, or replace one (as dingo_append_training_stage)
    AppendStage(AppendStageArgs),
    /// Write a network for inference, without training state: .pt, or Dingo's HDF5 format
    Export(ExportArgs),
    /// Submit a training to a cluster, as jobs that follow one another until it is complete
    Submit(SubmitArgs),
}

impl Cli {
    /// Whether what is asked for is done by ranks together; else MPI is not needed, nor started.
    pub fn needs_ranks(&self) -> bool {
        matches!(self.command, None | Some(Command::Bench(_) | Command::BenchData(_)))
    }
}

#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Settings file, as dingo_train takes it; may be left out when a run is resumed
    #[arg(value_name = "SETTINGS")]
    pub settings: Option<PathBuf>,

    /// The same, as dingo_train spells it
    #[arg(
        long = "settings_file",
        visible_alias = "settings-file",
        value_name = "SETTINGS",
        conflicts_with = "settings"
    )]
    pub settings_file: Option<PathBuf>,

    /// Folder for checkpoints and history; one that holds model_latest.pt is resumed [default: a folder beside the
    /// settings file, named after it]
    #[arg(long, alias = "train_dir", value_name = "DIR")]
    pub train_dir: Option<PathBuf>,

    /// Go on from this checkpoint instead of the train dir's model_latest.pt
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Shell command to run once all stages are complete
    #[arg(long, alias = "exit_command", value_name = "CMD")]
    pub exit_command: Option<String>,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Settings file whose first stage is measured
    pub settings: PathBuf,

    /// Random numbers instead of a dataset
    #[arg(long)]
    pub synthetic: bool,

    /// Frequency bins of synthetic data [default: as settings and dataset say]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub bins: Option<usize>,

    /// Steps to measure
    #[arg(long, value_name = "N", default_value = "100", value_parser = at_least_one)]
    pub steps: usize,

    /// Steps before them that do not count
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub warm_up: usize,

    /// Freeze the first layer [default: as the first stage says]
    #[arg(long, conflicts_with = "no_freeze")]
    pub freeze: bool,

    /// Train the first layer
    #[arg(long)]
    pub no_freeze: bool,

    /// Samples a batch, over all ranks [default: the first stage's]
    #[arg(long, value_name = "N", conflicts_with = "sweep_batch", value_parser = at_least_one)]
    pub batch_size: Option<usize>,

    /// Several batch sizes, one after the other
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = at_least_one)]
    pub sweep_batch: Vec<usize>,

    /// Variants to measure, of as-set, sync (BatchNorm over all ranks), per-rank (by each rank's share), layer-norm, amp
    /// (mixed precision)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub variants: Vec<Variant>,

    /// Samples of the epoch whose time is told
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: u64,

    /// Append a row for each measurement to this table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write all that was measured
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw time per epoch over batch size (SVG), of all rows of the table where one is given
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,

    /// Measure instead what larger sizes cost: flow steps, hidden size, batch, bins, detectors, on synthetic data
    #[arg(long, conflicts_with_all = ["csv", "json", "picture", "sweep_batch"])]
    pub growth: bool,
}

#[derive(Debug, Args)]
pub struct BenchPlotArgs {
    /// Tables that `bench --csv` wrote
    #[arg(required = true, value_name = "CSV")]
    pub tables: Vec<PathBuf>,

    /// The picture (SVG)
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct BenchDatasetArgs {
    /// Where the files go
    pub folder: PathBuf,

    #[arg(long, value_name = "N", default_value_t = DatasetRequest::default().samples)]
    pub samples: usize,

    /// Coefficients that a waveform is compressed to
    #[arg(long, value_name = "N", default_value_t = DatasetRequest::default().size)]
    pub size: usize,

    /// Hz
    #[arg(long, value_name = "F", default_value_t = DatasetRequest::default().f_max)]
    pub f_max: f64,

    /// Hz
    #[arg(long, value_name = "F", default_value_t = DatasetRequest::default().delta_f)]
    pub delta_f: f64,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number above 0 is needed".into()),
        Ok(number) => Ok(number),
    }
}

impl BenchArgs {
    pub fn request(&self) -> BenchRequest {
        BenchRequest {
            settings: self.settings.clone(),
            synthetic: self.synthetic,
            bins: self.bins,
            steps: self.steps,
            warm_up: self.warm_up,
            freeze: (self.freeze || self.no_freeze).then_some(self.freeze),
            batch_sizes: self.batch_size.map_or(self.sweep_batch.clone(), |size| vec![size]),
            variants: self.variants.clone(),
            samples: self.samples,
            csv: self.csv.clone(),
            json: self.json.clone(),
            picture: self.picture.clone(),
        }
    }
}

impl BenchDatasetArgs {
    pub fn request(&self) -> DatasetRequest {
        DatasetRequest {
            samples: self.samples,
            size: self.size,
            f_max: self.f_max,
            delta_f: self.delta_f,
        }
    }
}

#[derive(Debug, Args)]
pub struct BenchDataArgs {
    /// Settings file whose `data` section and first stage are measured
    pub settings: PathBuf,

    /// How long to measure
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,

    /// Samples a batch [default: the first stage's batch_size]
    #[arg(long)]
    pub batch_size: Option<usize>,
}

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Who runs the jobs
    #[arg(value_enum)]
    pub scheduler: SchedulerName,

    /// Folder of the run: it holds train_settings.yaml to begin with, or model_latest.pt to go on from
    #[arg(long, alias = "train_dir", value_name = "DIR")]
    pub train_dir: PathBuf,

    /// Go on from this checkpoint instead of the train dir's model_latest.pt
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Shell command to run once all stages are complete
    #[arg(long, alias = "exit_command", value_name = "CMD")]
    pub exit_command: Option<String>,

    /// Print what would be submitted; write and submit nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SchedulerName {
    Condor,
    Slurm,
}

/// The command line cannot be carried out as it stands.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl TrainArgs {
    /// The settings file under either spelling.
    pub fn settings_path(&self) -> Option<&Path> {
        self.settings.as_deref().or(self.settings_file.as_deref())
    }

    /// Where the run lives: `--train-dir`, else a folder named after the settings file beside it, else the
    /// checkpoint's own folder.
    pub fn resolve_train_dir(&self) -> Result<PathBuf, UsageError> {
        if let Some(folder) = &self.train_dir {
            return Ok(folder.clone());
        }
        if let Some(settings) = self.settings_path() {
            let folder = settings.with_extension("");
            if folder == settings {
                return Err(UsageError(format!(
                    "{}: a settings file without an extension names no train dir: give --train-dir",
                    settings.display()
                )));
            }
            return Ok(folder);
        }
        let parent = self.checkpoint.as_deref().and_then(Path::parent);
        match parent {
            Some(folder) if folder.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(folder) => Ok(folder.to_path_buf()),
            None => Err(UsageError(
                "give a settings file, or --train-dir or --checkpoint of a run to resume".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train_args(arguments: &[&str]) -> TrainArgs {
        Cli::try_parse_from([&["dingo-spmd"], arguments].concat())
            .expect("a valid command line")
            .train
    }

    #[test]
    fn train_dir_defaults_to_a_folder_named_after_the_settings_file() {
        let folder = |arguments: &[&str]| train_args(arguments).resolve_train_dir().map_err(|e| e.to_string());
        assert_eq!(folder(&["runs/npe.yaml"]), Ok("runs/npe".into()));
        assert_eq!(folder(&["npe.yaml", "--train-dir", "there"]), Ok("there".into()));
        assert_eq!(
            folder(&["--checkpoint", "runs/npe/model_010.pt"]),
            Ok("runs/npe".into())
        );
        assert_eq!(folder(&["--checkpoint", "model_010.pt"]), Ok(".".into()));
        assert!(folder(&["npe"]).is_err_and(|e| e.contains("--train-dir")));
        assert!(folder(&["--exit-command", "true"]).is_err_and(|e| e.contains("settings file")));
    }

    #[test]
    fn dingo_train_spellings_are_understood() {
        let arguments = train_args(&["--settings_file", "a.yaml", "--train_dir", "b", "--exit_command", "c"]);
        assert_eq!(arguments.settings_path(), Some(Path::new("a.yaml")));
        assert_eq!(arguments.train_dir.as_deref(), Some(Path::new("b")));
        assert_eq!(arguments.exit_command.as_deref(), Some("c"));
    }

    #[test]
    fn two_settings_files_are_refused() {
        assert!(Cli::try_parse_from(["dingo-spmd", "a.yaml", "--settings_file", "b.yaml"]).is_err());
    }
}
