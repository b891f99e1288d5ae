//! Dingo's `ModuleMerger`: one embedding per kind of context, side by side.

use super::{Mode, NnError};
use tch::Tensor;

/// A network with one input.
pub trait Module {
    /// The first axis is the batch.
    fn forward(&self, input: &Tensor, mode: Mode) -> Result<Tensor, NnError>;
}

/// `torch.nn.Identity`.
#[derive(Debug, Clone, Copy)]
pub struct Identity;

impl Module for Identity {
    fn forward(&self, input: &Tensor, _mode: Mode) -> Result<Tensor, NnError> {
        Ok(input.shallow_clone())
    }
}

/// Embeds the i-th context with the i-th network and concatenates what comes out.
pub struct ModuleMerger {
    enets: Vec<Box<dyn Module>>,
}

impl ModuleMerger {
    /// The networks are registered by the caller, as `enets.0`, `enets.1`, …
    pub fn new(enets: Vec<Box<dyn Module>>) -> Self {
        ModuleMerger { enets }
    }

    /// `[batch, …]` each, to `[batch, sum of the widths]`.
    pub fn forward(&self, inputs: &[Tensor], mode: Mode) -> Result<Tensor, NnError> {
        check_number_of_inputs(inputs, self.enets.len())?;
        let embedded = (self.enets.iter().zip(inputs))
            .map(|(enet, input)| enet.forward(input, mode))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::f_cat(&embedded, 1)?)
    }
}

pub(super) fn check_number_of_inputs(inputs: &[Tensor], expected: usize) -> Result<(), NnError> {
    if inputs.len() == expected {
        return Ok(());
    }
    let message = format!(
        "expected {expected} kinds of context (strain, then proxies if any), got {}",
        inputs.len()
    );
    Err(NnError::Undefined {
        layer: "embedding network",
        message,
    })
}
