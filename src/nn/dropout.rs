//! `torch.nn.Dropout` (Srivastava et al. 2014, JMLR 15:1929).

use super::{Mode, Scope};
use crate::torch_ext::cuda::put;
use crate::torch_ext::random::RandomStream;
use std::cell::Cell;
use std::rc::Rc;
use tch::{TchError, Tensor};

/// Where a pass through the network stands in a training. Dropout draws its masks by it, sample by sample, so that they
/// depend neither on the number of ranks nor on what was drawn before, and a resumed run goes on with the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingPass {
    pub epoch: u64,
    /// Number of the batch in the epoch.
    pub batch: u64,
    /// Place of the first of this rank's samples in the global batch.
    pub first_sample: u64,
}

/// The pass under way; a network's layers share it with whoever trains. None outside of a training.
pub(super) type CurrentPass = Rc<Cell<Option<TrainingPass>>>;

/// In training sets each value to zero with probability `probability` and scales the others up to keep the mean.
#[derive(Debug, Clone)]
pub struct Dropout {
    probability: f64,
    /// Tells the layers of a network, and runs of different seeds, apart.
    key: [u32; 2],
    pass: CurrentPass,
}

/// Random numbers of a Philox block.
const WORDS: usize = 4;

impl Dropout {
    /// The layer has no parameters; its place in the scope tells its random numbers from those of other layers.
    pub fn new(scope: &Scope, probability: f64) -> Self {
        let key = scope.generator("dropout").next_u64();
        Dropout {
            probability,
            key: [key as u32, (key >> 32) as u32],
            pass: scope.current_pass(),
        }
    }

    /// `[batch, ...]`. Outside of a training (see [`TrainingPass`]), masks come from libtorch's global generator.
    pub fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor, TchError> {
        if !mode.is_training() || self.probability == 0.0 {
            return Ok(x.shallow_clone());
        }
        match self.pass.get() {
            None => x.f_dropout(self.probability, true),
            Some(pass) => x.f_mul(&self.mask(pass, x)?),
        }
    }

    /// Zeros and 1/(1 - probability), like `x`. Each sample has blocks of its own.
    fn mask(&self, pass: TrainingPass, x: &Tensor) -> Result<Tensor, TchError> {
        let shape = x.size();
        let samples = shape.first().map_or(0, |&samples| samples as usize);
        let features = x.numel() / samples.max(1);
        let blocks_per_sample = features.div_ceil(WORDS);
        let stream = RandomStream {
            key: self.key,
            counter: [pass.epoch as u32, pass.batch as u32, (pass.batch >> 32) as u32],
        };
        let mut blocks = vec![[0; WORDS]; samples * blocks_per_sample];
        let position = (pass.first_sample as u32).wrapping_mul(blocks_per_sample as u32);
        stream.blocks(position, &mut blocks);

        let dropped_below = (self.probability * 2f64.powi(32)) as u32;
        let kept = (1.0 / (1.0 - self.probability)) as f32;
        let value = |&word: &u32| if word < dropped_below { 0.0 } else { kept };
        let mut mask: Vec<f32> = Vec::with_capacity(samples * features);
        for sample in blocks.chunks(blocks_per_sample.max(1)) {
            mask.extend(sample.as_flattened().iter().take(features).map(value));
        }
        let mask = Tensor::f_from_slice(&mask)?.f_reshape(shape)?.f_to_kind(x.kind())?;
        put(&mask, x.device()).map_err(|error| TchError::Torch(error.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{build_module, BuildContext, ModuleState};
    use super::*;

    fn layers(probability: f64) -> ([Dropout; 2], ModuleState) {
        let layer = |scope: &Scope, name: &str| Dropout::new(&scope.child(name), probability);
        build_module(&BuildContext::default(), |scope| {
            Ok([layer(scope, "first"), layer(scope, "second")])
        })
        .unwrap()
    }

    fn ones(samples: i64, features: i64) -> Tensor {
        Tensor::ones([samples, features], tch::kind::FLOAT_CPU)
    }

    const PASS: TrainingPass = TrainingPass {
        epoch: 3,
        batch: 7,
        first_sample: 0,
    };

    /// With and without a position in a training.
    #[test]
    fn drops_its_share_in_training_alone() {
        let x = ones(200, 501);
        let ([layer, _], state) = layers(0.2);
        assert_eq!(layer.forward(&x, Mode::Eval).unwrap(), x);
        assert_eq!(layers(0.0).0[0].forward(&x, Mode::Train).unwrap(), x);
        for in_training in [false, true] {
            if in_training {
                state.begin_pass(PASS);
            }
            let dropped = layer.forward(&x, Mode::Train).unwrap();
            // Binomial(1e5, 0.8): the share has a standard deviation of 1.3e-3.
            let kept = dropped.count_nonzero(None).int64_value(&[]) as f64 / x.numel() as f64;
            assert!((kept - 0.8).abs() < 6e-3, "{kept}");
            assert!((dropped.max().double_value(&[]) - 1.25).abs() < 1e-6);
        }
        assert_eq!(layer.forward(&x, Mode::Eval).unwrap(), x);
    }

    #[test]
    fn ranks_that_share_a_batch_draw_what_one_would() {
        let ([layer, _], state) = layers(0.5);
        state.begin_pass(PASS);
        let x = Tensor::randn([17, 9], tch::kind::FLOAT_CPU);
        let whole = layer.forward(&x, Mode::Train).unwrap();
        assert_eq!(
            layer.forward(&x, Mode::Train).unwrap(),
            whole,
            "the same pass, the same mask"
        );
        for (first, samples) in [(0, 4), (4, 4), (8, 4), (12, 5)] {
            state.begin_pass(TrainingPass {
                first_sample: first,
                ..PASS
            });
            let part = layer.forward(&x.narrow(0, first as i64, samples), Mode::Train).unwrap();
            assert_eq!(part, whole.narrow(0, first as i64, samples));
        }
    }

    #[test]
    fn passes_and_layers_differ() {
        let ([first, second], state) = layers(0.5);
        let x = ones(40, 100);
        let mask = |layer: &Dropout, pass| {
            state.begin_pass(pass);
            layer.forward(&x, Mode::Train).unwrap()
        };
        let one = mask(&first, PASS);
        let others = [
            mask(&second, PASS),
            mask(&first, TrainingPass { batch: 8, ..PASS }),
            mask(&first, TrainingPass { epoch: 4, ..PASS }),
        ];
        for other in others {
            // Half of 4000 values agree by chance, to within 32 (one standard deviation).
            let same = one.eq_tensor(&other).sum(tch::Kind::Int64).int64_value(&[]);
            assert!((same - 2000).abs() < 160, "{same}");
        }
    }

    #[test]
    fn gradients_pass_where_values_do() {
        let ([layer, _], state) = layers(0.5);
        state.begin_pass(PASS);
        let x = ones(5, 8).set_requires_grad(true);
        let dropped = layer.forward(&x, Mode::Train).unwrap();
        dropped.sum(tch::Kind::Float).backward();
        assert_eq!(x.grad(), dropped.detach());
    }
}
