//! Jobs of HTCondor that follow one another to the end, run by the stand-in `tests/jobs/condor_submit`.

use crate::common::{self, skipped, PATIENCE};
use crate::prepared;
use crate::workplace::{history, in_repository, parameters, program, Workplace, COMPLETE, STOPPED};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// One epoch a job; the toy case has three.
fn one_epoch_a_job() -> Workplace {
    Workplace::toy()
        .with("training.stage_0.epochs", "3")
        .with("local.runtime_limits", "{max_epochs_per_run: 1}")
        .with("local.num_gpus", "2")
}

/// What the same training comes to in one run.
fn whole() -> Workplace {
    let whole = Workplace::toy().with("training.stage_0.epochs", "3");
    whole.run_to(COMPLETE, 2);
    whole
}

/// `dingo-spmd submit condor`, the stand-in first on PATH.
fn submit(workplace: &Workplace) -> Command {
    let path = format!(
        "{}:{}",
        in_repository("tests/jobs").display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = program(1);
    command
        .args(["submit", "condor", "--train-dir"])
        .arg(workplace.train_dir());
    command.env("PATH", path);
    command
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits for a file; when it does not come, the logs of the jobs are told.
#[track_caller]
fn wait_for(workplace: &Workplace, file: &str) {
    let begin = Instant::now();
    while !workplace.path(file).exists() {
        if begin.elapsed() > PATIENCE {
            let logs = workplace.files().into_iter().filter(|name| name.starts_with("info"));
            let logs = logs.map(|name| format!("{name}:\n{}", read(&workplace.train_dir().join(&name))));
            panic!("{file} did not come:\n{}", logs.collect::<Vec<_>>().join("\n"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Number of jobs that were submitted.
fn jobs(workplace: &Workplace) -> usize {
    read(&workplace.train_dir().join("jobs")).lines().count()
}

#[test]
fn jobs_follow_one_another_until_the_training_is_complete() {
    let workplace = one_epoch_a_job();
    prepared(&workplace);
    let mut first = submit(&workplace);
    first
        .arg("--exit-command")
        .arg(format!("echo 'it is done' > {}", workplace.path("complete").display()));
    common::run(first).assert_status(COMPLETE);
    wait_for(&workplace, "complete");

    assert_eq!(jobs(&workplace), 4, "one and three resubmissions");
    let whole = whole();
    assert_eq!(workplace.history(), whole.history());
    assert!(parameters(&workplace.latest()) == parameters(&whole.latest()));
    for epoch in 1..=4 {
        let log = read(&workplace.train_dir().join(format!("info_{epoch:03}.out")));
        assert!(log.contains(&format!("Train Epoch: {epoch} [")), "{log}");
        assert_eq!(
            log.matches("Program terminated").count(),
            usize::from(epoch < 4),
            "{log}"
        );
        for name in ["err", "log"] {
            assert!(workplace.train_dir().join(format!("info_{epoch:03}.{name}")).exists());
        }
    }
}

/// By `condor_rm`, or because the machine is wanted back: HTCondor itself puts such a job into its queue again.
#[test]
fn a_job_that_is_ordered_to_end_leaves_a_checkpoint_and_no_further_job() {
    let workplace = Workplace::toy().with("training.stage_0.epochs", "10000");
    prepared(&workplace);
    common::run(submit(&workplace)).assert_status(COMPLETE);
    let log = workplace.train_dir().join("info.out");
    let begin = Instant::now();
    while !read(&log).contains("Train Epoch: 2 ") {
        assert!(begin.elapsed() < PATIENCE, "{}", read(&log));
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut pgrep = Command::new("pgrep");
    pgrep.arg("-f").arg(format!(
        "^/bin/bash {}",
        workplace.train_dir().join("condor_job.sh").display()
    ));
    let script = common::run(pgrep).stdout;
    let script: i32 = script.trim().parse().expect("one script");
    // SAFETY: a signal to the script that this test started.
    unsafe { libc::kill(script, libc::SIGTERM) };
    while !read(&log).contains("ordered to end") {
        assert!(begin.elapsed() < PATIENCE, "{}", read(&log));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(
        read(&log).contains("Program terminated due to SIGUSR1"),
        "{}",
        read(&log)
    );
    assert_eq!(jobs(&workplace), 1);
    // The checkpoint is one to go on from: inside an epoch, or between two.
    let mut one_more = program(2);
    let local = workplace.train_dir().join("local_settings.yaml");
    let text = read(&local).replace("max_epochs_per_run: 500", "max_epochs_per_run: 1");
    std::fs::write(&local, text).unwrap();
    one_more.arg("--train-dir").arg(workplace.train_dir());
    let epochs = workplace.history().len();
    common::run(one_more).assert_status(STOPPED);
    assert_eq!(workplace.history().len(), epochs + 1);
}

/// Each a network name space, as the stand-in wants them; `None` where this process may not make them.
struct Machines {
    network: String,
    count: usize,
}

impl Machines {
    fn make(count: usize) -> Option<Machines> {
        let network = format!("dspmd{}n", std::process::id());
        let machines = Machines { network, count };
        let made = machines.carry_out(&machines.making());
        // What was made of them is removed with the value.
        made.then_some(machines)
    }

    /// A bridge, and a cable from each name space to it.
    fn making(&self) -> Vec<String> {
        let bridge = &self.network;
        let mut commands = vec![
            format!("ip link add {bridge} type bridge"),
            format!("ip link set {bridge} up"),
        ];
        for machine in 0..self.count {
            let space = format!("{bridge}{machine}");
            commands.extend([
                format!("ip netns add {space}"),
                format!("ip link add {space} type veth peer name eth0 netns {space}"),
                format!("ip link set {space} master {bridge} up"),
                format!("ip -n {space} address add 10.199.77.{}/24 dev eth0", machine + 1),
                format!("ip -n {space} link set eth0 up"),
                format!("ip -n {space} link set lo up"),
            ]);
        }
        commands
    }

    fn carry_out(&self, commands: &[String]) -> bool {
        let one = |command: &String| {
            let mut words = command.split(' ');
            let output = Command::new(words.next().unwrap_or_default()).args(words).output();
            output.is_ok_and(|output| output.status.success())
        };
        commands.iter().all(one)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in 0..self.count {
            self.carry_out(&[format!("ip netns del {}{machine}", self.network)]);
        }
        self.carry_out(&[format!("ip link del {}", self.network)]);
    }
}

/// Two ranks on each of two machines that can reach one another by TCP but have nothing like ssh.
#[test]
fn jobs_on_several_machines_follow_one_another() {
    let Some(machines) = Machines::make(2) else {
        skipped("network name spaces, which stand in for machines, cannot be made here (ip, root)");
        return;
    };
    let workplace = one_epoch_a_job().with("local.num_nodes", "2");
    prepared(&workplace);
    let mut first = submit(&workplace);
    first
        .arg("--exit-command")
        .arg(format!("touch {}", workplace.path("complete").display()));
    first.env("NETWORK", &machines.network);
    common::run(first).assert_status(COMPLETE);
    wait_for(&workplace, "complete");
    assert_eq!(jobs(&workplace), 4);
    let log = read(&workplace.train_dir().join("info_machine0_004.out"));
    for part in ["4 ranks on machine0 machine1", "Training on 4 ranks (2 nodes)"] {
        assert!(log.contains(part), "{log}");
    }
    assert_eq!(history(&workplace.train_dir()).len(), 4);
    // The folder that the machines met in goes with the last job, which ends after its exit command.
    let begin = Instant::now();
    while workplace.files().iter().any(|name| name.starts_with(".machines")) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", workplace.files());
        std::thread::sleep(Duration::from_millis(100));
    }
}
