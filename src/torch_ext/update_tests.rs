use super::*;
use tch::{Device, Kind};

const ADAM: AdamOptions = AdamOptions {
    step_size: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    root_correction: 0.3,
    eps: 1e-8,
    l2: 0.1,
    shrink: 0.99,
    amsgrad: false,
};

const SGD: SgdOptions = SgdOptions {
    lr: 0.1,
    l2: 0.01,
    keep: 0.9,
    take: 0.7,
    momentum: 0.9,
    has_buffer: true,
    nesterov: false,
};

const RMS_PROP: RmsPropOptions = RmsPropOptions {
    lr: 0.1,
    alpha: 0.9,
    eps: 1e-6,
    l2: 0.01,
    momentum: 0.5,
    has_buffer: false,
    centered: false,
};

/// Every loop there is, with the number of its slots.
fn elements() -> Vec<(ElementUpdate, usize)> {
    let adam = |amsgrad| ElementUpdate::Adam(AdamOptions { amsgrad, ..ADAM });
    let sgd = |has_buffer, nesterov| {
        ElementUpdate::Sgd(SgdOptions {
            has_buffer,
            nesterov,
            ..SGD
        })
    };
    let rms_prop = |has_buffer, centered| {
        ElementUpdate::RmsProp(RmsPropOptions {
            has_buffer,
            centered,
            ..RMS_PROP
        })
    };
    let adagrad = AdagradOptions {
        lr: 0.1,
        eps: 1e-10,
        l2: 0.01,
    };
    vec![
        (adam(false), 2),
        (adam(true), 3),
        (sgd(false, false), 0),
        (sgd(true, false), 1),
        (sgd(true, true), 1),
        (rms_prop(false, false), 1),
        (rms_prop(true, false), 2),
        (rms_prop(false, true), 2),
        (rms_prop(true, true), 3),
        (ElementUpdate::Adagrad(adagrad), 1),
    ]
}

/// Parameters of several sizes, one larger than a piece.
struct Tensors {
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    slots: Vec<Vec<Tensor>>,
}

impl Tensors {
    /// The same ones for the same kind. Slots are such that averages of squares stay above squares of averages.
    fn new(kind: Kind, slots: usize) -> Tensors {
        let waves = |size: &[i64; 2], phase: f64| {
            let numbers = Tensor::arange(size[0] * size[1], (Kind::Double, Device::Cpu));
            (numbers * 0.7 + phase).sin().view(*size).to_kind(kind)
        };
        let sizes = [[1, 1], [17, 1001], [3, 11]];
        let slot =
            |size: &[i64; 2], slot: usize| waves(size, 2.0 + slot as f64) * 0.4 + if slot == 0 { 1.5 } else { 0.5 };
        Tensors {
            parameters: sizes.iter().map(|size| waves(size, 0.1)).collect(),
            gradients: sizes.iter().map(|size| waves(size, 1.3)).collect(),
            slots: sizes
                .iter()
                .map(|size| (0..slots).map(|i| slot(size, i)).collect())
                .collect(),
        }
    }

    fn update(&self, level: Level, element: ElementUpdate, inverse_scale: f64) -> Vec<Tensor> {
        let updates: Vec<Update> = (0..self.parameters.len())
            .map(|i| Update {
                parameter: &self.parameters[i],
                gradient: &self.gradients[i],
                slots: &self.slots[i],
                element,
            })
            .collect();
        update_at_level(level, &updates, inverse_scale).unwrap();
        let slots = self.slots.iter().flatten();
        self.parameters.iter().chain(slots).map(Tensor::shallow_clone).collect()
    }
}

#[test]
fn every_level_and_number_of_threads_gives_the_same_bits() {
    let before = tch::get_num_threads();
    for (element, slots) in elements() {
        for kind in [Kind::Float, Kind::Double] {
            let initial = Tensors::new(kind, slots).parameters;
            let expected = Tensors::new(kind, slots).update(Level::Baseline, element, 0.5);
            assert_ne!(expected[1], initial[1], "{element:?}");
            for level in Level::available() {
                for threads in [1, 3] {
                    tch::set_num_threads(threads);
                    let found = Tensors::new(kind, slots).update(level, element, 0.5);
                    assert_eq!(found, expected, "{element:?} {level:?} {threads}");
                }
            }
        }
    }
    tch::set_num_threads(before);
}

#[test]
fn the_scale_multiplies_the_gradient() {
    for (element, slots) in elements() {
        let mut scaled = Tensors::new(Kind::Float, slots);
        scaled.gradients.iter_mut().for_each(|gradient| *gradient *= 1024.0);
        let found = scaled.update(Level::detected(), element, 1.0 / 1024.0);
        let expected = Tensors::new(Kind::Float, slots).update(Level::detected(), element, 1.0);
        assert_eq!(found, expected, "{element:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_left_alone() {
    let parameter = Tensor::ones([4, 2], (Kind::Float, Device::Cpu));
    let like = |size: [i64; 2], kind: Kind| Tensor::ones(size, (kind, Device::Cpu));
    let good = like([4, 2], Kind::Float);
    let refused = [
        (like([2, 4], Kind::Float), vec![good.copy(), good.copy()], "gradient"),
        (like([4, 2], Kind::Double), vec![good.copy(), good.copy()], "gradient"),
        (
            like([2, 4], Kind::Float).tr(),
            vec![good.copy(), good.copy()],
            "gradient",
        ),
        (good.copy(), vec![good.copy()], "without its slot 1"),
        (good.copy(), vec![good.copy(), like([4, 1], Kind::Float)], "slot"),
    ];
    for (gradient, slots, message) in refused {
        let update = Update {
            parameter: &parameter,
            gradient: &gradient,
            slots: &slots,
            element: ElementUpdate::Adam(ADAM),
        };
        let error = update_in_place(&[update], 1.0).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(parameter, good);
    }
}

/// What GPUs use is made of libtorch's operations; here they run on the host.
#[test]
fn lists_of_tensors_are_updated_alike() {
    for (element, slots) in elements() {
        let (one_by_one, lists) = (Tensors::new(Kind::Double, slots), Tensors::new(Kind::Double, slots));
        for inverse_scale in [0.5, 1.0] {
            let expected = one_by_one.update(Level::detected(), element, inverse_scale);
            let gradients: Vec<Tensor> = lists.gradients.iter().map(Tensor::copy).collect();
            let updates = (0..lists.parameters.len()).map(|i| Update {
                parameter: &lists.parameters[i],
                gradient: &lists.gradients[i],
                slots: &lists.slots[i],
                element,
            });
            update_lists(&updates.collect::<Vec<_>>(), inverse_scale).unwrap();
            let found = lists.parameters.iter().chain(lists.slots.iter().flatten());
            for (found, expected) in found.zip(&expected) {
                assert!(found.allclose(expected, 1e-12, 1e-12, false), "{element:?}");
            }
            assert_eq!(lists.gradients, gradients, "{element:?}");
        }
    }
}
