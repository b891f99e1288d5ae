//! The layers of a conditioner network that read its context. They need nothing else of the network, so they are computed
//! at its beginning as one group; the gradient of the context then is one, not one per layer to be added up.

use super::error::check_width;
use super::{Linear, NnError, ResidualBlock};
use crate::torch_ext::{linear_group, InputColumns, LinearLayer};
use tch::Tensor;

/// The gates of the blocks, `[batch, features]` each, for a context `[batch, context_features]`; none for blocks that have
/// no layers for a context.
pub(super) fn gates(blocks: &[ResidualBlock], context: Option<&Tensor>) -> Result<Vec<Tensor>, NnError> {
    let layers: Vec<&Linear> = blocks.iter().filter_map(ResidualBlock::context_layer).collect();
    let (Some(context), false) = (context, layers.is_empty()) else {
        return Ok(Vec::new());
    };
    let width = layers[0].in_features();
    check_width("context of residual blocks", context, width)?;
    let of_context = [InputColumns::all(0, width)];
    let group: Vec<LinearLayer> = (layers.iter().enumerate())
        .map(|(output, layer)| layer.in_group(&of_context, output))
        .collect();
    Ok(linear_group(&[context], &group)?)
}

/// What `layer` makes of `inputs` with the context after them, `[batch, features]`, and the gates of the blocks.
pub(super) fn initial_and_gates(
    layer: &Linear,
    inputs: &Tensor,
    blocks: &[ResidualBlock],
    context: &Tensor,
    context_width: usize,
) -> Result<(Tensor, Vec<Tensor>), NnError> {
    let input_width = layer.in_features().saturating_sub(context_width);
    check_width("residual network", inputs, input_width)?;
    check_width("context of a residual network", context, context_width)?;
    let of_both = [InputColumns::all(0, input_width), InputColumns::all(1, context_width)];
    let of_context = [InputColumns::all(1, context_width)];
    let mut group = vec![layer.in_group(&of_both, 0)];
    let layers = blocks.iter().filter_map(ResidualBlock::context_layer);
    group.extend(
        (1..)
            .zip(layers)
            .map(|(output, layer)| layer.in_group(&of_context, output)),
    );
    let mut outputs = linear_group(&[inputs, context], &group)?;
    let gates = outputs.split_off(1);
    Ok((outputs.remove(0), gates))
}
