//! The one error of this layer.

/// What can go wrong in building, loading or running a network.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    /// A layer was given a tensor of another shape than it is made for.
    #[error("{layer}: expected an input of shape {expected}, got {actual:?}")]
    Shape {
        layer: &'static str,
        expected: String,
        actual: Vec<i64>,
    },

    /// A state to be loaded lacks tensors that the network has.
    #[error("the saved network lacks the tensor {name}{}", and_more(*.others))]
    MissingTensor { name: String, others: usize },

    /// A state to be loaded has tensors that the network lacks.
    #[error("the saved network has the tensor {name}{}, which the network of these settings lacks", and_more(*.others))]
    UnexpectedTensor { name: String, others: usize },

    /// A tensor of a state to be loaded does not fit.
    #[error("{name}: the network of these settings has shape {expected:?}, the saved network {actual:?}")]
    TensorShape {
        name: String,
        expected: Vec<i64>,
        actual: Vec<i64>,
    },

    /// Settings that no network can be built from; `key` is the dotted path.
    #[error("{key}: {message}")]
    Settings { key: &'static str, message: String },

    /// Something to compute that has no answer, such as the variance of one sample.
    #[error("{layer}: {message}")]
    Undefined { layer: &'static str, message: String },

    #[error(transparent)]
    Torch(#[from] tch::TchError),

    #[error(transparent)]
    TorchExt(#[from] crate::torch_ext::TorchExtError),
}

fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

impl NnError {
    pub(crate) fn settings(key: &'static str, message: impl Into<String>) -> Self {
        NnError::Settings {
            key,
            message: message.into(),
        }
    }
}

/// Checks that `input` is `[batch, width]` with any batch.
pub(crate) fn check_width(layer: &'static str, input: &tch::Tensor, width: usize) -> Result<(), NnError> {
    let actual = input.size();
    if actual.len() == 2 && actual[1] == width as i64 {
        return Ok(());
    }
    Err(NnError::Shape {
        layer,
        expected: format!("[batch, {width}]"),
        actual,
    })
}
