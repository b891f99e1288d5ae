//! The running statistics of batch normalization, as one flat tensor: kept from a step that is not made, and averaged where
//! each rank normalizes by its own share.

use crate::nn::ModuleState;
use crate::spmd::{Collectives, World};
use anyhow::Result;
use tch::{no_grad, Kind, Tensor};

/// All floating-point buffers of a network (the means and variances of its BatchNorm layers), which become views into one
/// tensor, so that each of the methods is one operation whatever the number of layers.
pub struct RunningStatistics {
    /// None where the network has no such buffer.
    flat: Option<Tensor>,
    kept: Option<Tensor>,
    /// Whether the ranks' statistics differ between averages.
    per_rank: bool,
}

impl RunningStatistics {
    /// `per_rank`: whether each rank normalizes by its own share (`local.sync_batch_norm: false`).
    pub fn new(state: &ModuleState, per_rank: bool) -> Result<RunningStatistics> {
        let buffers: Vec<Tensor> = state
            .named_buffers()
            .filter(|(_, buffer)| buffer.kind() == Kind::Float)
            .map(|(_, buffer)| buffer.shallow_clone())
            .collect();
        if buffers.is_empty() {
            return Ok(RunningStatistics {
                flat: None,
                kept: None,
                per_rank,
            });
        }
        let parts = buffers.iter().map(|buffer| buffer.f_reshape([-1]));
        let flat = Tensor::f_cat(&parts.collect::<Result<Vec<_>, _>>()?, 0)?;
        let mut start = 0;
        for mut buffer in buffers {
            let length = buffer.numel() as i64;
            let view = flat.f_narrow(0, start, length)?.f_view(buffer.size().as_slice())?;
            // The layers' handles stay what they are; their memory moves.
            buffer.f_set_data(&view)?;
            start += length;
        }
        Ok(RunningStatistics {
            kept: Some(flat.f_empty_like()?),
            flat: Some(flat),
            per_rank,
        })
    }

    /// Remembers the statistics as they are.
    pub fn keep(&mut self) -> Result<()> {
        copy(&self.flat, &mut self.kept)
    }

    /// Brings back what was kept: a batch whose step is not made leaves no trace.
    pub fn bring_back(&mut self) -> Result<()> {
        copy(&self.kept, &mut self.flat)
    }

    /// The same where `found` (`[1]`) is not zero, without a look at it.
    pub fn bring_back_where(&mut self, found: &Tensor) -> Result<()> {
        if let (Some(kept), Some(flat)) = (&self.kept, &mut self.flat) {
            no_grad(|| flat.f_copy_(&kept.f_where_self(&found.f_gt(0)?, flat)?))?;
        }
        Ok(())
    }

    /// The statistics of all ranks, `[ranks, n]`, where each has its own: what a run inside an epoch goes on from. All ranks
    /// call this together.
    pub fn of_ranks(&self, world: &World) -> Result<Option<Tensor>> {
        match &self.flat {
            Some(flat) if self.per_rank && world.size > 1 => Ok(Some(world.network_collectives().all_gather(flat)?)),
            _ => Ok(None),
        }
    }

    /// Takes back what `of_ranks` gave, on the same number of ranks; on another they begin with their average, which is what
    /// the network holds.
    pub fn take_own(&mut self, world: &World, of_ranks: &Tensor) -> Result<()> {
        if let (Some(flat), true) = (&mut self.flat, self.per_rank) {
            if of_ranks.size() == [world.size as i64, flat.numel() as i64] {
                no_grad(|| flat.f_copy_(&of_ranks.f_select(0, world.rank as i64)?))?;
            }
        }
        Ok(())
    }

    /// Where ranks normalize by their own shares, makes the statistics their average: what a test or a checkpoint needs. All
    /// ranks call this together.
    pub fn average(&mut self, world: &World) -> Result<()> {
        if let (Some(flat), true) = (&mut self.flat, self.per_rank && world.size > 1) {
            let _ = no_grad(|| flat.f_div_scalar_(world.size as f64))?;
            world.network_collectives().all_reduce_sum(flat)?;
        }
        Ok(())
    }
}

fn copy(from: &Option<Tensor>, to: &mut Option<Tensor>) -> Result<()> {
    if let (Some(from), Some(to)) = (from, to) {
        no_grad(|| to.f_copy_(from))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{build_module, BatchNorm1d, BuildContext, Mode};

    #[test]
    fn layers_and_flat_tensor_are_one_memory() {
        let (layers, state) = build_module(&BuildContext::default(), |scope| {
            Ok([
                BatchNorm1d::new(&scope.child(0), 3)?,
                BatchNorm1d::new(&scope.child(1), 3)?,
            ])
        })
        .unwrap();
        let mut statistics = RunningStatistics::new(&state, false).unwrap();
        let mean = || Vec::<f32>::try_from(state.get("1.running_mean").unwrap()).unwrap();
        let train = |value: f32| {
            let input = Tensor::from_slice(&[value; 6]).view([2, 3]);
            let _ = layers[1].forward(&input, Mode::Train).unwrap();
        };
        train(10.0);
        assert_eq!(mean(), [1.0; 3]);
        statistics.keep().unwrap();
        train(f32::NAN);
        assert!(mean()[0].is_nan());
        statistics.bring_back().unwrap();
        assert_eq!(mean(), [1.0; 3]);

        // Loading copies into the same memory.
        state.load(&state.state_dict()).unwrap();
        train(1.0);
        assert_eq!(mean(), [1.0; 3]);
        assert_eq!(statistics.flat.as_ref().unwrap().size(), [12]);
        let output = layers[1]
            .forward(&Tensor::ones([1, 3], tch::kind::FLOAT_CPU), Mode::Eval)
            .unwrap();
        assert_eq!(output.double_value(&[0, 0]), 0.0);
    }
}
