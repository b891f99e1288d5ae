//! What REDUCE, BUILD and BINPERSID do: they turn tuples of arguments into tensors, storages, numbers and dicts.

use super::super::error::Flaw;
use super::callable::{rebuild_tensor, Callable};
use super::machine::{DictNode, Machine, Node, NodeId};
use std::borrow::Cow;
use tch::Tensor;

impl<'p> Machine<'p, '_> {
    /// REDUCE: what `function(*arguments)` returns.
    pub fn call(&mut self, function: NodeId, arguments: NodeId) -> Result<Node<'p>, Flaw> {
        let Node::Callable(function) = self.nodes[function] else {
            return Err(Flaw::new("a call of what is no function"));
        };
        self.spend_on(arguments)?;
        let arguments = self.expect_tuple(arguments)?;
        match (function, arguments) {
            (Callable::OrderedDict, []) => self.ordered_dict(&[]),
            (Callable::OrderedDict, &[pairs]) => self.ordered_dict(self.expect_items(pairs)?),
            (Callable::RebuildTensor, &[storage, offset, size, stride, _requires_grad, _hooks, ..]) => {
                // A seventh argument marks views that are lazily conjugated or negated.
                if arguments.get(6).is_some_and(|&flags| !self.is_empty_dict(flags)) {
                    return Err(Flaw::new("a tensor with conjugate or negative bit"));
                }
                let Node::Storage(storage) = &self.nodes[storage] else {
                    return Err(Flaw::new("a tensor without storage"));
                };
                let (offset, size, stride) = (self.expect_i64(offset)?, self.shape(size)?, self.shape(stride)?);
                Ok(Node::Tensor(rebuild_tensor(storage, offset, &size, &stride)?))
            }
            (Callable::RebuildParameter, &[tensor, _requires_grad, _hooks]) => match &self.nodes[tensor] {
                Node::Tensor(tensor) => Ok(Node::Tensor(tensor.shallow_clone())),
                _ => Err(Flaw::new("a parameter without tensor")),
            },
            (Callable::Size, &[items]) => Ok(Node::Tuple(self.expect_items(items)?.to_vec())),
            (Callable::Encode, &[text, encoding]) => self.encoded(text, encoding),
            (Callable::NumpyType, &[code, ..]) => Ok(Node::NumpyType(self.expect_text(code)?)),
            (Callable::NumpyScalar, &[kind, bytes]) => self.numpy_scalar(kind, bytes),
            _ => Err(Flaw::new(format!(
                "{function:?} is called with {} arguments of the wrong kind",
                arguments.len()
            ))),
        }
    }

    /// Calls copy their arguments, which a hostile pickle gives again and again by reference; so they have a budget.
    fn spend_on(&mut self, arguments: NodeId) -> Result<(), Flaw> {
        let length = |node: &Node| match node {
            Node::Text(text) => text.len(),
            Node::Bytes(bytes) => bytes.len(),
            Node::List(items) | Node::Tuple(items) => items.len(),
            _ => 1,
        };
        let copied: usize = self
            .expect_tuple(arguments)?
            .iter()
            .map(|&node| length(&self.nodes[node]))
            .sum();
        let left = self.copies_left.checked_sub(copied);
        self.copies_left = left.ok_or_else(|| Flaw::new("the pickle repeats itself without measure"))?;
        Ok(())
    }

    /// BUILD: sets attributes, which of all that can stand here only an OrderedDict and a numpy type have.
    pub fn build(&mut self, target: NodeId, state: NodeId) -> Result<(), Flaw> {
        if let Node::NumpyType(_) = self.nodes[target] {
            // (version, byte order, …)
            return match self.expect_tuple(state)?.get(1).map(|&order| &self.nodes[order]) {
                Some(Node::Text("<" | "|" | "=")) => Ok(()),
                _ => Err(Flaw::new("a numpy type that is not little-endian")),
            };
        }
        let is_dict = matches!(self.nodes[state], Node::Dict(_));
        match &mut self.nodes[target] {
            Node::Dict(dict) if dict.ordered && is_dict => {
                dict.attributes = Some(state);
                Ok(())
            }
            _ => Err(Flaw::new("attributes are set on what has none")),
        }
    }

    /// BINPERSID: the storage that `('storage', type, key, location, elements)` stands for. Where it lay when it was
    /// saved does not matter, it comes to the CPU.
    pub fn load_storage(&mut self, id: NodeId) -> Result<Tensor, Flaw> {
        let &[tag, kind, key, _location, elements] = self.expect_tuple(id)? else {
            return Err(Flaw::new("a persistent id that is no storage"));
        };
        let (Node::Text("storage"), Node::Callable(Callable::Storage(kind))) = (&self.nodes[tag], &self.nodes[kind])
        else {
            return Err(Flaw::new("a persistent id that is no storage"));
        };
        let elements =
            usize::try_from(self.expect_i64(elements)?).map_err(|_| Flaw::new("a storage of negative size"))?;
        let (kind, key) = (*kind, self.expect_text(key)?);
        self.storages.storage(key, kind, elements)
    }

    fn ordered_dict(&self, pairs: &[NodeId]) -> Result<Node<'p>, Flaw> {
        let entries = pairs.iter().map(|&pair| match self.expect_items(pair)? {
            &[key, value] => Ok((key, value)),
            _ => Err(Flaw::new("an OrderedDict made of what are no pairs")),
        });
        Ok(Node::Dict(DictNode {
            entries: entries.collect::<Result<_, _>>()?,
            ordered: true,
            attributes: None,
        }))
    }

    /// Protocol 2 has no bytes: they are text that is to be encoded as Latin-1.
    fn encoded(&self, text: NodeId, encoding: NodeId) -> Result<Node<'p>, Flaw> {
        let (text, encoding) = (self.expect_text(text)?, self.expect_text(encoding)?);
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        match bytes {
            Ok(bytes) if encoding == "latin1" => Ok(Node::Bytes(Cow::Owned(bytes))),
            _ => Err(Flaw::new("bytes that are not encoded as Latin-1")),
        }
    }

    /// A number that numpy computed and that was never converted; older checkpoints have some in their metadata.
    fn numpy_scalar(&self, kind: NodeId, bytes: NodeId) -> Result<Node<'p>, Flaw> {
        let (Node::NumpyType(code), Node::Bytes(bytes)) = (&self.nodes[kind], &self.nodes[bytes]) else {
            return Err(Flaw::new("a numpy scalar without type or bytes"));
        };
        let number = match (*code, &bytes[..]) {
            ("f8", &[a, b, c, d, e, f, g, h]) => Node::Float(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
            ("f4", &[a, b, c, d]) => Node::Float(f32::from_le_bytes([a, b, c, d]).into()),
            ("i8", &[a, b, c, d, e, f, g, h]) => Node::Int(i64::from_le_bytes([a, b, c, d, e, f, g, h]).into()),
            ("i4", &[a, b, c, d]) => Node::Int(i32::from_le_bytes([a, b, c, d]).into()),
            ("b1", &[byte]) => Node::Bool(byte != 0),
            _ => {
                return Err(Flaw::new(format!(
                    "a numpy scalar of type {code:?} and {} bytes",
                    bytes.len()
                )))
            }
        };
        Ok(number)
    }

    pub fn expect_text(&self, node: NodeId) -> Result<&'p str, Flaw> {
        match &self.nodes[node] {
            Node::Text(text) => Ok(text),
            _ => Err(Flaw::new("something else where a name should stand")),
        }
    }

    fn expect_i64(&self, node: NodeId) -> Result<i64, Flaw> {
        let number = match self.nodes[node] {
            Node::Int(value) => i64::try_from(value).ok(),
            _ => None,
        };
        number.ok_or_else(|| Flaw::new("something else where a count should stand"))
    }

    fn expect_tuple(&self, node: NodeId) -> Result<&[NodeId], Flaw> {
        match &self.nodes[node] {
            Node::Tuple(items) => Ok(items),
            _ => Err(Flaw::new("something else where a tuple should stand")),
        }
    }

    fn expect_items(&self, node: NodeId) -> Result<&[NodeId], Flaw> {
        match &self.nodes[node] {
            Node::List(items) | Node::Tuple(items) => Ok(items),
            _ => Err(Flaw::new("something else where a list should stand")),
        }
    }

    fn shape(&self, node: NodeId) -> Result<Vec<i64>, Flaw> {
        self.expect_items(node)?.iter().map(|&n| self.expect_i64(n)).collect()
    }

    fn is_empty_dict(&self, node: NodeId) -> bool {
        match &self.nodes[node] {
            Node::None => true,
            Node::Dict(dict) => dict.entries.is_empty(),
            _ => false,
        }
    }
}
