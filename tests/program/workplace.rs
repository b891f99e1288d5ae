//! A folder of its own for a run of the program, with settings derived from those of a reference case.

use crate::common::{self, Ended};
use dingo_spmd::checkpoint::Checkpoint;
use dingo_spmd::settings::{yaml, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Exit statuses as the program documents them.
pub const COMPLETE: i32 = 0;
pub const FAILED: i32 = 1;
pub const BAD_INPUT: i32 = 2;
pub const STOPPED: i32 = 3;

/// The folder is removed with this value.
pub struct Workplace {
    folder: TempDir,
    settings: Value,
}

/// A row of `history.txt`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub epoch: u64,
    pub train_loss: f64,
    pub test_loss: f64,
    pub lr: f64,
}

pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn case(name: &str) -> PathBuf {
    in_repository("tests/cases").join(name)
}

impl Workplace {
    /// The settings of case `toy` with a seed: stages of 2 and 1 epochs, less than a second of training.
    pub fn toy() -> Workplace {
        Workplace::of_case("toy")
    }

    /// The same of case `npe`.
    pub fn npe() -> Workplace {
        Workplace::of_case("npe")
    }

    fn of_case(name: &str) -> Workplace {
        let mut workplace = Workplace::of_file(&case(name).join("train_settings.yaml"));
        for key in [
            "data.waveform_dataset_path",
            "training.stage_0.asd_dataset_path",
            "training.stage_1.asd_dataset_path",
        ] {
            let path = case(name).join(workplace.get(key).as_str().expect("a path"));
            workplace.set(key, path.to_str().expect("UTF-8"));
        }
        workplace.set("local.seed", "1");
        workplace
    }

    /// Case `toy` with BatchNorm in all layers.
    pub fn toy_with_batch_norm() -> Workplace {
        Workplace::toy()
            .with("model.embedding_kwargs.batch_norm", "true")
            .with("model.posterior_kwargs.base_transform_kwargs.batch_norm", "true")
    }

    /// The settings of any file, as they are.
    pub fn of_file(path: &Path) -> Workplace {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Workplace {
            folder: tempfile::tempdir().expect("a temporary folder"),
            settings: yaml::read(&text).expect("YAML").value,
        }
    }

    /// Puts `yaml` in the place of a dotted key; empty, it removes the key.
    pub fn set(&mut self, key: &str, yaml: &str) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut at = &mut self.settings;
        for part in section.split('.').filter(|part| !part.is_empty()) {
            at = &mut at[part];
        }
        let at = at.as_mapping_mut().unwrap_or_else(|| panic!("{section} is no section"));
        if yaml.is_empty() {
            at.shift_remove(name).unwrap_or_else(|| panic!("{key} is not there"));
        } else {
            at.insert(name.into(), yaml::read(yaml).expect("YAML").value);
        }
    }

    /// As [`Workplace::set`], for a chain of calls.
    pub fn with(mut self, key: &str, yaml: &str) -> Workplace {
        self.set(key, yaml);
        self
    }

    pub fn get(&self, key: &str) -> &Value {
        key.split('.').fold(&self.settings, |at, part| &at[part])
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a copy of the file that `key` names into the folder, and its path in the place of the key.
    pub fn copy_file_of(&mut self, key: &str) -> PathBuf {
        let original = PathBuf::from(self.get(key).as_str().expect("a path"));
        let copy = self.path(original.file_name().expect("a file").to_str().expect("UTF-8"));
        std::fs::copy(&original, &copy).expect("a copy");
        self.set(key, copy.to_str().expect("UTF-8"));
        copy
    }

    pub fn settings_file(&self) -> PathBuf {
        self.path("run.yaml")
    }

    pub fn write_settings(&self) {
        std::fs::write(self.settings_file(), yaml::write(&self.settings)).expect("settings can be written");
    }

    /// Where the program puts the run when not told otherwise.
    pub fn train_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub fn latest(&self) -> PathBuf {
        self.train_dir().join("model_latest.pt")
    }

    /// The program on the settings as they are now, without mpirun for one rank.
    pub fn command(&self, ranks: usize) -> Command {
        self.write_settings();
        let mut command = program(ranks);
        command.arg(self.settings_file());
        command
    }

    pub fn run(&self, ranks: usize) -> Ended {
        common::run(self.command(ranks))
    }

    /// Runs and expects this exit status.
    #[track_caller]
    pub fn run_to(&self, status: i32, ranks: usize) -> Ended {
        let ended = self.run(ranks);
        ended.assert_status(status);
        ended
    }

    pub fn history(&self) -> Vec<Row> {
        history(&self.train_dir())
    }

    /// Sorted names of what is in the train dir.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.train_dir()).expect("a train dir");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// What `check` says of this run.
    pub fn check(&self, ranks: usize) -> Ended {
        self.write_settings();
        let mut command = check(ranks);
        command.arg(self.settings_file());
        common::run(command)
    }

    /// Runs on bad input: status 2, one message with these parts, and no train dir. `check` says the same without ranks.
    #[track_caller]
    pub fn assert_refused(&self, ranks: usize, parts: &[&str]) -> Ended {
        let checked = self.check(ranks);
        checked.assert_refused(parts);
        let ended = self.run(ranks);
        ended.assert_refused(parts);
        assert_eq!(error_line(&checked), error_line(&ended), "check and the run itself");
        assert!(!self.train_dir().exists(), "a train dir was made: {:?}", self.files());
        ended
    }
}

