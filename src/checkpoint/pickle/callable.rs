//! What a pickle may name: the few globals that rebuild data. Nothing here runs Python; each name stands for a function
//! of this file.

use super::super::element_type::kind_of_storage;
use super::super::error::Flaw;
use tch::{Kind, Tensor};

/// Characters of an unknown name that are shown.
const MAX_NAME: usize = 100;

/// As many as libtorch allows.
const MAX_DIMENSIONS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Callable {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    /// `torch.Size`, a tuple.
    Size,
    /// `_codecs.encode`, how protocol 2 holds bytes.
    Encode,
    NumpyScalar,
    NumpyType,
    /// `torch.FloatStorage` and its kin; named in persistent ids, never called.
    Storage(Kind),
}

/// Looks a global up.
///
/// # Errors
/// It is none of those that stand for data.
pub fn find(module: &str, name: &str) -> Result<Callable, Flaw> {
    match (module, name) {
        ("collections", "OrderedDict") => Ok(Callable::OrderedDict),
        ("torch._utils", "_rebuild_tensor_v2") => Ok(Callable::RebuildTensor),
        ("torch._utils", "_rebuild_parameter") => Ok(Callable::RebuildParameter),
        ("torch", "Size") => Ok(Callable::Size),
        ("_codecs", "encode") => Ok(Callable::Encode),
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Ok(Callable::NumpyScalar),
        ("numpy", "dtype") => Ok(Callable::NumpyType),
        _ => (module == "torch")
            .then(|| kind_of_storage(name))
            .flatten()
            .map(Callable::Storage)
            .ok_or_else(|| {
                let full_name: String = format!("{module}.{name}").chars().take(MAX_NAME).collect();
                Flaw::new(format!(
                    "it names {full_name:?}, which is not plain data; nothing of it was executed"
                ))
            }),
    }
}

/// The view of `storage` (1-d) that a tensor's record describes; offset and strides count elements.
///
/// # Errors
/// It reaches outside the storage, or repeats elements, which no parameter does and which could ask for any amount of memory.
pub fn rebuild_tensor(storage: &Tensor, offset: i64, size: &[i64], stride: &[i64]) -> Result<Tensor, Flaw> {
    if size.len().max(stride.len()) > MAX_DIMENSIONS {
        return Err(Flaw::new(format!("a tensor of {} dimensions", size.len())));
    }
    let held = storage.numel() as i64;
    let outside = || {
        Flaw::new(format!(
            "a tensor of size {size:?}, strides {stride:?} and offset {offset} does not lie within its storage of {held} elements"
        ))
    };
    if size.len() != stride.len() || offset < 0 || size.iter().chain(stride).any(|&n| n < 0) {
        return Err(outside());
    }
    // Empty axes count as 1 here: the strides computed from the others later must not overflow either.
    let elements = size
        .iter()
        .try_fold(1i64, |product, &n| product.checked_mul(n.max(1)))
        .ok_or_else(outside)?;
    let last = size.iter().zip(stride).try_fold(offset, |last, (&n, &step)| {
        last.checked_add((n - 1).max(0).checked_mul(step)?)
    });
    let inside = match last {
        _ if size.contains(&0) => offset <= held,
        Some(last) => last < held && elements <= held,
        None => false,
    };
    if !inside {
        return Err(outside());
    }
    Ok(storage.f_as_strided(size, stride, offset)?)
}
