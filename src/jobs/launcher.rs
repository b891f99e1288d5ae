//! What starts the ranks of a Slurm job: srun, where Slurm speaks the protocol that the MPI was built for, else mpirun.

use crate::settings::{SettingsError, SlurmLauncher};
use crate::spmd;
use std::process::Command;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// With the type of MPI for its option `--mpi`.
    Srun {
        mpi_type: String,
    },
    Mpirun,
}

impl Launcher {
    /// `wanted`, else what fits this program's MPI and this machine's Slurm.
    ///
    /// # Errors
    /// `srun` is wanted, but no type of MPI that Slurm has fits.
    pub fn choose(wanted: Option<SlurmLauncher>) -> Result<Launcher, SettingsError> {
        if wanted == Some(SlurmLauncher::Mpirun) {
            return Ok(Launcher::Mpirun);
        }
        let library = spmd::mpi_library();
        let offered = slurms_mpi_types();
        match (fitting(&library, &offered), wanted) {
            (Some(mpi_type), _) => Ok(Launcher::Srun {
                mpi_type: mpi_type.into(),
            }),
            (None, None) => Ok(Launcher::Mpirun),
            (None, Some(_)) => {
                let offered = match offered.is_empty() {
                    true => "nothing".into(),
                    false => offered.join(", "),
                };
                let message = format!(
                    "found 'srun', but Slurm here offers {offered} (srun --mpi=list), none of which starts {}: use mpirun",
                    library.lines().next().unwrap_or("this MPI")
                );
                Err(SettingsError::key("local.slurm.launcher", message))
            }
        }
    }

    /// For the script: the launcher's name, and srun's type of MPI.
    pub(super) fn words(&self) -> (&str, &str) {
        match self {
            Launcher::Srun { mpi_type } => ("srun", mpi_type),
            Launcher::Mpirun => ("mpirun", ""),
        }
    }
}

/// Of the types that Slurm offers, the one that an MPI of this name is built for. Intel's wants a variable of its own for
/// that, and others are not known: they are left to mpirun.
fn fitting(library: &str, offered: &[String]) -> Option<&'static str> {
    let mpi_type = match library {
        open_mpi if open_mpi.starts_with("Open MPI") => "pmix",
        mpich if mpich.starts_with("MPICH") => "pmi2",
        _ => return None,
    };
    offered.iter().any(|offered| offered == mpi_type).then_some(mpi_type)
}

/// What `srun --mpi=list` names; nothing where there is no srun.
fn slurms_mpi_types() -> Vec<String> {
    let Ok(output) = Command::new("srun").arg("--mpi=list").output() else {
        return Vec::new();
    };
    // Versions of Slurm differ in whether they answer on standard output or standard error, and in what they put around it.
    let text = [output.stdout, output.stderr].concat();
    mpi_types(&String::from_utf8_lossy(&text))
}

fn mpi_types(answer: &str) -> Vec<String> {
    let words = |line: &str| match line.contains(':') || line.contains("...") {
        true => Vec::new(),
        false => line.split_whitespace().map(String::from).collect(),
    };
    answer.lines().flat_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions \
                        available: pmix_v4\n";

    #[test]
    fn srun_is_taken_where_it_fits_the_mpi() {
        let offered = mpi_types(LIST);
        assert_eq!(offered, ["pmix", "none", "cray_shasta", "pmi2"]);
        assert_eq!(
            fitting("Open MPI v4.1.4, package: Debian OpenMPI", &offered),
            Some("pmix")
        );
        assert_eq!(fitting("MPICH Version:\t4.0.2", &offered), Some("pmi2"));
        assert_eq!(fitting("Intel(R) MPI Library 2021.9", &offered), None);
        assert_eq!(fitting("Open MPI v4.1.4", &["none".into(), "pmi2".into()]), None);
        assert_eq!(mpi_types("srun: error: cannot find controller: x"), [""; 0]);
        assert_eq!(Launcher::choose(Some(SlurmLauncher::Mpirun)).unwrap(), Launcher::Mpirun);
    }
}
