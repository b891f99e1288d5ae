//! What a cluster is asked for: `local.condor` and `local.slurm`.

use super::keys;
use super::section::{shown, Section, POSITIVE};
use super::{SettingsError, Value};

/// Dingo's `local.condor`. Texts go into HTCondor's submission file as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CondorSettings {
    pub num_cpus: Option<u64>,
    /// MB, or with a unit.
    pub memory_cpus: Option<String>,
    /// What a GPU must have more of, in MB.
    pub memory_gpus: Option<f64>,
    /// KB, or with a unit.
    pub request_disk: Option<String>,
    pub requirements: Option<String>,
    /// For `condor_submit_bid` in the place of `condor_submit`.
    pub bid: Option<String>,
    /// Further lines of the submission file.
    pub extra_submit_lines: Vec<String>,
}

/// `local.slurm`. Texts are what sbatch's options of these names take.
#[derive(Debug, Clone, PartialEq)]
pub struct SlurmSettings {
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    pub time: Option<String>,
    pub constraint: Option<String>,
    /// Of each machine.
    pub memory: Option<String>,
    /// Cores for each rank.
    pub cpus_per_task: Option<u64>,
    /// Seconds before the time limit at which the run is told to stop.
    pub signal_time: u64,
    pub launcher: Option<SlurmLauncher>,
    /// `#SBATCH` lines, and shell commands to run before the training.
    pub extra_lines: Vec<String>,
}

/// What starts the ranks of a Slurm job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlurmLauncher {
    Srun,
    Mpirun,
}

/// Writing a checkpoint and the end of the step under way seldom take longer.
const DEFAULT_SIGNAL_TIME: u64 = 120;

/// sbatch takes no more.
const LONGEST_SIGNAL_TIME: u64 = 65_535;

impl CondorSettings {
    pub(super) fn read(condor: &mut Section) -> Result<Self, SettingsError> {
        condor.check_keys(keys::CONDOR)?;
        Ok(CondorSettings {
            num_cpus: condor.optional_count("num_cpus", 1)?,
            memory_cpus: text_or_number(condor, "memory_cpus", "a number of MB, or text such as 128GB")?,
            memory_gpus: condor.optional_number("memory_gpus", &POSITIVE)?,
            request_disk: text_or_number(condor, "request_disk", "text such as 50GB, or a number of KB")?,
            requirements: line(
                condor,
                "requirements",
                "an expression on one line, as HTCondor reads it",
            )?,
            bid: text_or_number(condor, "bid", "a number")?,
            extra_submit_lines: lines(condor, "extra_submit_lines")?,
        })
    }
}

impl Default for SlurmSettings {
    fn default() -> Self {
        SlurmSettings {
            partition: None,
            account: None,
            qos: None,
            time: None,
            constraint: None,
            memory: None,
            cpus_per_task: None,
            signal_time: DEFAULT_SIGNAL_TIME,
            launcher: None,
            extra_lines: Vec::new(),
        }
    }
}

impl SlurmSettings {
    pub(super) fn read(slurm: &mut Section) -> Result<Self, SettingsError> {
        slurm.check_keys(keys::SLURM)?;
        let launchers = [("srun", Ok(SlurmLauncher::Srun)), ("mpirun", Ok(SlurmLauncher::Mpirun))];
        let is_given = |key: &str| slurm.get(key).is_some_and(|value| !value.is_null());
        let launcher_is_given = is_given("launcher");
        let signal_time = slurm.optional_count("signal_time", 1)?.unwrap_or(DEFAULT_SIGNAL_TIME);
        if signal_time > LONGEST_SIGNAL_TIME {
            let allowed = format!("a whole number of seconds from 1 to {LONGEST_SIGNAL_TIME}");
            return Err(slurm.wrong("signal_time", &allowed));
        }
        Ok(SlurmSettings {
            partition: line(slurm, "partition", "the name of a partition")?,
            account: line(slurm, "account", "the name of an account")?,
            qos: line(slurm, "qos", "the name of a quality of service")?,
            time: read_time(slurm)?,
            constraint: line(
                slurm,
                "constraint",
                "features of nodes, as sbatch --constraint takes them",
            )?,
            memory: text_or_number(slurm, "memory", "text such as 128G, or a number of MB")?,
            cpus_per_task: slurm.optional_count("cpus_per_task", 1)?,
            signal_time,
            launcher: match launcher_is_given {
                true => Some(slurm.choice("launcher", &launchers)?),
                false => None,
            },
            extra_lines: lines(slurm, "extra_lines")?,
        })
    }
}

/// Text, since YAML (1.1, as Dingo reads it) takes `12:00:00` without quotes for a number of seconds, and Slurm takes a number
/// for minutes.
fn read_time(slurm: &Section) -> Result<Option<String>, SettingsError> {
    let allowed =
        "text in quotes as sbatch --time takes it: '12:00:00' (hours, minutes, seconds), '2-00:00:00' (with days), \
                   '90' (minutes)";
    match slurm.get("time") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(time)) if is_time(time) => Ok(Some(time.clone())),
        Some(_) => Err(slurm.wrong("time", allowed)),
    }
}

