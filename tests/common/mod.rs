//! Starting the program, or a test of it, on several ranks.

// Each test program uses its own part of this.
#![allow(dead_code)]

use dingo_spmd::spmd::World;
use std::fs::File;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// No test waits longer than this for a job.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Set for the ranks that [`on_ranks`] starts.
const WORKER: &str = "DINGO_TEST_WORKER";

/// `mpirun` for this many ranks, also as root and on a machine with fewer cores; the program and its arguments are to
/// be added. One thread per rank, so that ranks do not fight for cores.
pub fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-np", &ranks.to_string()]).env("OMP_NUM_THREADS", "1");
    let version = Command::new("mpirun")
        .arg("--version")
        .output()
        .expect("mpirun is on PATH");
    if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        command.arg("--oversubscribe");
        // SAFETY: asks for a number.
        if unsafe { libc::geteuid() } == 0 {
            command.arg("--allow-run-as-root");
        }
    }
    command
}

/// How a job ended.
pub struct Ended {
    pub status: ExitStatus,
    pub took: Duration,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The whole output, for messages.
    pub fn output(&self) -> String {
        format!("{}\n{}\n{}", self.status, self.stdout, self.stderr)
    }
}

/// Runs a command to its end; `meanwhile` is called some ten times a second with its process id. Fails when it does not
/// end within [`PATIENCE`].
pub fn run_with(mut command: Command, mut meanwhile: impl FnMut(u32)) -> Ended {
    // Into files: a full pipe would block the job.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    command
        .stdout(File::create(&stdout).expect("a file"))
        .stderr(File::create(&stderr).expect("a file"));
    let begin = Instant::now();
    let mut child = command.spawn().expect("the command starts");
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).expect("the output")).into_owned();
    loop {
        if let Some(status) = child.try_wait().expect("the command can be waited for") {
            return Ended {
                status,
                took: begin.elapsed(),
                stdout: read(&stdout),
                stderr: read(&stderr),
            };
        }
        if begin.elapsed() > PATIENCE {
            child.kill().expect("the command can be killed");
            panic!(
                "{command:?} has not ended in {PATIENCE:?}\n{}\n{}",
                read(&stdout),
                read(&stderr)
            );
        }
        meanwhile(child.id());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Says that something is not tested here, also where the test program keeps the output of tests that pass to itself.
pub fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Runs a command to its end.
pub fn run(command: Command) -> Ended {
    run_with(command, |_| {})
}

/// The command that runs this very test on ranks: its body sees a `World` (see [`worker`]).
pub fn this_test_on(ranks: usize, test: &str) -> Command {
    let mut command = mpirun(ranks);
    command.arg(std::env::current_exe().expect("the test program has a path"));
    command
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(WORKER, "1");
    command
}

/// Whether this process is a rank started by [`this_test_on`].
pub fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// On a rank started by [`this_test_on`]: runs the body with the world and ends as the program does. Errors that are
/// formatting errors stand for bad input, with status 2.
pub fn worker(body: impl FnOnce(&World) -> anyhow::Result<i32>) {
    let world = World::initialize(|error| if error.is::<std::fmt::Error>() { 2 } else { 1 }).expect("MPI starts");
    let result = body(&world);
    let status = world.end(result);
    if status != 0 {
        std::process::exit(status);
    }
}

/// Runs the body of the test of this name on each of these numbers of ranks, under mpirun. It fails by panicking.
pub fn on_ranks(test: &str, numbers: &[usize], body: impl FnOnce(&World)) {
    if is_worker() {
        return worker(|world| {
            body(world);
            Ok(0)
        });
    }
    for &ranks in numbers {
        let ended = run(this_test_on(ranks, test));
        assert!(ended.status.success(), "{test} on {ranks} ranks: {}", ended.output());
        // A name that is no test would pass with nothing run.
        assert_eq!(
            ended.stdout.matches("1 passed").count(),
            ranks,
            "{test} on {ranks} ranks: {}",
            ended.output()
        );
        println!("{}", ended.stdout);
    }
}
