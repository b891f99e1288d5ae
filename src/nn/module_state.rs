//! The parameters and buffers of a network, by name.

use super::dropout::{CurrentPass, TrainingPass};
use super::NnError;
use indexmap::IndexMap;
use tch::{no_grad, Tensor};

/// Whether a tensor is trained or only kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Parameter,
    Buffer,
}

#[derive(Debug)]
struct Entry {
    tensor: Tensor,
    role: Role,
}

/// Every parameter and persistent buffer of a network under PyTorch's name, in the order of PyTorch's `state_dict`: of each
/// module its own parameters, its own buffers, then its children in the order of registration. The parameters alone are
/// then in the order of `network.parameters()`, which an optimizer's state counts by.
///
/// The tensors are the network's own (shared handles): loading copies into them.
#[derive(Debug, Default)]
pub struct ModuleState {
    entries: IndexMap<String, Entry>,
    pass: CurrentPass,
}

impl ModuleState {
    pub(super) fn insert(&mut self, name: String, tensor: Tensor, role: Role) {
        let previous = self.entries.insert(name, Entry { tensor, role });
        debug_assert!(previous.is_none(), "two tensors of one name");
    }

    /// Tells the layers that draw random numbers where the training stands, before each of its passes.
    pub fn begin_pass(&self, pass: TrainingPass) {
        self.pass.set(Some(pass));
    }

    pub(super) fn current_pass(&self) -> CurrentPass {
        self.pass.clone()
    }

    /// `network.named_parameters()`: frozen ones included.
    pub fn named_parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.named(Role::Parameter)
    }

    /// `network.named_buffers()`, without those that PyTorch does not save.
    pub fn named_buffers(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.named(Role::Buffer)
    }

    fn named(&self, role: Role) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries
            .iter()
            .filter(move |(_, e)| e.role == role)
            .map(|(name, e)| (name.as_str(), &e.tensor))
    }

    /// Handles to the parameters in the order of `network.parameters()`, frozen ones included.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters()
            .map(|(_, tensor)| tensor.shallow_clone())
            .collect()
    }

    /// Parameter or buffer of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.entries.get(name).map(|e| &e.tensor)
    }

    /// All entries, detached; they share the network's memory and change with it.
    pub fn state_dict(&self) -> IndexMap<String, Tensor> {
        self.entries
            .iter()
            .map(|(name, e)| (name.clone(), e.tensor.detach()))
            .collect()
    }

    /// Copies `saved` into the network. As strict as `load_state_dict(strict=True)`: names and shapes must agree exactly,
    /// their order need not; nothing is copied unless everything fits.
    pub fn load(&self, saved: &IndexMap<String, Tensor>) -> Result<(), NnError> {
        let missing: Vec<&String> = self.entries.keys().filter(|name| !saved.contains_key(*name)).collect();
        if let Some(&name) = missing.first() {
            return Err(NnError::MissingTensor {
                name: name.clone(),
                others: missing.len() - 1,
            });
        }
        let unexpected: Vec<&String> = saved.keys().filter(|name| !self.entries.contains_key(*name)).collect();
        if let Some(&name) = unexpected.first() {
            return Err(NnError::UnexpectedTensor {
                name: name.clone(),
                others: unexpected.len() - 1,
            });
        }
        for (name, entry) in &self.entries {
            let (expected, actual) = (entry.tensor.size(), saved[name].size());
            if expected != actual {
                return Err(NnError::TensorShape {
                    name: name.clone(),
                    expected,
                    actual,
                });
            }
        }
        no_grad(|| {
            for (name, entry) in &self.entries {
                entry.tensor.shallow_clone().f_copy_(&saved[name])?;
            }
            Ok(())
        })
    }

    /// Freezes or unfreezes every parameter whose name contains `part` (such as `layers_rb`, the first layer of the
    /// embedding); gives their number.
    pub fn set_requires_grad(&self, part: &str, requires_grad: bool) -> usize {
        let mut count = 0;
        for (_, tensor) in self.named_parameters().filter(|(name, _)| name.contains(part)) {
            let _ = tensor.set_requires_grad(requires_grad);
            count += 1;
        }
        count
    }

    /// Number of trainable scalars.
    pub fn count_trainable(&self) -> usize {
        self.named_parameters()
            .filter(|(_, t)| t.requires_grad())
            .map(|(_, t)| t.numel())
            .sum()
    }

    /// Number of frozen scalars.
    pub fn count_frozen(&self) -> usize {
        self.named_parameters()
            .filter(|(_, t)| !t.requires_grad())
            .map(|(_, t)| t.numel())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{build_module, BuildContext, Linear};
    use super::*;

    fn two_layers() -> (Linear, ModuleState) {
        build_module(&BuildContext::default(), |scope| {
            Linear::new(&scope.child("first"), 3, 2)?;
            Linear::new(&scope.child("second"), 2, 4)
        })
        .unwrap()
    }

    fn saved() -> IndexMap<String, Tensor> {
        let (_, state) = two_layers();
        state
            .state_dict()
            .into_iter()
            .map(|(name, t)| (name, t.ones_like()))
            .collect()
    }

    #[test]
    fn loads_in_place_whatever_the_order() {
        let (second, state) = two_layers();
        let reversed: IndexMap<_, _> = saved().into_iter().rev().collect();
        state.load(&reversed).unwrap();
        // The layer sees the loaded ones: 2 inputs of 1, and the bias.
        let y = second.forward(&Tensor::ones([1, 2], tch::kind::FLOAT_CPU)).unwrap();
        assert_eq!(Vec::<f32>::try_from(y.view(-1)).unwrap(), [3.0; 4]);
        let names: Vec<&str> = state.named_parameters().map(|(name, _)| name).collect();
        assert_eq!(names, ["first.weight", "first.bias", "second.weight", "second.bias"]);
    }

    #[test]
    fn refuses_what_does_not_fit_and_names_it() {
        let (_, state) = two_layers();
        let before = state.get("first.weight").unwrap().copy();

        let mut short = saved();
        short.shift_remove("second.bias");
        let message = state.load(&short).unwrap_err().to_string();
        assert_eq!(message, "the saved network lacks the tensor second.bias");

        let mut long = saved();
        long.insert("third.bias".into(), Tensor::from(1.0));
        long.insert("third.weight".into(), Tensor::from(1.0));
        let message = state.load(&long).unwrap_err().to_string();
        assert!(message.contains("third.bias (and 1 more)"), "{message}");

        let mut misshapen = saved();
        misshapen.insert("second.weight".into(), Tensor::ones([2, 4], tch::kind::FLOAT_CPU));
        let message = state.load(&misshapen).unwrap_err().to_string();
        assert!(
            message.contains("second.weight") && message.contains("[4, 2]"),
            "{message}"
        );
        assert!(message.contains("[2, 4]"), "{message}");

        assert_eq!(
            &before,
            state.get("first.weight").unwrap(),
            "a refused state must change nothing"
        );
    }

    #[test]
    fn freezes_by_name() {
        let (_, state) = two_layers();
        assert_eq!((state.count_trainable(), state.count_frozen()), (20, 0));
        assert_eq!(state.set_requires_grad("first", false), 2);
        assert_eq!((state.count_trainable(), state.count_frozen()), (12, 8));
        assert!(!state.parameters()[0].requires_grad() && state.parameters()[2].requires_grad());
        state.set_requires_grad("first", true);
        assert_eq!(state.count_frozen(), 0);
    }
}
