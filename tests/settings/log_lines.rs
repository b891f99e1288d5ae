//! What is said about keys that are accepted without having an effect.

use super::*;
use log::{Level, Log, Metadata, Record};
use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The lines of this thread, so that tests do not see one another's.
    static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

struct Collector;

impl Log for Collector {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        LINES.with_borrow_mut(|lines| lines.push((record.level(), record.args().to_string())));
    }

    fn flush(&self) {}
}

/// The lines about `key` when settings are read with `yaml` in its place.
fn lines_about(key: &str, yaml: &str) -> Vec<(Level, String)> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        log::set_logger(&Collector).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    });
    LINES.with_borrow_mut(Vec::clear);
    with(key, yaml);
    LINES.with_borrow(|lines| {
        lines
            .iter()
            .filter(|(_, line)| line.starts_with(key))
            .cloned()
            .collect()
    })
}

#[test]
fn keys_without_effect_get_one_line() {
    let cases = [
        ("data.window", "{type: tukey}", Level::Info),
        ("model.embedding_kwargs.svd.num_workers", "4", Level::Info),
        ("training.stage_0.optimizer.fused", "true", Level::Info),
        ("local.ddp_port", "12355", Level::Info),
        ("local.torch_compile", "true", Level::Info),
        ("local.num_workers", "8", Level::Info),
        ("local.condor", "{num_cpus: 16, bid: 100}", Level::Info),
        ("local.wandb", "{project: dingo}", Level::Warn),
    ];
    for (key, yaml, level) in cases {
        let lines = lines_about(key, yaml);
        assert!(
            matches!(lines.as_slice(), [(found, _)] if *found == level),
            "{key}: {lines:?}"
        );
    }
    for (key, yaml) in [
        ("local.torch_compile", "false"),
        ("local.wandb", "false"),
        ("local.seed", "3"),
    ] {
        assert_eq!(lines_about(key, yaml), [], "{key}");
    }
}

#[test]
fn num_gpus_in_the_condor_block_is_deprecated() {
    let is_deprecated = |(level, line): &(Level, String)| *level == Level::Warn && line.contains("deprecated");
    let warns = |yaml: &str| lines_about("local.condor", yaml).iter().any(is_deprecated);
    assert!(warns("{num_gpus: 2}"));
    assert!(!warns("{num_cpus: 2}"));
    let mut both = changed("local.num_gpus", "4");
    both["local"]["condor"] = yaml::read("{num_gpus: 2}").unwrap().value;
    LINES.with_borrow_mut(Vec::clear);
    assert_eq!(parse(&both).unwrap().local.num_gpus, 4);
    assert!(LINES.with_borrow(|lines| lines.iter().any(is_deprecated)));
}
