//! The first layer of Dingo's embedding: projection of each detector's strain onto a reduced basis (arXiv:2106.12594).

use super::{Linear, NnError, Scope};
use crate::torch_ext::{linear_group, InputColumns, LinearLayer};
use tch::{no_grad, Kind, Tensor};

/// One linear layer per detector, from all its channels (real part, imaginary part, and others such as the ASD) and bins
/// to `n_rb` complex coefficients.
#[derive(Debug)]
pub struct LinearProjectionRb {
    layers_rb: Vec<Linear>,
    /// Detectors, channels, bins.
    input_dims: [usize; 3],
    n_rb: usize,
}

impl LinearProjectionRb {
    pub fn new(scope: &Scope, input_dims: [usize; 3], n_rb: usize) -> Result<Self, NnError> {
        let [detectors, channels, bins] = input_dims;
        let list = scope.child("layers_rb");
        let layers_rb = (0..detectors)
            .map(|i| Linear::new(&list.child(i), channels * bins, 2 * n_rb))
            .collect::<Result<_, _>>()?;
        Ok(LinearProjectionRb {
            layers_rb,
            input_dims,
            n_rb,
        })
    }

    /// Width of what [`forward`](Self::forward) gives: 2 · n_rb · detectors.
    pub fn output_dim(&self) -> usize {
        2 * self.n_rb * self.layers_rb.len()
    }

    /// Makes the layers the projections c = d V of the complex strain d onto the first `n_rb` columns of one basis V per
    /// detector, `[bins, n ≥ n_rb]` complex: outputs are the real parts, then the imaginary parts; other channels and the
    /// biases start at zero.
    pub fn set_basis(&self, bases: &[Tensor]) -> Result<(), NnError> {
        let [detectors, channels, bins] = self.input_dims;
        if bases.len() != detectors {
            let message = format!("{} SVD bases for {detectors} detectors", bases.len());
            return Err(NnError::settings("model.embedding_kwargs.svd", message));
        }
        if channels < 2 {
            let message = format!("{channels} channels, where real and imaginary part are needed");
            return Err(NnError::settings("model.embedding_kwargs.input_dims", message));
        }
        for v in bases {
            let actual = v.size();
            if actual.len() != 2 || actual[0] != bins as i64 || actual[1] < self.n_rb as i64 {
                let expected = format!("[{bins}, at least {}]", self.n_rb);
                return Err(NnError::Shape {
                    layer: "LinearProjectionRB (SVD basis)",
                    expected,
                    actual,
                });
            }
        }
        no_grad(|| {
            self.layers_rb
                .iter()
                .zip(bases)
                .try_for_each(|(layer, v)| self.fill(layer, v))
        })
    }

    fn fill(&self, layer: &Linear, v: &Tensor) -> Result<(), NnError> {
        let (n, bins) = (self.n_rb as i64, self.input_dims[2] as i64);
        let weight = layer.weight();
        let v = v.f_narrow(1, 0, n)?.f_transpose(0, 1)?;
        let (re, im) = (v.f_real()?.f_to_kind(Kind::Float)?, v.f_imag()?.f_to_kind(Kind::Float)?);
        let block = |row: i64, channel: i64| weight.narrow(0, row * n, n).narrow(1, channel * bins, bins);
        let _ = weight.shallow_clone().f_zero_()?;
        let _ = layer.bias().shallow_clone().f_zero_()?;
        // (x + iy)(re + i im): real part to the first n outputs, imaginary part to the others.
        block(0, 0).f_copy_(&re)?;
        block(0, 1).f_copy_(&im.f_neg()?)?;
        block(1, 0).f_copy_(&im)?;
        block(1, 1).f_copy_(&re)?;
        Ok(())
    }

    /// `[batch, detectors, channels, bins]` to `[batch, 2 · n_rb · detectors]`, detector by detector.
    pub fn forward(&self, strain: &Tensor) -> Result<Tensor, NnError> {
        let [detectors, channels, bins] = self.input_dims;
        let actual = strain.size();
        if actual.len() != 4 || actual[1..] != [detectors as i64, channels as i64, bins as i64] {
            let expected = format!("[batch, {detectors}, {channels}, {bins}]");
            return Err(NnError::Shape {
                layer: "LinearProjectionRB",
                expected,
                actual,
            });
        }
        let views: Vec<Tensor> = (0..detectors)
            .map(|i| strain.select(1, i as i64).flatten(1, -1))
            .collect();
        let reads: Vec<[InputColumns; 1]> = (0..detectors)
            .map(|i| [InputColumns::all(i, channels * bins)])
            .collect();
        let layers: Vec<LinearLayer> = (self.layers_rb.iter().zip(&reads))
            .map(|(layer, reads)| layer.in_group(reads, 0))
            .collect();
        let inputs: Vec<&Tensor> = views.iter().collect();
        Ok(linear_group(&inputs, &layers)?.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{build_module, BuildContext};
    use super::*;

    #[test]
    fn a_basis_makes_it_the_complex_projection() {
        let (detectors, bins, n_rb) = (2, 7, 3);
        let (layer, state) = build_module(&BuildContext::default(), |scope| {
            LinearProjectionRb::new(scope, [detectors, 3, bins], n_rb)
        })
        .unwrap();
        let options = (Kind::ComplexDouble, tch::Device::Cpu);
        let bases: Vec<Tensor> = (0..2).map(|_| Tensor::randn([bins as i64, 5], options)).collect();
        layer.set_basis(&bases).unwrap();
        assert!(state.parameters().iter().all(Tensor::requires_grad));

        let strain = Tensor::randn([4, detectors as i64, 3, bins as i64], tch::kind::FLOAT_CPU);
        let projected = layer.forward(&strain).unwrap();
        let double = strain.to_kind(Kind::Double);
        for (i, v) in bases.iter().enumerate() {
            let d = Tensor::complex(
                &double.select(1, i as i64).select(1, 0),
                &double.select(1, i as i64).select(1, 1),
            );
            let c = d.matmul(&v.narrow(1, 0, 3));
            let expected = Tensor::cat(&[c.real(), c.imag()], 1);
            let ours = projected.narrow(1, 6 * i as i64, 6).to_kind(Kind::Double);
            assert!((ours - expected).abs().max().double_value(&[]) < 1e-5);
        }
    }

    #[test]
    fn bases_and_strains_of_another_shape_are_refused() {
        let (layer, _) = build_module(&BuildContext::default(), |scope| {
            LinearProjectionRb::new(scope, [1, 2, 7], 3)
        })
        .unwrap();
        let v = |bins: i64, n: i64| Tensor::zeros([bins, n], (Kind::ComplexFloat, tch::Device::Cpu));
        assert!(layer
            .set_basis(&[v(7, 3), v(7, 3)])
            .unwrap_err()
            .to_string()
            .contains("2 SVD bases for 1 detectors"));
        assert!(layer
            .set_basis(&[v(7, 2)])
            .unwrap_err()
            .to_string()
            .contains("[7, at least 3], got [7, 2]"));
        assert!(layer.set_basis(&[v(6, 3)]).is_err());
        layer.set_basis(&[v(7, 3)]).unwrap();
        let strain = Tensor::zeros([5, 1, 2, 8], tch::kind::FLOAT_CPU);
        let message = layer.forward(&strain).unwrap_err().to_string();
        assert!(
            message.contains("[batch, 1, 2, 7]") && message.contains("[5, 1, 2, 8]"),
            "{message}"
        );
    }
}
