use super::super::{
    choose_matrix_library, clear_grad, set_grad, set_post_accumulate_grad_hook, Autocast, MatrixLibrary, OpCounter,
};
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use tch::{kind, no_grad, Device, Kind};

/// Three layers of two inputs: the first reads both, the others different columns of the second; the last two share an
/// output.
struct Case {
    inputs: [Tensor; 2],
    weights: [Tensor; 3],
    biases: [Tensor; 3],
}

const READS: [&[(usize, Range<usize>)]; 3] = [&[(0, 0..5), (1, 0..70)], &[(1, 0..70)], &[(1, 0..70)]];

impl Case {
    fn new(kind: Kind, batch: i64) -> Case {
        tch::manual_seed(3);
        let leaf = |shape: &[i64]| Tensor::randn(shape, (kind, Device::Cpu)).set_requires_grad(true);
        Case {
            inputs: [leaf(&[batch, 5]), leaf(&[batch, 70])],
            weights: [leaf(&[130, 75]), leaf(&[9, 70]), leaf(&[4, 70])],
            biases: [leaf(&[130]), leaf(&[9]), leaf(&[4])],
        }
    }

    fn leaves(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.weights).chain(&self.biases)
    }

    fn grouped(&self) -> Vec<Tensor> {
        let reads = READS.map(|parts| {
            let columns = |(input, columns): &(usize, Range<usize>)| InputColumns {
                input: *input,
                columns: columns.clone(),
            };
            parts.iter().map(columns).collect::<Vec<_>>()
        });
        let layer = |i: usize| LinearLayer {
            weight: &self.weights[i],
            bias: &self.biases[i],
            reads: &reads[i],
            output: i.min(1),
        };
        linear_group(&[&self.inputs[0], &self.inputs[1]], &[0, 1, 2].map(layer)).unwrap()
    }

    fn plain(&self) -> Vec<Tensor> {
        let both = Tensor::cat(&self.inputs, 1);
        let layer = |x: &Tensor, i: usize| x.linear(&self.weights[i], Some(&self.biases[i]));
        let second = Tensor::cat(&[layer(&self.inputs[1], 1), layer(&self.inputs[1], 2)], 1);
        vec![layer(&both, 0), second]
    }

    /// The gradients of all leaves; undefined for those that need none.
    fn gradients(&self, outputs: &[Tensor]) -> Vec<Tensor> {
        self.leaves().for_each(|leaf| clear_grad(leaf).unwrap());
        let loss: Tensor = outputs.iter().map(|y| (y * y.cos()).sum(Kind::Float)).sum();
        loss.backward();
        self.leaves().map(Tensor::grad).collect()
    }
}

fn assert_close(ours: &Tensor, theirs: &Tensor, tolerance: f64) {
    assert_eq!(ours.defined(), theirs.defined());
    if ours.defined() {
        assert_eq!((ours.size(), ours.kind()), (theirs.size(), theirs.kind()));
        let difference = (ours - theirs).abs().max().double_value(&[]);
        let scale = theirs.abs().max().double_value(&[]);
        assert!(difference <= tolerance * scale, "{difference:e} of {scale}");
    }
}

#[test]
fn a_group_is_its_layers_by_every_library() {
    for library in MatrixLibrary::ALL {
        choose_matrix_library(library);
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::Double, 1e-12)] {
            let case = Case::new(kind, 33);
            let (ours, theirs) = (case.grouped(), case.plain());
            ours.iter()
                .zip(&theirs)
                .for_each(|(a, b)| assert_close(a, b, tolerance));
            let (ours, theirs) = (case.gradients(&ours), case.gradients(&theirs));
            ours.iter()
                .zip(&theirs)
                .for_each(|(a, b)| assert_close(a, b, tolerance));
        }
    }
    choose_matrix_library(MatrixLibrary::Mkl);
}

#[test]
fn only_what_is_wanted_is_computed() {
    let case = Case::new(Kind::Float, 17);
    for frozen in [&case.inputs[0], &case.weights[0], &case.biases[1]] {
        let _ = frozen.set_requires_grad(false);
    }
    let gradients = case.gradients(&case.grouped());
    let defined: Vec<bool> = gradients.iter().map(Tensor::defined).collect();
    assert_eq!(defined, [false, true, false, true, true, true, false, true]);
    // With a gradient for one of the outputs only.
    let first = |outputs: Vec<Tensor>| outputs.into_iter().take(1).collect::<Vec<_>>();
    let (ours, theirs) = (first(case.grouped()), first(case.plain()));
    let (ours, theirs) = (case.gradients(&ours), case.gradients(&theirs));
    ours.iter().zip(&theirs).for_each(|(a, b)| assert_close(a, b, 1e-5));
    assert!(no_grad(|| case.grouped()).iter().all(|output| !output.requires_grad()));
}

#[test]
fn rows_may_lie_apart() {
    let wide = Tensor::randn([20, 3, 40], kind::FLOAT_CPU);
    let (weight, bias) = (
        Tensor::randn([8, 40], kind::FLOAT_CPU),
        Tensor::randn([8], kind::FLOAT_CPU),
    );
    let weight = weight.set_requires_grad(true);
    for x in [wide.select(1, 1), wide.select(1, 0).tr().contiguous().tr()] {
        let (ours, theirs) = (linear(&x, &weight, &bias).unwrap(), x.linear(&weight, Some(&bias)));
        assert_close(&ours, &theirs, 1e-5);
        // A gradient whose rows are the same memory.
        let gradient = |y: &Tensor| Tensor::run_backward(&[y.sum(Kind::Float)], &[&weight], false, false).remove(0);
        assert_close(&gradient(&ours), &gradient(&theirs), 1e-5);
    }
}

