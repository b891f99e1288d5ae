//! Whether all ranks hold the same network.

use super::TrainError;
use crate::nn::ModuleState;
use crate::spmd::World;
use anyhow::Result;
use tch::Device;

/// Compares the ranks' parameters and buffers bit by bit, by a checksum. All ranks call this together and get the same
/// answer.
///
/// # Errors
/// [`TrainError::ReplicasDiffer`] naming the ranks on each side; what a collective says.
pub fn compare_replicas(world: &World, state: &ModuleState) -> Result<()> {
    let checksums = world.gather(u64::from(checksum(state)?))?;
    let mut groups: Vec<(u64, Vec<usize>)> = Vec::new();
    for (rank, &checksum) in checksums.iter().enumerate() {
        match groups.iter_mut().find(|(known, _)| *known == checksum) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((checksum, vec![rank])),
        }
    }
    if groups.len() == 1 {
        return Ok(());
    }
    let groups = groups.iter().map(|(_, ranks)| named(world, ranks));
    world.agree(Err(TrainError::ReplicasDiffer {
        groups: groups.collect::<Vec<_>>().join(" | "),
    }
    .into()))
}

/// CRC-32 of the bytes of all tensors in the order of their names' registration.
fn checksum(state: &ModuleState) -> Result<u32, TrainError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = Vec::new();
    for (_, tensor) in state.named_parameters().chain(state.named_buffers()) {
        let tensor = tensor.detach().f_to_device(Device::Cpu)?.f_contiguous()?;
        let elements = tensor.numel();
        bytes.resize(elements * tensor.f_kind()?.elt_size_in_bytes(), 0);
        tensor.f_copy_data_u8(&mut bytes, elements)?;
        hasher.update(&bytes);
    }
    Ok(hasher.finalize())
}

/// `rank 3 on node1, rank 7 on node2`, or the first few of many.
fn named(world: &World, ranks: &[usize]) -> String {
    const SHOWN: usize = 8;
    let name = |&rank: &usize| format!("rank {rank} on {}", world.hosts[rank]);
    let mut text = ranks.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if ranks.len() > SHOWN {
        text += &format!(" and {} more", ranks.len() - SHOWN);
    }
    text
}
