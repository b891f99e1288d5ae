use super::*;

const SAMPLES: usize = 3;
const DETECTORS: usize = 2;
const BINS: usize = 8193;
const FIRST: usize = 160;

struct Case {
    plus: Tensor,
    cross: Tensor,
    asds: Vec<Vec<f32>>,
}

impl Case {
    fn new() -> Case {
        let polarization = |seed: usize| {
            let values: Vec<f32> = (0..2 * SAMPLES * BINS)
                .map(|i| 1e-23 * ((i * 37 + seed * 101) as f32 * 0.11).sin())
                .collect();
            let pairs = Tensor::from_slice(&values).view([SAMPLES as i64, BINS as i64, 2]);
            pairs.view_as_complex()
        };
        let asds = (0..SAMPLES * DETECTORS)
            .map(|i| {
                (0..BINS)
                    .map(|k| 1e-23 * (1.0 + 0.5 * ((k + i) as f32 * 0.01).cos()))
                    .collect()
            })
            .collect();
        Case {
            plus: polarization(1),
            cross: polarization(2),
            asds,
        }
    }

    fn projections(&self, noise: bool) -> Vec<Projection<'_>> {
        let projection = |(i, asd): (usize, &'_ Vec<f32>)| -> (f32, f32, f64, RandomStream) {
            let x = i as f64;
            let stream = RandomStream {
                key: [1, 2],
                counter: [3, i as u32, asd.len() as u32],
            };
            (
                0.3 - 0.1 * x as f32,
                0.7 - 0.2 * x as f32,
                (0.1234567 - 0.04 * x) * 0.25,
                stream,
            )
        };
        self.asds
            .iter()
            .enumerate()
            .map(|(i, asd)| {
                let (plus, cross, turns, stream) = projection((i, asd));
                Projection {
                    plus,
                    cross,
                    turns,
                    asd,
                    noise: noise.then_some(stream),
                    keep: 0..usize::MAX,
                }
            })
            .collect()
    }

    /// Strain of projection `i` at bin `k` in double precision, not whitened.
    fn expected(&self, projection: &Projection, i: usize, k: usize) -> (f64, f64) {
        let at = |tensor: &Tensor| {
            let pair = tensor.view_as_real();
            let part = |c: i64| pair.double_value(&[(i / DETECTORS) as i64, k as i64, c]);
            (part(0), part(1))
        };
        let ((pr, pi), (cr, ci)) = (at(&self.plus), at(&self.cross));
        let (fp, fc) = (f64::from(projection.plus), f64::from(projection.cross));
        let (real, imaginary) = (fp * pr + fc * cr, fp * pi + fc * ci);
        let (sine, cosine) = (-std::f64::consts::TAU * projection.turns * k as f64).sin_cos();
        (real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    }
}

const SCALING: Scaling = Scaling {
    first_bin: FIRST,
    whitening: 2.0,
    asd_scale: 1e-23,
};

fn inputs(case: &Case, projections: &[Projection], level: Level) -> Tensor {
    inputs_in_stretches(case, projections, level, BINS)
}

/// Made in stretches of this many bins.
fn inputs_in_stretches(case: &Case, projections: &[Projection], level: Level, stretch: usize) -> Tensor {
    let shape = [SAMPLES as i64, DETECTORS as i64, 3, (BINS - FIRST) as i64];
    let mut output = Tensor::full(shape, f64::NAN, (Kind::Float, Device::Cpu));
    let mut phases: Vec<Phases> = projections.iter().map(|p| Phases::begin(p.turns, FIRST)).collect();
    for first in (FIRST..BINS).step_by(stretch) {
        let bins = stretch.min(BINS - first) as i64;
        let [plus, cross] = [&case.plus, &case.cross].map(|whole| whole.narrow(1, first as i64, bins));
        let waveforms = Waveforms::Complex { plus, cross };
        network_inputs_at_level(
            level,
            &waveforms,
            first,
            projections,
            &mut phases,
            &SCALING,
            &mut output,
            0,
        )
        .expect("shapes fit");
    }
    output
}

#[test]
fn stretches_make_up_the_whole() {
    let case = Case::new();
    let mut projections = case.projections(true);
    projections[1].keep = 500..3000;
    projections[2].keep = 70..90;
    let whole = inputs(&case, &projections, Level::detected());
    for stretch in [64, 512, 4096] {
        let found = inputs_in_stretches(&case, &projections, Level::detected(), stretch);
        assert!(found.equal(&whole), "{stretch}");
    }
}

#[test]
fn products_of_real_matrices_are_complex_waveforms() {
    let case = Case::new();
    let projections = case.projections(true);
    let used = |whole: &Tensor| whole.narrow(1, FIRST as i64, (BINS - FIRST) as i64).view_as_real();
    let both = Tensor::cat(&[used(&case.plus), used(&case.cross)], 0);
    let (real, imaginary) = (both.select(-1, 0), both.select(-1, 1));
    // Products that say so: a - b is the real part, c - a - b the imaginary one.
    let (a, b) = (&real * 1.5, &real * 0.5);
    let sums = imaginary + &a + &b;
    let waveforms = Waveforms::Products(Tensor::stack(&[a, b, sums], 0));
    let whole = inputs(&case, &projections, Level::Baseline);
    for level in Level::available() {
        let mut output = whole.zeros_like();
        let mut phases: Vec<Phases> = projections.iter().map(|p| Phases::begin(p.turns, FIRST)).collect();
        network_inputs_at_level(
            level,
            &waveforms,
            FIRST,
            &projections,
            &mut phases,
            &SCALING,
            &mut output,
            0,
        )
        .unwrap();
        let error = (output - &whole).abs().max().double_value(&[]);
        assert!(error < 1e-5, "{error}");
    }
}