/// As in a flow of one parameter, whose conditioner networks have nothing but the context.
#[test]
fn an_input_may_have_no_columns() {
    let nothing = Tensor::zeros([6, 0], kind::FLOAT_CPU).set_requires_grad(true);
    let leaf = |shape: &[i64]| Tensor::randn(shape, kind::FLOAT_CPU).set_requires_grad(true);
    let (x, weight, bias) = (leaf(&[6, 4]), leaf(&[3, 4]), leaf(&[3]));
    let layer = LinearLayer {
        weight: &weight,
        bias: &bias,
        reads: &[InputColumns::all(0, 0), InputColumns::all(1, 4)],
        output: 0,
    };
    let y = linear_group(&[&nothing, &x], &[layer]).unwrap().remove(0);
    assert_close(&y, &x.linear(&weight, Some(&bias)), 1e-5);
    y.square().sum(Kind::Float).backward();
    assert_eq!(nothing.grad().size(), [6, 0]);
    assert!(weight.grad().abs().min().double_value(&[]) > 0.0);
}

#[test]
fn autocast_and_empty_batches_are_as_in_libtorch() {
    let case = Case::new(Kind::Float, 33);
    let _autocast = Autocast::on(Device::Cpu, Kind::BFloat16).unwrap();
    let (ours, theirs) = (case.grouped(), case.plain());
    assert_eq!(ours[0].kind(), Kind::BFloat16);
    ours.iter().zip(&theirs).for_each(|(a, b)| assert!(a.equal(b)));
    drop(_autocast);
    let empty = Case::new(Kind::Float, 0);
    assert_eq!(empty.grouped()[1].size(), [0, 13]);
    let gradients = empty.gradients(&empty.grouped());
    assert!(gradients[2].equal(&Tensor::zeros([130, 75], kind::FLOAT_CPU)));
}

/// As a gradient reducer has them: a gradient that is there already, and a hook.
#[test]
fn gradients_of_a_reducer_s_parameters_are_added_in_place() {
    let case = Case::new(Kind::Float, 33);
    let expected = case.gradients(&case.plain());
    let calls = Arc::new(AtomicUsize::new(0));
    let parameters: Vec<&Tensor> = case.weights.iter().chain(&case.biases).collect();
    let mut places = Vec::new();
    let mut hooks = Vec::new();
    for parameter in &parameters {
        let place = parameter.ones_like();
        set_grad(parameter, &place).unwrap();
        places.push(place);
        let calls = calls.clone();
        let count = Box::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        hooks.push(set_post_accumulate_grad_hook(parameter, count).unwrap());
    }
    case.inputs.iter().for_each(|input| clear_grad(input).unwrap());
    let outputs = case.grouped();
    let loss: Tensor = outputs.iter().map(|y| (y * y.cos()).sum(Kind::Float)).sum();
    loss.backward();
    assert_eq!(calls.load(Ordering::Relaxed), parameters.len());
    for ((parameter, place), expected) in parameters.iter().zip(&places).zip(&expected[2..]) {
        assert_eq!(parameter.grad().data_ptr(), place.data_ptr());
        assert_close(&(place - 1.0), expected, 1e-5);
    }
}

#[test]
fn a_layer_calls_no_operator_of_libtorch() {
    let case = Case::new(Kind::Float, 33);
    let (x, weight, bias) = (&case.inputs[1], &case.weights[1], &case.biases[1]);
    let ours = || linear(x, weight, bias).unwrap();
    let plain = || x.linear(weight, Some(bias));
    // Other tests run beside this one: the least of some trials.
    let least = |trial: &dyn Fn() -> u64| (0..50).map(|_| trial()).min().unwrap();
    let forward = || {
        let counter = OpCounter::start().unwrap();
        let _output = ours();
        counter.calls()
    };
    assert_eq!(least(&forward), 0);
    let backward = |layer: &dyn Fn() -> Tensor| {
        let loss = layer().square().sum(Kind::Float);
        let counter = OpCounter::start().unwrap();
        let _gradients = Tensor::run_backward(&[loss], &[x, weight, bias], false, false);
        counter.calls()
    };
    let (ours, plain) = (least(&|| backward(&ours)), least(&|| backward(&plain)));
    // There it is two products, a sum and the views around them.
    assert!(ours + 5 <= plain, "{ours} and {plain}");
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let zeros = |shape: &[i64]| Tensor::zeros(shape, kind::FLOAT_CPU);
    let message = linear(&zeros(&[3, 4]), &zeros(&[2, 5]), &zeros(&[2]))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("4 features") && message.contains("[2, 5]"),
        "{message}"
    );
    assert!(linear(&zeros(&[3, 4]), &zeros(&[2, 4]), &zeros(&[3])).is_err());
    assert!(linear(&zeros(&[4]), &zeros(&[2, 4]), &zeros(&[2])).is_err());
    let reads = [InputColumns {
        input: 1,
        columns: 0..4,
    }];
    let (weight, bias) = (zeros(&[2, 4]), zeros(&[2]));
    let layer = LinearLayer {
        weight: &weight,
        bias: &bias,
        reads: &reads,
        output: 0,
    };
    assert!(linear_group(&[&zeros(&[3, 4])], &[layer]).is_err());
}
