//! Who runs where, for the log.

/// `1 rank`, `2 ranks`.
pub(super) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub host: String,
    /// Ranks with the same number share a node.
    pub node: usize,
    /// What it computes on, if that is a GPU.
    pub gpu: Option<Gpu>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    pub name: String,
    /// Where it is plugged in.
    pub pci: String,
    /// Bytes.
    pub memory: u64,
}

/// A line for each node: its ranks, and what they compute on.
pub(super) fn lines(places: &[Place]) -> Vec<String> {
    let mut nodes: Vec<usize> = places.iter().map(|place| place.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let line = |node: &usize| {
        let there = || places.iter().enumerate().filter(|(_, place)| place.node == *node);
        let ranks: Vec<usize> = there().map(|(rank, _)| rank).collect();
        let host = there().next().map_or("", |(_, place)| place.host.as_str());
        let gpus: Vec<&Gpu> = there().filter_map(|(_, place)| place.gpu.as_ref()).collect();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{host}: {word} {} on {}", ranges(&ranks), computing_on(&gpus))
    };
    nodes.iter().map(line).collect()
}

/// Alike ones are named once.
fn computing_on(gpus: &[&Gpu]) -> String {
    let Some(first) = gpus.first() else {
        return "CPUs".into();
    };
    let model = |gpu: &Gpu| format!("{}, {:.1} GB", gpu.name, gpu.memory as f64 / f64::from(1 << 30));
    let slots = |gpus: &[&Gpu]| gpus.iter().map(|gpu| gpu.pci.as_str()).collect::<Vec<_>>().join(", ");
    if gpus.iter().all(|gpu| model(gpu) == model(first)) {
        return format!("{} ({}; {})", plural(gpus.len(), "GPU"), model(first), slots(gpus));
    }
    let each = gpus.iter().map(|gpu| format!("{} ({})", model(gpu), gpu.pci));
    format!("GPUs {}", each.collect::<Vec<_>>().join("; "))
}

/// `0-3, 6`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| next - one == 1);
    let text = |run: &[usize]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// The first part of what an MPI library says of itself: its name and version.
pub(super) fn mpi_version(library: &str) -> &str {
    library
        .split([',', '\n'])
        .next()
        .unwrap_or(library)
        .trim_end_matches('\0')
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: usize, gpu: Option<&str>) -> Place {
        let gpu = gpu.map(|name| Gpu {
            name: name.into(),
            pci: format!("{node}:17"),
            memory: 80 << 30,
        });
        Place {
            host: format!("node{node}"),
            node,
            gpu,
        }
    }

    #[test]
    fn a_line_for_each_node() {
        let dealt_out: Vec<Place> = [0, 0, 4, 0, 4].map(|node| place(node, None)).into();
        assert_eq!(
            lines(&dealt_out),
            ["node0: ranks 0-1, 3 on CPUs", "node4: ranks 2, 4 on CPUs"]
        );
        let gpus = [place(0, Some("H200")), place(0, Some("H200")), place(2, Some("A100"))];
        assert_eq!(
            lines(&gpus),
            [
                "node0: ranks 0-1 on 2 GPUs (H200, 80.0 GB; 0:17, 0:17)",
                "node2: rank 2 on 1 GPU (A100, 80.0 GB; 2:17)"
            ]
        );
        assert_eq!(
            lines(&[place(0, Some("H200")), place(0, Some("A100"))]),
            ["node0: ranks 0-1 on GPUs H200, 80.0 GB (0:17); A100, 80.0 GB (0:17)"]
        );
    }

    #[test]
    fn mpi_libraries_are_named_in_short() {
        let open_mpi = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022\0";
        assert_eq!(mpi_version(open_mpi), "Open MPI v4.1.4");
        assert_eq!(
            mpi_version("MPICH Version:\t4.0\nMPICH Release date: 2022"),
            "MPICH Version:\t4.0"
        );
    }
}
