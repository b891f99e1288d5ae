//! What `check` says of a run before it is started.

use super::text::{bytes, count, plural, Page};
use crate::train::{CheckReport, DataPlan, DiskNeed, MemoryEstimate, NetworkPlan, Plan, ResumePoint, StagePlan};

/// The whole page.
pub fn describe_check(report: &CheckReport) -> String {
    let mut page = Page::new(&format!("{}: nothing is wrong", report.settings_file.display()));
    page.fields([
        ("train dir", report.train_dir.display().to_string()),
        ("ranks", report.ranks.to_string()),
        ("begins", begins(report.resume.as_ref(), report.plan.as_ref())),
    ]);
    if let Some(plan) = &report.plan {
        data(&mut page, &plan.data);
        network(&mut page, &plan.network);
        stages(&mut page, &plan.stages);
        memory(&mut page, &plan.memory, &plan.data, report.ranks);
        if let Some(need) = &plan.disk {
            disk(&mut page, need);
        }
    }
    if !report.warnings.is_empty() {
        page.section("Worth a second look");
        report
            .warnings
            .iter()
            .for_each(|warning| page.line(&format!("* {warning}")));
    }
    page.into_text()
}

fn begins(resume: Option<&ResumePoint>, plan: Option<&Plan>) -> String {
    let Some(resume) = resume else {
        return "a new run".into();
    };
    let from = format!(
        "{}, after epoch {} and {} optimizer steps",
        resume.path.display(),
        resume.epoch,
        count(resume.iteration)
    );
    if plan.is_none() {
        return format!("nothing: all stages are complete in {from}");
    }
    let progress = resume.progress;
    let inside = match (progress.epoch_in_stage, progress.batches) {
        (0, 0) => format!("at the beginning of stage {}", progress.stage),
        (epochs, 0) => format!("in stage {} after {}", progress.stage, plural(epochs, "epoch")),
        (epochs, batches) => format!(
            "in stage {} after {} and {} of the next",
            progress.stage,
            plural(epochs, "epoch"),
            plural(batches, "batch").replace("batchs", "batches")
        ),
    };
    format!("from {from}, {inside}")
}

fn data(page: &mut Page, data: &DataPlan) {
    let [f_min, f_max, delta_f] = data.domain;
    page.section("Data");
    page.fields([
        (
            "waveforms",
            format!("{} ({})", data.path.display(), bytes(data.stored_bytes)),
        ),
        (
            "samples",
            format!(
                "{}: {} to train on, {} to test",
                count(data.samples as u64),
                count(data.train_samples as u64),
                count(data.test_samples as u64)
            ),
        ),
        ("detectors", data.detectors.join(", ")),
        (
            "domain",
            format!(
                "{f_min} to {f_max} Hz in steps of {delta_f} Hz, {} bins",
                count(data.bins as u64)
            ),
        ),
        ("inferred", data.inference_parameters.join(", ")),
    ]);
    if !data.context_parameters.is_empty() {
        page.fields([("given", data.context_parameters.join(", "))]);
    }
}

fn network(page: &mut Page, network: &NetworkPlan) {
    let number = |parameters: usize| count(parameters as u64);
    page.section("Network");
    page.fields([
        ("kind", network.kind.clone()),
        ("parameters", number(network.parameters())),
        (
            "  embedding",
            format!(
                "{} ({} of them in the first layer)",
                number(network.embedding_parameters),
                number(network.first_layer_parameters)
            ),
        ),
        ("  flow", number(network.flow_parameters)),
    ]);
}

fn stages(page: &mut Page, stages: &[StagePlan]) {
    page.section("Stages");
    for stage in stages {
        let epochs = match stage.epochs_done {
            0 => stage.epochs.to_string(),
            done => format!("{} ({done} done)", stage.epochs),
        };
        let passes = match stage.passes {
            1 => String::new(),
            passes => format!(", {passes} of them for a step"),
        };
        let mut remarks = vec![format!(
            "{} learnable parameters",
            count(stage.learnable_parameters as u64)
        )];
        remarks.extend(stage.mixed_precision.then(|| "mixed precision".into()));
        remarks.extend(stage.early_stopping.then(|| "early stopping".into()));
        page.line(&format!("stage {}", stage.number));
        page.fields([
            ("  epochs", epochs),
            (
                "  batch size",
                format!(
                    "{}, {} on each rank{passes}",
                    count(stage.batch_size as u64),
                    stage.batch_size_per_rank
                ),
            ),
            (
                "  steps",
                format!(
                    "{} per epoch, {} in all",
                    count(stage.steps_per_epoch as u64),
                    count((stage.steps_per_epoch * stage.epochs) as u64)
                ),
            ),
            ("  optimizer", format!("{}; {}", stage.optimizer, stage.scheduler)),
            ("  noise", stage.asd_dataset.display().to_string()),
            ("  trains", remarks.join(", ")),
        ]);
    }
}

fn memory(page: &mut Page, memory: &MemoryEstimate, data: &DataPlan, ranks: usize) {
    page.section("Memory of a rank, estimated");
    page.fields([
        ("parameters", bytes(memory.parameters)),
        ("gradients", bytes(memory.gradients)),
        ("optimizer", bytes(memory.optimizer)),
        ("activations", bytes(memory.activations)),
        ("batches", bytes(memory.batches)),
        ("data", bytes(memory.data)),
        (
            "together",
            format!(
                "about {}, and a quarter of a GB for the program itself",
                bytes(memory.total())
            ),
        ),
    ]);
    if data.is_mapped {
        let whose = if ranks == 1 { "its rank" } else { "the ranks of a node" };
        page.line(&format!(
            "The waveforms stay on disk; free memory up to {} keeps them at hand for {whose}.",
            bytes(data.stored_bytes)
        ));
    }
}

fn disk(page: &mut Page, need: &DiskNeed) {
    page.section("Disk");
    page.fields([
        ("checkpoint", bytes(need.checkpoint)),
        ("  without training state", bytes(need.model)),
        ("kept", plural(need.kept as usize, "checkpoint")),
        ("to be written", format!("up to {}", bytes(need.total))),
        ("free", bytes(need.free)),
    ]);
}