/// The program, without mpirun for one rank; arguments are to be added.
pub fn program(ranks: usize) -> Command {
    let binary = env!("CARGO_BIN_EXE_dingo-spmd");
    let mut command = match ranks {
        1 => Command::new(binary),
        _ => {
            let mut command = common::mpirun(ranks);
            command.arg(binary);
            command
        }
    };
    command.env("OMP_NUM_THREADS", "1").env_remove("RUST_LOG");
    command
}

/// `check` for this many ranks, where there is no mpirun; the arguments of the run are to be added.
pub fn check(ranks: usize) -> Command {
    let mut command = program(1);
    command
        .args(["check", "--ranks", &ranks.to_string()])
        .env("PATH", "/nowhere");
    command
}

/// The one line with the error, which ranks put their names into where not all of them have found it.
fn error_line(ended: &Ended) -> &str {
    ended
        .stderr
        .lines()
        .find(|line| line.starts_with("Error: "))
        .unwrap_or_default()
}

pub fn history(train_dir: &Path) -> Vec<Row> {
    let path = train_dir.join("history.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let row = |line: &str| {
        let numbers: Vec<f64> = line
            .split('\t')
            .map(|number| number.parse().expect("a number"))
            .collect();
        match numbers[..] {
            [epoch, train_loss, test_loss, lr] => Row {
                epoch: epoch as u64,
                train_loss,
                test_loss,
                lr,
            },
            _ => panic!("{line:?} in {}", path.display()),
        }
    };
    text.lines().map(row).collect()
}

/// The bytes of all parameters and buffers of a checkpoint.
pub fn parameters(path: &Path) -> Vec<(String, Vec<u8>)> {
    let checkpoint = Checkpoint::load(path).expect("a checkpoint");
    let bytes = |tensor: &tch::Tensor| {
        let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
        tensor.copy_data_u8(&mut bytes, tensor.numel());
        bytes
    };
    let state = checkpoint.model_state.iter();
    state.map(|(name, tensor)| (name.clone(), bytes(tensor))).collect()
}

impl Ended {
    #[track_caller]
    pub fn assert_status(&self, status: i32) {
        assert_eq!(self.status.code(), Some(status), "{}", self.output());
    }

    #[track_caller]
    pub fn assert_says(&self, part: &str) {
        let said = self.stdout.contains(part) || self.stderr.contains(part);
        assert!(said, "{part:?} is not in: {}", self.output());
    }

    /// Bad input was told, once, with these parts.
    #[track_caller]
    pub fn assert_refused(&self, parts: &[&str]) {
        self.assert_status(BAD_INPUT);
        self.assert_error(parts);
    }

    /// One error was told, with these parts.
    #[track_caller]
    pub fn assert_error(&self, parts: &[&str]) {
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("Error: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.output());
        for part in parts {
            assert!(errors[0].contains(part), "{part:?} is not in: {}", errors[0]);
        }
    }
}