#[test]
fn agrees_with_double_precision_at_high_frequencies() {
    let case = Case::new();
    let projections = case.projections(false);
    let clean = clean_strains(&case.plus, &case.cross, &projections, DETECTORS, None).expect("shapes fit");
    let clean = clean
        .view_as_real()
        .view([(SAMPLES * DETECTORS) as i64, BINS as i64, 2]);
    let packed = inputs(&case, &projections, Level::detected()).view([(SAMPLES * DETECTORS) as i64, 3, -1]);
    for (i, projection) in projections.iter().enumerate() {
        for k in (0..BINS).step_by(61).chain([BINS - 1]) {
            let (real, imaginary) = case.expected(projection, i, k);
            let (i, k) = (i as i64, k as i64);
            assert!((clean.double_value(&[i, k, 0]) - real).abs() < 1e-6 * 1e-23, "bin {k}");
            assert!(
                (clean.double_value(&[i, k, 1]) - imaginary).abs() < 1e-6 * 1e-23,
                "bin {k}"
            );
            if let Some(bin) = (k as usize).checked_sub(FIRST) {
                let asd = f64::from(projection.asd[k as usize]);
                let found = |channel: i64| packed.double_value(&[i, channel, bin as i64]);
                assert!((found(0) - 2.0 * real / asd).abs() < 4e-6);
                assert!((found(1) - 2.0 * imaginary / asd).abs() < 4e-6);
                assert!((found(2) - 1e-23 / asd).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn noise_is_that_of_the_stream_and_levels_agree() {
    let case = Case::new();
    let (quiet, noisy) = (case.projections(false), case.projections(true));
    let difference = inputs(&case, &noisy, Level::detected()) - inputs(&case, &quiet, Level::detected());
    let bins = BINS - FIRST;
    for (i, projection) in noisy.iter().enumerate() {
        let (mut real, mut imaginary) = (vec![0.0; bins], vec![0.0; bins]);
        projection
            .noise
            .expect("noise was asked for")
            .noise(&mut real, &mut imaginary);
        let expected = Tensor::stack(&[Tensor::from_slice(&real), Tensor::from_slice(&imaginary)], 0);
        let rows = difference.view([-1, 3, bins as i64]).get(i as i64);
        assert!((rows.narrow(0, 0, 2) - expected).abs().max().double_value(&[]) < 1e-6);
        assert_eq!(rows.get(2).abs().max().double_value(&[]), 0.0);
    }
    let widest = inputs(&case, &noisy, Level::detected());
    for level in Level::available() {
        assert!(inputs(&case, &noisy, level).equal(&widest), "{level:?}");
    }
}

#[test]
fn cropping_zeroes_all_channels() {
    let case = Case::new();
    let mut projections = case.projections(true);
    let whole = inputs(&case, &projections, Level::detected());
    projections[3].keep = 17..901;
    let cropped = inputs(&case, &projections, Level::detected());
    let (whole, cropped) = (whole.view([6, 3, -1]), cropped.view([6, 3, -1]));
    assert!(cropped
        .get(3)
        .narrow(-1, 17, 884)
        .equal(&whole.get(3).narrow(-1, 17, 884)));
    assert_eq!(cropped.get(3).count_nonzero(None::<i64>).int64_value(&[]), 3 * 884);
    assert!(cropped.get(2).equal(&whole.get(2)));
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let case = Case::new();
    let projections = case.projections(false);
    let refused = |plus: &Tensor, first_bin: usize, projections: &[Projection], bins: usize, first_row: usize| {
        let mut output = Tensor::zeros([3, 2, 3, bins as i64], (Kind::Float, Device::Cpu));
        let waveforms = Waveforms::Complex {
            plus: plus.shallow_clone(),
            cross: case.cross.narrow(1, 0, plus.size()[1]),
        };
        let mut phases: Vec<Phases> = projections.iter().map(|p| Phases::begin(p.turns, first_bin)).collect();
        let phases = &mut phases[..];
        network_inputs(
            &waveforms,
            first_bin,
            projections,
            phases,
            &SCALING,
            &mut output,
            first_row,
        )
        .is_err()
    };
    let used = BINS - FIRST;
    let plus = case.plus.narrow(1, 0, used as i64);
    assert!(!refused(&plus, FIRST, &projections, used, 0));
    assert!(refused(&plus, FIRST, &projections, 10, 0));
    assert!(refused(&plus, FIRST, &projections, used, 1));
    assert!(refused(&plus, FIRST - 64, &projections, used + 64, 0));
    assert!(refused(&plus, FIRST + 1, &projections, used + 1, 0));
    assert!(refused(&plus, FIRST, &projections[..5], used, 0));
    assert!(refused(
        &plus.to_kind(Kind::ComplexDouble),
        FIRST,
        &projections,
        used,
        0
    ));
    assert!(clean_strains(&case.plus.narrow(1, 0, 5), &case.cross, &projections, DETECTORS, None).is_err());
    let mut short = case.projections(false);
    short[0].asd = &short[0].asd[..BINS - 1];
    assert!(refused(&plus, FIRST, &short, used, 0));
    assert!(clean_strains(&case.plus, &case.cross, &short, DETECTORS, None).is_err());
}
