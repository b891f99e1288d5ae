//! Where layers get their tensors: a place in the tree of names.

use super::dropout::CurrentPass;
use super::{Init, ModuleState, NnError, Role, SplitMix64};
use crate::torch_ext::RankStatistics;
use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// What building a network needs besides its settings.
#[derive(Clone)]
pub struct BuildContext {
    /// Where the tensors live.
    pub device: Device,
    /// Of the initial weights; the same on all ranks.
    pub seed: u64,
    /// Where given, BatchNorm takes the statistics of the batches of all these ranks together, and every rank must make
    /// each training pass, with or without samples of its own. None for a world of one, and for ranks that each normalize
    /// by their own share.
    pub batch_norm_ranks: Option<Arc<dyn RankStatistics>>,
    /// Parameters get no values: for a network that is only looked at, or loaded. Their memory is not even touched, so that
    /// one of any size is there at once.
    pub without_values: bool,
}

impl Default for BuildContext {
    fn default() -> Self {
        BuildContext {
            device: Device::Cpu,
            seed: 0,
            batch_norm_ranks: None,
            without_values: false,
        }
    }
}

/// Builds a network inside a fresh scope; gives it and the state that it registered.
pub fn build_module<T>(
    context: &BuildContext,
    build: impl FnOnce(&Scope) -> Result<T, NnError>,
) -> Result<(T, ModuleState), NnError> {
    let state = RefCell::new(ModuleState::default());
    let module = build(&Scope {
        context,
        state: &state,
        path: String::new(),
    })?;
    Ok((module, state.into_inner()))
}

/// The place of one module in the tree of names. A layer asks it for its own parameters, then its own buffers, then makes
/// its children, in PyTorch's order of registration: that order is the state dict's.
pub struct Scope<'a> {
    context: &'a BuildContext,
    state: &'a RefCell<ModuleState>,
    path: String,
}

impl<'a> Scope<'a> {
    /// The place of the child module `name` (of a list, its index).
    pub fn child(&self, name: impl Display) -> Scope<'a> {
        Scope {
            context: self.context,
            state: self.state,
            path: self.join(name),
        }
    }

    /// A new trainable float32 tensor of this module.
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Result<Tensor, NnError> {
        let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let tensor = match self.context.without_values {
            true => Tensor::f_empty(&shape, (Kind::Float, self.context.device))?,
            false => init.tensor(&shape, self.generator(name), self.context.device)?,
        };
        let tensor = tensor.f_set_requires_grad(true)?;
        self.register(name, &tensor, Role::Parameter);
        Ok(tensor)
    }

    /// A new buffer of this module: saved with the network, not trained.
    pub fn buffer(&self, name: &str, values: Tensor) -> Result<Tensor, NnError> {
        let tensor = values.f_to_device(self.context.device)?;
        self.register(name, &tensor, Role::Buffer);
        Ok(tensor)
    }

    /// The random stream that belongs to this module's tensor `name`.
    pub fn generator(&self, name: &str) -> SplitMix64 {
        SplitMix64::for_tensor(self.context.seed, &self.join(name))
    }

    pub fn context(&self) -> &'a BuildContext {
        self.context
    }

    /// The training pass under way, as layers whose random numbers depend on it see it.
    pub(super) fn current_pass(&self) -> CurrentPass {
        self.state.borrow().current_pass()
    }

    pub fn device(&self) -> Device {
        self.context.device
    }

    fn register(&self, name: &str, tensor: &Tensor, role: Role) {
        self.state
            .borrow_mut()
            .insert(self.join(name), tensor.shallow_clone(), role);
    }

    fn join(&self, name: impl Display) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}
