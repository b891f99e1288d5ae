//! An invertible linear map with a cheap determinant: W = L U (Kingma and Dhariwal 2018, arXiv:1807.03039, section 3.2, with the
//! permutation left to a transform of its own).

use super::super::error::check_width;
use super::{single_precision, Mode, NnError, Transform, Transformed};
use crate::nn::{Init, Scope};
use crate::torch_ext::{lu_linear, lu_linear_takes, LuParameters};
use tch::{Device, Kind, Tensor};

/// Added to the diagonal of U, which stays positive and away from zero.
const EPS: f64 = 1e-3;

/// y = L U x + b. L has a unit diagonal, U the diagonal softplus(`unconstrained_upper_diag`) + EPS. Starts as the identity.
pub struct LuLinear {
    bias: Tensor,
    /// Below the diagonal of L, row by row.
    lower_entries: Tensor,
    /// Above the diagonal of U, row by row.
    upper_entries: Tensor,
    unconstrained_upper_diag: Tensor,
    lower_positions: Tensor,
    upper_positions: Tensor,
    features: usize,
}

impl LuLinear {
    pub fn new(scope: &Scope, features: usize) -> Result<Self, NnError> {
        let entries = features * features.saturating_sub(1) / 2;
        let zero = Init::Constant(0.0);
        // softplus of this is 1 - EPS.
        let one = Init::Constant(((1.0 - EPS).exp() - 1.0).ln());
        Ok(LuLinear {
            bias: scope.parameter("bias", &[features], zero)?,
            lower_entries: scope.parameter("lower_entries", &[entries], zero)?,
            upper_entries: scope.parameter("upper_entries", &[entries], zero)?,
            unconstrained_upper_diag: scope.parameter("unconstrained_upper_diag", &[features], one)?,
            lower_positions: positions(features, |row, column| column < row, scope.device())?,
            upper_positions: positions(features, |row, column| column > row, scope.device())?,
            features,
        })
    }

    /// `[features]`.
    fn upper_diagonal(&self) -> Tensor {
        self.unconstrained_upper_diag.softplus() + EPS
    }

    /// L and U, `[features, features]`, and the diagonal of U.
    fn factors(&self) -> (Tensor, Tensor, Tensor) {
        let n = self.features as i64;
        let place = |entries: &Tensor, positions: &Tensor| {
            let flat = Tensor::zeros([n * n], (entries.kind(), entries.device()));
            flat.scatter(0, positions, entries).view([n, n])
        };
        let diagonal = self.upper_diagonal();
        let ones = Tensor::ones_like(&diagonal);
        let lower = place(&self.lower_entries, &self.lower_positions) + ones.diag(0);
        let upper = place(&self.upper_entries, &self.upper_positions) + diagonal.diag(0);
        (lower, upper, diagonal)
    }
}

/// Places in a row-major `[n, n]` matrix, row by row, as `[count]` indices.
fn positions(n: usize, wanted: impl Fn(usize, usize) -> bool, device: Device) -> Result<Tensor, NnError> {
    let places: Vec<i64> = (0..n * n).filter(|i| wanted(i / n, i % n)).map(|i| i as i64).collect();
    Ok(Tensor::f_from_slice(&places)?.f_to_device(device)?)
}

impl LuLinear {
    fn parameters(&self) -> LuParameters<'_> {
        LuParameters {
            bias: &self.bias,
            lower_entries: &self.lower_entries,
            upper_entries: &self.upper_entries,
            unconstrained_upper_diag: &self.unconstrained_upper_diag,
            eps: EPS,
        }
    }

    /// By libtorch's operations, for other devices and kinds.
    fn forward_plainly(&self, inputs: &Tensor) -> Result<(Tensor, Tensor), NnError> {
        let _single = single_precision(inputs)?;
        let (lower, upper, diagonal) = self.factors();
        let outputs = inputs.linear(&upper, None::<Tensor>).linear(&lower, Some(&self.bias));
        Ok((outputs, diagonal.log().sum(None::<Kind>)))
    }
}

impl Transform for LuLinear {
    fn forward(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        check_width("LULinear", inputs, self.features)?;
        let (outputs, logabsdet) = match lu_linear_takes(inputs) {
            true => lu_linear(inputs, self.parameters())?,
            false => self.forward_plainly(inputs)?,
        };
        Ok((outputs, Some(logabsdet)))
    }

    fn inverse(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        check_width("LULinear", inputs, self.features)?;
        let (lower, upper, diagonal) = self.factors();
        // Columns are samples: L U X = (Y - b)ᵀ.
        let outputs = lower.f_linalg_solve_triangular(&(inputs - &self.bias).tr(), false, true, true)?;
        let outputs = upper.f_linalg_solve_triangular(&outputs, true, true, false)?.tr();
        Ok((outputs, Some(diagonal.log().sum(None::<Kind>).neg())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{build_module, BuildContext};
    use tch::{kind, no_grad};

    #[test]
    fn the_fused_function_is_the_plain_one() {
        tch::manual_seed(4);
        // More features than one tile of the kernel, and more rows than one chunk.
        for (features, rows) in [(1, 3), (5, 200), (17, 130), (4, 0)] {
            let (layer, state) =
                build_module(&BuildContext::default(), |scope| LuLinear::new(scope, features)).unwrap();
            no_grad(|| {
                for mut parameter in state.parameters() {
                    let noise = parameter.randn_like() * 0.3;
                    let _ = parameter.g_add_(&noise);
                }
            });
            let x = Tensor::randn([rows, features as i64], kind::FLOAT_CPU).set_requires_grad(true);
            let mut wanted = state.parameters();
            wanted.push(x.shallow_clone());
            let gradients = |(y, logabsdet): &(Tensor, Tensor)| {
                let loss = (y * y.sin()).sum(Kind::Float) + logabsdet.square();
                Tensor::run_backward(&[loss], &wanted, false, false)
            };
            let ours = lu_linear(&x, layer.parameters()).unwrap();
            let theirs = layer.forward_plainly(&x).unwrap();
            assert_eq!((ours.0.size(), ours.1.size()), (theirs.0.size(), theirs.1.size()));
            let close = |a: &Tensor, b: &Tensor| assert!(a.allclose(b, 1e-4, 1e-4, false), "{features}: {a} {b}");
            close(&ours.0, &theirs.0);
            close(&ours.1, &theirs.1);
            for (ours, theirs) in gradients(&ours).iter().zip(gradients(&theirs)) {
                close(ours, &theirs);
            }
        }
    }

    #[test]
    fn frozen_parameters_get_no_gradient_and_others_shapes_are_refused() {
        let (layer, state) = build_module(&BuildContext::default(), |scope| LuLinear::new(scope, 3)).unwrap();
        for parameter in state.parameters() {
            let _ = parameter.set_requires_grad(false);
        }
        let x = Tensor::randn([4, 3], kind::FLOAT_CPU).set_requires_grad(true);
        let (y, logabsdet) = lu_linear(&x, layer.parameters()).unwrap();
        (y.sum(Kind::Float) + logabsdet).backward();
        // The identity at first.
        assert!(x.grad().allclose(&x.ones_like(), 1e-6, 1e-6, false));
        assert!(state.parameters().iter().all(|parameter| !parameter.grad().defined()));
        assert!(lu_linear(&Tensor::zeros([4, 2], kind::FLOAT_CPU), layer.parameters()).is_err());
        assert!(lu_linear(&x.to_kind(Kind::Double), layer.parameters()).is_err());
    }
}
