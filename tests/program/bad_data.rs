//! Waveform and ASD files that must be refused before anything is made.

use crate::workplace::Workplace;
use hdf5_metno::File;
use num_complex::Complex64;
use std::path::Path;

const WAVEFORMS: &str = "data.waveform_dataset_path";
const FIRST_ASDS: &str = "training.stage_0.asd_dataset_path";
const LATER_ASDS: &str = "training.stage_1.asd_dataset_path";

/// A workplace whose file under `key` was damaged.
fn damaged(workplace: Workplace, key: &str, damage: impl FnOnce(&Path)) -> Workplace {
    let mut workplace = workplace;
    damage(&workplace.copy_file_of(key));
    workplace
}

fn hdf5(change: impl FnOnce(&File) -> hdf5_metno::Result<()>) -> impl FnOnce(&Path) {
    |path| {
        let file = File::open_rw(path).unwrap();
        change(&file).unwrap();
        file.close().unwrap();
    }
}

fn cut(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn fill_with_text(path: &Path) {
    std::fs::write(path, "chirp_mass,mass_ratio\n30,0.5\n").unwrap();
}

#[test]
fn files_that_cannot_be_opened() {
    for key in [WAVEFORMS, FIRST_ASDS, LATER_ASDS] {
        let missing = Workplace::toy().with(key, "nowhere/data.hdf5");
        missing.assert_refused(1, &["nowhere/data.hdf5", "No such file"]);
        let name = Workplace::toy().get(key).as_str().unwrap().to_owned();
        let name = Path::new(&name).file_name().unwrap().to_str().unwrap();
        damaged(Workplace::toy(), key, cut).assert_refused(1, &[name, "truncated"]);
        damaged(Workplace::toy(), key, fill_with_text).assert_refused(1, &[name, "not an HDF5 file"]);
    }
    damaged(Workplace::toy(), LATER_ASDS, cut).assert_refused(2, &["asds.hdf5", "truncated"]);
}

#[test]
fn groups_that_are_missing() {
    let without = |workplace, key, group: &'static str| damaged(workplace, key, hdf5(|file| file.unlink(group)));
    let waveforms = without(Workplace::toy(), WAVEFORMS, "polarizations");
    waveforms.assert_refused(1, &["waveform_dataset.hdf5", "group 'polarizations'"]);
    let parameters = without(Workplace::toy(), WAVEFORMS, "parameters");
    parameters.assert_refused(2, &["waveform_dataset.hdf5", "dataset 'parameters'"]);
    let basis = without(Workplace::npe(), WAVEFORMS, "svd");
    basis.assert_refused(1, &["waveform_dataset.hdf5", "group 'svd'"]);
    let asds = without(Workplace::toy(), FIRST_ASDS, "asds");
    asds.assert_refused(1, &["asds_fiducial.hdf5", "group 'asds'"]);
}

#[test]
fn shapes_that_disagree() {
    let shortened = |key: &'static str, rows: usize, columns: usize| {
        damaged(
            Workplace::toy(),
            WAVEFORMS,
            hdf5(move |file| {
                file.unlink(key)?;
                let numbers = vec![Complex64::new(1.0, 0.0); rows * columns];
                let dataset = file.new_dataset::<Complex64>().shape([rows, columns]).create(key)?;
                dataset.write_raw(&numbers)
            }),
        )
    };
    let samples = shortened("polarizations/h_plus", 239, 513);
    samples.assert_refused(
        1,
        &[
            "waveform_dataset.hdf5",
            "polarizations/h_plus",
            "[239, 513]",
            "[240, 513]",
        ],
    );
    let bins = shortened("polarizations/h_cross", 240, 512);
    bins.assert_refused(1, &["waveform_dataset.hdf5", "polarizations/h_cross", "[240, 512]"]);
    let asds = damaged(
        Workplace::toy(),
        LATER_ASDS,
        hdf5(|file| {
            file.unlink("asds/L1")?;
            let dataset = file.new_dataset::<f64>().shape([2, 1024]).create("asds/L1")?;
            dataset.write_raw(&[1e-23; 2048])
        }),
    );
    asds.assert_refused(1, &["asds.hdf5", "asds/L1", "1024"]);
}

/// Whether they are read at the start or while training goes on.
#[test]
fn waveforms_and_asds_that_are_not_finite() {
    let not_finite = hdf5(|file| {
        let dataset = file.dataset("polarizations/h_cross")?;
        let mut values = dataset.read_raw::<Complex64>()?;
        values[7 * 513 + 200] = Complex64::new(0.0, f64::NAN);
        dataset.write_raw(&values)
    });
    let waveforms = damaged(Workplace::toy(), WAVEFORMS, not_finite);
    for on_disk in ["true", "false"] {
        let mut waveforms = damaged(Workplace::toy(), WAVEFORMS, |path| {
            std::fs::copy(waveforms.path("waveform_dataset.hdf5"), path)
                .map(drop)
                .unwrap()
        });
        waveforms.set("local.leave_waveforms_on_disk", on_disk);
        waveforms.assert_refused(1, &["waveform_dataset.hdf5", "polarizations/h_cross", "sample 7"]);
    }
    waveforms.assert_refused(2, &["waveform_dataset.hdf5", "polarizations/h_cross", "sample 7"]);

    let not_finite = hdf5(|file| {
        let dataset = file.dataset("asds/L1")?;
        let mut values = dataset.read_raw::<f64>()?;
        values[200] = f64::NAN;
        dataset.write_raw(&values)
    });
    damaged(Workplace::toy(), FIRST_ASDS, not_finite).assert_refused(1, &["asds_fiducial.hdf5", "asds/L1", "50 Hz"]);
}

/// Standardization would divide by it.
#[test]
fn a_parameter_without_spread() {
    let mut workplace = Workplace::toy();
    let path = workplace.copy_file_of(WAVEFORMS);
    make_constant(&path, "chi_1");
    workplace.assert_refused(1, &["run.yaml", "data.inference_parameters", "chi_1", "zero spread"]);

    let delta = "bilby.core.prior.DeltaFunction(peak=0.3)";
    let extrinsic = Workplace::toy().with("data.extrinsic_prior.psi", delta);
    extrinsic.assert_refused(1, &["run.yaml", "data.inference_parameters", "psi", "zero spread"]);
}

/// Gives every sample the same value of a parameter.
fn make_constant(path: &Path, parameter: &str) {
    use hdf5_metno::{h5check, sync::sync, types::TypeDescriptor, Datatype};
    use hdf5_metno_sys::{h5d::H5Dwrite, h5p::H5P_DEFAULT, h5s::H5S_ALL};
    let file = File::open_rw(path).unwrap();
    let dataset = file.dataset("parameters").unwrap();
    let TypeDescriptor::Compound(mut table) = dataset.dtype().unwrap().to_descriptor().unwrap() else {
        panic!("parameters is no table")
    };
    table.fields.retain(|field| field.name == parameter);
    assert_eq!(table.fields.len(), 1, "{parameter} is not there");
    table.fields[0].offset = 0;
    table.fields[0].index = 0;
    table.size = 8;
    let column = Datatype::from_descriptor(&TypeDescriptor::Compound(table)).unwrap();
    let values = vec![0.25f64; dataset.shape()[0]];
    // SAFETY: one float64 for each record; the other columns stay as they are.
    sync(|| unsafe {
        h5check(H5Dwrite(
            dataset.id(),
            column.id(),
            H5S_ALL,
            H5S_ALL,
            H5P_DEFAULT,
            values.as_ptr().cast(),
        ))
    })
    .unwrap();
    drop(dataset);
    file.close().unwrap();
}
