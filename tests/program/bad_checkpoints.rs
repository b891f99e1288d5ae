//! Checkpoints that must be refused, as the train dir's own and as `--checkpoint`.

use crate::common::{self, Ended};
use crate::workplace::{case, check, program, Workplace};
use dingo_spmd::checkpoint::{Checkpoint, Object};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tch::{Kind, Tensor};

/// A run that would go on from a checkpoint which `make` puts at a path; what is there otherwise stays as it was.
#[track_caller]
fn assert_refused(ranks: usize, make: impl Fn(&Path), parts: &[&str]) {
    let go_on = |workplace: &Workplace, from: Option<&Path>| -> Ended {
        workplace.write_settings();
        let with_arguments = |mut command: Command| {
            command.current_dir(case("toy")).arg("train_settings.yaml");
            command.arg("--train-dir").arg(workplace.train_dir());
            if let Some(path) = from {
                command.arg("--checkpoint").arg(path);
            }
            common::run(command)
        };
        with_arguments(check(ranks)).assert_refused(parts);
        with_arguments(program(ranks))
    };
    let workplace = Workplace::toy();
    let elsewhere = workplace.path("bad.pt");
    make(&elsewhere);
    let ended = go_on(&workplace, Some(&elsewhere));
    ended.assert_refused(parts);
    ended.assert_refused(&["bad.pt"]);
    assert!(!workplace.train_dir().exists());

    std::fs::create_dir(workplace.train_dir()).unwrap();
    make(&workplace.latest());
    let before = std::fs::read(workplace.latest()).unwrap();
    let ended = go_on(&workplace, None);
    ended.assert_refused(parts);
    ended.assert_refused(&["model_latest.pt"]);
    assert_eq!(workplace.files(), ["model_latest.pt"]);
    assert!(std::fs::read(workplace.latest()).unwrap() == before);
}

/// `model_trained.pt` of case `toy` with one change made to it.
fn changed(change: impl Fn(&mut Checkpoint)) -> impl Fn(&Path) {
    move |path| {
        let mut checkpoint = Checkpoint::load(case("toy").join("model_trained.pt")).unwrap();
        change(&mut checkpoint);
        checkpoint.save(path).unwrap();
    }
}

fn trained() -> Vec<u8> {
    std::fs::read(case("toy").join("model_trained.pt")).unwrap()
}

#[test]
fn files_that_are_no_checkpoint() {
    let cut = |path: &Path| std::fs::write(path, &trained()[..600_000]).unwrap();
    assert_refused(1, cut, &["not a whole PyTorch checkpoint"]);
    assert_refused(2, cut, &["not a whole PyTorch checkpoint"]);
    let text = |path: &Path| std::fs::write(path, "weights").unwrap();
    assert_refused(1, text, &["not a whole PyTorch checkpoint"]);
    let damaged = |path: &Path| {
        let mut bytes = trained();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    assert_refused(1, damaged, &["checksum"]);
}

#[test]
fn a_hostile_pickle_is_not_executed() {
    let proof = tempfile::tempdir().unwrap();
    let proof = proof.path().join("executed");
    let hostile = |path: &Path| {
        let order = format!("touch {}", proof.display());
        let mut pickle = b"\x80\x02cos\nsystem\nX".to_vec();
        pickle.extend((order.len() as u32).to_le_bytes());
        pickle.extend(order.as_bytes());
        pickle.extend(b"\x85R.");
        let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        zip.start_file("bad/data.pkl", stored).unwrap();
        zip.write_all(&pickle).unwrap();
        zip.finish().unwrap();
    };
    assert_refused(1, hostile, &["os.system", "nothing of it was executed"]);
    assert!(!proof.exists());
}

#[test]
fn keys_that_are_missing() {
    let without = |key: &'static str| {
        move |path: &Path| {
            let whole = Object::load(case("toy").join("model_trained.pt")).unwrap();
            let Object::Dict(mut dict) = whole else {
                panic!("no dict")
            };
            dict.take(key).unwrap();
            Object::Dict(dict).save(path).unwrap();
        }
    };
    for key in ["model_state_dict", "metadata", "epoch"] {
        assert_refused(1, without(key), &[&format!("{key}: is missing")]);
    }
    // In the middle of a stage the optimizer's state is needed too.
    assert_refused(
        1,
        without("optimizer_state_dict"),
        &["optimizer_state_dict", "is missing"],
    );
    let without_data = changed(|checkpoint| {
        let settings = checkpoint.metadata.train_settings.as_mapping_mut().unwrap();
        settings.shift_remove("data").unwrap();
    });
    assert_refused(2, without_data, &["metadata.train_settings", "data"]);
}

#[test]
fn tensors_that_do_not_fit() {
    let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, tch::Device::Cpu));
    let name = "embedding_net.module_0.0.bias";
    let other_shape = changed(|checkpoint| {
        let (name, tensor) = checkpoint.model_state.get_index_mut(3).unwrap();
        assert!(name.contains('.'));
        *tensor = zeros(&[7, 5]);
    });
    assert_refused(1, other_shape, &["model_state_dict", "[7, 5]"]);
    let surplus = changed(|checkpoint| drop(checkpoint.model_state.insert(name.into(), zeros(&[1]))));
    assert_refused(1, surplus, &["model_state_dict", name]);
    let missing = changed(|checkpoint| drop(checkpoint.model_state.shift_remove_index(5)));
    assert_refused(1, missing, &["model_state_dict", "lacks the tensor"]);
    let optimizer = changed(|checkpoint| {
        let state = checkpoint.training.as_mut().unwrap().optimizer.as_mut().unwrap();
        state.state.remove(&2).unwrap();
        state.param_groups[0].params.truncate(4);
    });
    assert_refused(1, optimizer, &["optimizer_state_dict"]);
}