/// `[days-]hours[:minutes[:seconds]]`, or without days `minutes[:seconds]` and `hours:minutes:seconds`.
fn is_time(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    days.is_none_or(is_number) && parts.len() <= 3 && parts.into_iter().all(is_number)
}

/// Text without a line break: one would end the line of the file that it goes into.
fn line(section: &mut Section, key: &str, allowed: &str) -> Result<Option<String>, SettingsError> {
    match section.optional_text(key, allowed)? {
        Some(text) if text.contains(['\n', '\r']) => {
            Err(section.wrong(key, &format!("{allowed}, without line breaks")))
        }
        text => Ok(text),
    }
}

fn text_or_number(section: &mut Section, key: &str, allowed: &str) -> Result<Option<String>, SettingsError> {
    match section.get(key) {
        Some(number @ Value::Number(_)) => Ok(Some(shown(number))),
        _ => line(section, key, allowed),
    }
}

/// A list of lines of text; none when absent.
fn lines(section: &Section, key: &str) -> Result<Vec<String>, SettingsError> {
    let allowed = "a list of lines of text";
    let one = |value: &Value| match value {
        Value::String(text) if !text.contains(['\n', '\r']) => Ok(text.clone()),
        _ => Err(section.wrong(key, allowed)),
    };
    match section.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Sequence(values)) => values.iter().map(one).collect(),
        Some(_) => Err(section.wrong(key, allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::super::LocalSettings;
    use super::*;

    fn local(text: &str) -> Result<LocalSettings, String> {
        let value = yaml::read(&format!("{{device: cpu, {text}}}")).unwrap().value;
        LocalSettings::from_value(value).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        local(text).expect_err(text)
    }

    #[test]
    fn dingos_condor_block_is_read() {
        let text = "condor: {num_cpus: 32, memory_cpus: 128000, memory_gpus: 8000, request_disk: 50GB, bid: 25, \
                    requirements: 'TARGET.X > 3', extra_submit_lines: ['use template : FullNode']}";
        let condor = CondorSettings {
            num_cpus: Some(32),
            memory_cpus: Some("128000".into()),
            memory_gpus: Some(8000.0),
            request_disk: Some("50GB".into()),
            requirements: Some("TARGET.X > 3".into()),
            bid: Some("25".into()),
            extra_submit_lines: vec!["use template : FullNode".into()],
        };
        assert_eq!(local(text).unwrap().condor, Some(condor));
        assert_eq!(local("num_nodes: 2").unwrap().condor, None);
    }

    #[test]
    fn slurm_has_defaults() {
        let slurm = |text: &str| local(text).unwrap().slurm;
        assert_eq!(slurm("num_nodes: 2"), None);
        assert_eq!(slurm("slurm: {}"), Some(SlurmSettings::default()));
        let read = slurm("slurm: {time: '1-12:00:00', launcher: SRUN, memory: 64000, signal_time: 300}").unwrap();
        assert_eq!(read.time.as_deref(), Some("1-12:00:00"));
        assert_eq!(
            (read.launcher, read.signal_time, read.memory.as_deref()),
            (Some(SlurmLauncher::Srun), 300, Some("64000"))
        );
    }

    #[test]
    fn mistakes_are_told_with_what_is_allowed() {
        // 12:00:00 without quotes is 43200 in YAML 1.1.
        for time in ["12:00:00", "90", "soon", "'1:2:3:4'", "'-5'", "''"] {
            let message = refused(&format!("slurm: {{time: {time}}}"));
            assert!(
                message.starts_with("local.slurm.time: found ") && message.contains("'12:00:00'"),
                "{message}"
            );
        }
        assert!(refused("slurm: {time: 12:00:00}").contains("43200"));
        for (text, parts) in [
            (
                "slurm: {partion: gpu}",
                ["local.slurm.partion: unknown key", "partition"],
            ),
            (
                "slurm: {launcher: mpiexec}",
                ["local.slurm.launcher: found 'mpiexec'", "one of srun, mpirun"],
            ),
            (
                "slurm: {signal_time: 0}",
                ["local.slurm.signal_time: found 0", "at least 1"],
            ),
            (
                "slurm: {signal_time: 70000}",
                ["local.slurm.signal_time: found 70000", "65535"],
            ),
            (
                "slurm: {extra_lines: '#SBATCH --exclusive'}",
                ["local.slurm.extra_lines", "a list of lines"],
            ),
            (
                "slurm: {partition: \"a\\nb\"}",
                ["local.slurm.partition", "line breaks"],
            ),
            ("num_nodes: 0", ["local.num_nodes: found 0", "at least 1"]),
            (
                "condor: {num_cpus: all}",
                ["local.condor.num_cpus: found 'all'", "at least 1"],
            ),
            (
                "condor: {memory_gpus: lots}",
                ["local.condor.memory_gpus: found 'lots'", "above 0"],
            ),
            (
                "condor: {extra_submit_lines: [1]}",
                ["local.condor.extra_submit_lines", "a list of lines"],
            ),
        ] {
            let message = refused(text);
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
