//! Python's pickle format, as far as data goes: a reader that runs the pickle machine but can build data only, and a
//! writer of what `torch.load(weights_only=True)` accepts.
//!
//! The format is documented in CPython's `pickletools.py`.

mod callable;
mod machine;
mod opcode;
mod rebuild;
mod tree;
mod writer;

pub(super) use writer::{encode, Encoded};

use super::error::Flaw;
use super::object::Object;
use tch::{Kind, Tensor};

/// Containers inside containers, on reading and on writing. Dingo's checkpoints are 8 deep.
const MAX_DEPTH: usize = 100;

/// Where a pickle's persistent ids lead: the storages that lie beside it.
pub(super) trait StorageSource {
    /// The storage `key` as a 1-d tensor on the CPU; the same memory each time it is asked for.
    ///
    /// # Errors
    /// There is none of that name, or its size is not `elements` elements of `kind`.
    fn storage(&mut self, key: &str, kind: Kind, elements: usize) -> Result<Tensor, Flaw>;
}

/// Reads one pickle. Never executes anything: a pickle that names a function outside a short list of those that rebuild
/// data is refused.
pub(super) fn decode(pickle: &[u8], storages: &mut dyn StorageSource) -> Result<Object, Flaw> {
    let (nodes, root) = machine::run(pickle, storages)?;
    tree::grow(&nodes, root, pickle.len())
}

#[cfg(test)]
mod tests;
