//! From the machine's nodes, which may be shared or even contain themselves, to a tree that owns its parts.

use super::super::error::Flaw;
use super::super::object::{Dict, Object};
use super::machine::{DictNode, Node, NodeId};
use super::MAX_DEPTH;

/// How many objects a tree may have for each node of the pickle. A checkpoint repeats little: the model's settings stand in two
/// places. Hostile pickles grow exponentially by referring to a list twice, and again, and again.
const OBJECTS_PER_NODE: usize = 8;
/// The same for the bytes of strings, per byte of the pickle. Names such as `exp_avg` are repeated for each parameter
/// by a reference of two bytes.
const TEXT_PER_BYTE: usize = 64;
/// What small pickles may have on top.
const ALLOWANCE: usize = 100_000;

/// The tree that hangs on `root`. `pickle_length` in bytes.
///
/// # Errors
/// It is too deep (as a cycle is) or too large for the pickle it comes from, or holds what is no data by itself.
pub fn grow(nodes: &[Node], root: NodeId, pickle_length: usize) -> Result<Object, Flaw> {
    let mut grower = Grower {
        nodes,
        objects_left: ALLOWANCE + OBJECTS_PER_NODE * nodes.len(),
        text_left: ALLOWANCE + TEXT_PER_BYTE * pickle_length,
    };
    grower.object(root, 0)
}

struct Grower<'n> {
    nodes: &'n [Node<'n>],
    objects_left: usize,
    text_left: usize,
}

impl<'n> Grower<'n> {
    fn object(&mut self, node: NodeId, depth: usize) -> Result<Object, Flaw> {
        if depth > MAX_DEPTH {
            return Err(Flaw::new(format!(
                "its pickle is nested deeper than {MAX_DEPTH}, or contains itself"
            )));
        }
        let spent = |left: &mut usize, amount: usize| {
            *left = left
                .checked_sub(amount)
                .ok_or_else(|| Flaw::new("the pickle repeats itself without measure"))?;
            Ok::<(), Flaw>(())
        };
        spent(&mut self.objects_left, 1)?;
        Ok(match &self.nodes[node] {
            Node::None => Object::None,
            Node::Bool(value) => Object::Bool(*value),
            Node::Int(value) => Object::Int(*value),
            Node::Float(value) => Object::Float(*value),
            Node::Text(text) => {
                spent(&mut self.text_left, text.len())?;
                Object::String(text.to_string())
            }
            Node::Bytes(bytes) => {
                spent(&mut self.text_left, bytes.len())?;
                Object::Bytes(bytes.to_vec())
            }
            Node::List(items) => Object::List(self.items(items, depth)?),
            Node::Tuple(items) => Object::Tuple(self.items(items, depth)?),
            Node::Dict(dict) => Object::Dict(self.dict(dict, depth)?),
            Node::Tensor(tensor) => Object::Tensor(tensor.shallow_clone()),
            Node::Callable(_) | Node::NumpyType(_) | Node::Storage(_) => {
                return Err(Flaw::new(
                    "its pickle holds a type, a function or a bare storage, which is no data",
                ));
            }
        })
    }

    fn items(&mut self, items: &[NodeId], depth: usize) -> Result<Vec<Object>, Flaw> {
        items.iter().map(|&item| self.object(item, depth + 1)).collect()
    }

    fn dict(&mut self, dict: &DictNode, depth: usize) -> Result<Dict, Flaw> {
        let attributes = match dict.attributes.map(|state| &self.nodes[state]) {
            Some(Node::Dict(state)) => self.entries(&state.entries, depth)?,
            _ => Vec::new(),
        };
        Ok(Dict {
            entries: self.entries(&dict.entries, depth)?,
            ordered: dict.ordered,
            attributes,
        })
    }

    fn entries(&mut self, entries: &[(NodeId, NodeId)], depth: usize) -> Result<Vec<(Object, Object)>, Flaw> {
        let pairs = entries
            .iter()
            .map(|&(key, value)| Ok((self.object(key, depth + 1)?, self.object(value, depth + 1)?)));
        pairs.collect()
    }
}
