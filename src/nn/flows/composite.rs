//! Transforms one after the other.

use super::{Mode, NnError, Transform, Transformed};
use crate::torch_ext::log_density;
use tch::Tensor;

/// The transforms in the order of the forward direction.
pub struct CompositeTransform {
    transforms: Vec<Box<dyn Transform>>,
}

impl CompositeTransform {
    /// The transforms are registered by the caller, as `_transforms.0`, `_transforms.1`, …
    pub fn new(transforms: Vec<Box<dyn Transform>>) -> Self {
        CompositeTransform { transforms }
    }
}

impl Transform for CompositeTransform {
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        cascade(inputs, self.transforms.iter(), |transform, x| {
            transform.forward(x, context, mode)
        })
    }

    fn inverse(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        cascade(inputs, self.transforms.iter().rev(), |transform, x| {
            transform.inverse(x, context, mode)
        })
    }
}

/// Applies each transform to the outcome of the one before and adds up log |det J|.
fn cascade<'a>(
    inputs: &Tensor,
    transforms: impl Iterator<Item = &'a Box<dyn Transform>>,
    apply: impl Fn(&dyn Transform, &Tensor) -> Result<Transformed, NnError>,
) -> Result<Transformed, NnError> {
    let mut outputs = inputs.shallow_clone();
    let mut logabsdets = Vec::new();
    for transform in transforms {
        let (x, logabsdet) = apply(transform.as_ref(), &outputs)?;
        outputs = x;
        logabsdets.extend(logabsdet);
    }
    // One of them alone is left as it is, to be added up with those of other transforms.
    if logabsdets.len() > 1 {
        let terms: Vec<&Tensor> = logabsdets.iter().collect();
        logabsdets = vec![log_density(&terms, None, inputs.size()[0])?];
    }
    Ok((outputs, logabsdets.pop()))
}
