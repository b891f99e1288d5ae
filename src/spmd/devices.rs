//! Which GPU each rank takes.

use super::topology::plural;
use crate::settings::SettingsError;
use std::collections::{BTreeMap, BTreeSet};

/// What tells GPUs apart, whatever number a process knows them by: CUDA's UUID.
pub(super) type Identity = [u8; 16];

/// What a rank can take a GPU from.
#[derive(Debug, Clone, Default)]
pub(super) struct Visible {
    pub host: String,
    /// Ranks with the same number share a node.
    pub node: usize,
    /// In the order of this rank's numbers.
    pub gpus: Vec<Identity>,
    /// Why there is none.
    pub none_since: String,
}

/// The number of each rank's GPU, as that rank counts: the first that no rank before it has taken. Where the ranks of a node
/// see the same GPUs that is the GPU of its local rank; where each sees one of its own, as some schedulers bind them, it is 0.
///
/// # Errors
/// A rank without a GPU to itself, with the key `local.device`.
pub(super) fn assign(ranks: &[Visible]) -> Result<Vec<usize>, SettingsError> {
    let mut taken = BTreeMap::new();
    let mut numbers = Vec::with_capacity(ranks.len());
    for (rank, visible) in ranks.iter().enumerate() {
        let free = visible.gpus.iter().position(|gpu| !taken.contains_key(gpu));
        let number = free.ok_or_else(|| SettingsError::key("local.device", none_left(ranks, rank, &taken)))?;
        taken.insert(visible.gpus[number], rank);
        numbers.push(number);
    }
    Ok(numbers)
}

fn none_left(ranks: &[Visible], rank: usize, taken: &BTreeMap<Identity, usize>) -> String {
    let Visible {
        host,
        node,
        gpus,
        none_since,
    } = &ranks[rank];
    if gpus.is_empty() {
        return format!("is cuda, but rank {rank} on {host} has no GPU: {none_since}");
    }
    let on_node = || ranks.iter().filter(|other| other.node == *node);
    let there: BTreeSet<&Identity> = on_node().flat_map(|other| &other.gpus).collect();
    let ranks_there = on_node().count();
    if there.len() < ranks_there {
        return format!(
            "is cuda, but {host} has {} and {}. Each rank needs a GPU of its own, since NCCL refuses two ranks on one: start \
             no more ranks on a node than it has GPUs (Open MPI: mpirun --map-by ppr:{}:node)",
            plural(ranks_there, "rank"),
            plural(there.len(), "GPU"),
            there.len()
        );
    }
    let holders: BTreeSet<&usize> = gpus.iter().filter_map(|gpu| taken.get(gpu)).collect();
    let holders: Vec<String> = holders.iter().map(|holder| holder.to_string()).collect();
    format!(
        "is cuda, but of the {} on {host} rank {rank} sees {}, taken by rank {}. Let each rank see a GPU of its own, or all \
         of them see all (CUDA_VISIBLE_DEVICES, or how the scheduler binds GPUs)",
        plural(there.len(), "GPU"),
        gpus.len(),
        holders.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per rank: its node, and what it sees (a letter is a GPU).
    fn table(lines: &[(usize, &str)]) -> Vec<Visible> {
        let visible = |&(node, gpus): &(usize, &str)| Visible {
            host: format!("node{node}"),
            node,
            gpus: gpus.bytes().map(|letter| [letter; 16]).collect(),
            none_since: "no CUDA-capable device is detected".into(),
        };
        lines.iter().map(visible).collect()
    }

    fn message(lines: &[(usize, &str)]) -> String {
        let error = assign(&table(lines)).unwrap_err();
        assert_eq!(error.dotted_key(), Some("local.device"));
        error.to_string()
    }

    #[test]
    fn ranks_take_the_gpu_of_their_local_rank() {
        for (ranks, expected) in [
            (vec![(0, "ABCD"); 1], vec![0]),
            (vec![(0, "ABCD"); 4], vec![0, 1, 2, 3]),
            (vec![(0, "AB"), (0, "AB"), (1, "CD"), (1, "CD")], vec![0, 1, 0, 1]),
            // Ranks dealt out over the nodes one by one.
            (vec![(0, "AB"), (1, "CD"), (0, "AB"), (1, "CD")], vec![0, 0, 1, 1]),
            // Nodes of different sizes.
            (vec![(0, "ABC"), (0, "ABC"), (0, "ABC"), (1, "D")], vec![0, 1, 2, 0]),
        ] {
            assert_eq!(assign(&table(&ranks)).unwrap(), expected, "{ranks:?}");
        }
    }

    /// `srun --gpus-per-task`, and wrappers that set CUDA_VISIBLE_DEVICES for each rank.
    #[test]
    fn bindings_of_the_scheduler_are_kept() {
        for (ranks, expected) in [
            (vec![(0, "A"), (0, "B"), (1, "C"), (1, "D")], vec![0; 4]),
            (vec![(0, "AB"), (0, "CD")], vec![0, 0]),
            (vec![(0, "AB"), (0, "BA")], vec![0, 0]),
        ] {
            assert_eq!(assign(&table(&ranks)).unwrap(), expected, "{ranks:?}");
        }
        let overlapping = message(&[(0, "AB"), (0, "A"), (0, "CB")]);
        let expected = "of the 3 GPUs on node0 rank 1 sees 1, taken by rank 0.";
        assert!(overlapping.contains(expected), "{overlapping}");
    }

    #[test]
    fn too_few_gpus_are_an_error_that_says_what_to_do() {
        let two_on_one = message(&[(0, "AB"), (0, "AB"), (0, "AB"), (1, "CDE")]);
        assert!(two_on_one.contains("node0 has 3 ranks and 2 GPUs."), "{two_on_one}");
        assert!(two_on_one.contains("NCCL refuses two ranks on one"), "{two_on_one}");
        assert!(two_on_one.contains("ppr:2:node"), "{two_on_one}");
        let all_see_one = message(&[(1, "C"), (0, "A"), (0, "A")]);
        assert!(all_see_one.contains("node0 has 2 ranks and 1 GPU."), "{all_see_one}");
    }

    #[test]
    fn a_rank_without_a_gpu_is_named_with_the_reason() {
        assert_eq!(
            message(&[(0, "A"), (1, "")]),
            "local.device: is cuda, but rank 1 on node1 has no GPU: no CUDA-capable device is detected"
        );
    }
}
