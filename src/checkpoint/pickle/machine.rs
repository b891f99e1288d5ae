//! The pickle machine: a stack, marks on it, a memo, and the nodes that the opcodes make.

use super::super::error::Flaw;
use super::callable::{self, Callable};
use super::{opcode as op, StorageSource};
use std::borrow::Cow;
use std::collections::HashMap;
use tch::Tensor;

/// Index of a node. Containers refer to their items by it, so sharing and even cycles are harmless until
/// [`super::tree::grow`] turns them into a tree, with its limits.
pub type NodeId = usize;

#[derive(Debug)]
pub enum Node<'p> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'p str),
    Bytes(Cow<'p, [u8]>),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    Dict(DictNode),
    Callable(Callable),
    /// A numpy type by its code, such as `f8`.
    NumpyType(&'p str),
    /// A storage, as a 1-d tensor.
    Storage(Tensor),
    Tensor(Tensor),
}

#[derive(Debug, Default)]
pub struct DictNode {
    pub entries: Vec<(NodeId, NodeId)>,
    pub ordered: bool,
    /// The dict of attributes given to BUILD.
    pub attributes: Option<NodeId>,
}

/// Items and bytes that calls may copy from their arguments, per byte of the pickle. An ordinary pickle copies each once.
const COPIES_PER_BYTE: usize = 8;

/// Runs the pickle to its STOP; the nodes made, and which of them is the result. Time and memory are bounded by a
/// multiple of the pickle's length: an opcode makes one node at most and refers to no more nodes than were pushed.
pub fn run<'p>(pickle: &'p [u8], storages: &mut dyn StorageSource) -> Result<(Vec<Node<'p>>, NodeId), Flaw> {
    let mut machine = Machine {
        pickle,
        position: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        copies_left: COPIES_PER_BYTE * pickle.len(),
        storages,
    };
    loop {
        let start = machine.position;
        let at = |flaw: Flaw| flaw.note(&format!("its pickle, byte {start}"));
        let opcode = machine.byte().map_err(at)?;
        if opcode == op::STOP {
            let root = machine.pop().map_err(at)?;
            return Ok((machine.nodes, root));
        }
        machine.step(opcode).map_err(at)?;
    }
}

pub struct Machine<'p, 's> {
    pickle: &'p [u8],
    position: usize,
    pub nodes: Vec<Node<'p>>,
    stack: Vec<NodeId>,
    /// Heights of the stack at the MARKs not yet used up.
    marks: Vec<usize>,
    memo: HashMap<u64, NodeId>,
    /// How many items and bytes calls may still copy from their arguments.
    pub copies_left: usize,
    pub storages: &'s mut dyn StorageSource,
}

impl<'p> Machine<'p, '_> {
    fn step(&mut self, opcode: u8) -> Result<(), Flaw> {
        match opcode {
            op::PROTO => match self.byte()? {
                2..=5 => Ok(()),
                other => Err(Flaw::new(format!("pickle protocol {other}; 2 to 5 can be read"))),
            },
            // Frames only help a reader to buffer.
            op::FRAME => self.take(8).map(drop),
            op::MARK => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::POP => self.pop_or_unmark(),
            op::POP_MARK => self.pop_to_mark().map(drop),
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.put(opcode),
            op::BINGET | op::LONG_BINGET => self.get(opcode),
            op::EMPTY_TUPLE | op::TUPLE | op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => self.tuple(opcode),
            op::APPEND | op::APPENDS => self.append(opcode),
            op::SETITEM | op::SETITEMS => self.set_items(opcode),
            op::EMPTY_LIST => self.push(Node::List(Vec::new())),
            op::EMPTY_DICT => self.push(Node::Dict(DictNode::default())),
            op::GLOBAL | op::STACK_GLOBAL => self.global(opcode),
            op::REDUCE => {
                let arguments = self.pop()?;
                let function = self.pop()?;
                let made = self.call(function, arguments)?;
                self.push(made)
            }
            op::BUILD => {
                let state = self.pop()?;
                let target = self.top()?;
                self.build(target, state)
            }
            op::BINPERSID => {
                let id = self.pop()?;
                let storage = self.load_storage(id)?;
                self.push(Node::Storage(storage))
            }
            _ => {
                let scalar = self.scalar(opcode)?;
                self.push(scalar)
            }
        }
    }

    /// The opcodes that make a value out of the bytes after them.
    fn scalar(&mut self, opcode: u8) -> Result<Node<'p>, Flaw> {
        Ok(match opcode {
            op::NONE => Node::None,
            op::NEWTRUE => Node::Bool(true),
            op::NEWFALSE => Node::Bool(false),
            op::BININT => Node::Int(i32::from_le_bytes(self.array()?).into()),
            op::BININT1 => Node::Int(self.byte()?.into()),
            op::BININT2 => Node::Int(u16::from_le_bytes(self.array()?).into()),
            op::LONG1 | op::LONG4 => Node::Int(self.long(opcode)?),
            op::BINFLOAT => Node::Float(f64::from_be_bytes(self.array()?)),
            op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8 => Node::Text(self.text(opcode)?),
            op::SHORT_BINSTRING | op::BINSTRING => {
                // Python 2's str: text if it reads as text.
                let bytes = self.sized(opcode)?;
                std::str::from_utf8(bytes).map_or(Node::Bytes(bytes.into()), Node::Text)
            }
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 => Node::Bytes(self.sized(opcode)?.into()),
            other => {
                return Err(Flaw::new(format!(
                    "opcode 0x{other:02x}, which no data of a checkpoint needs"
                )))
            }
        })
    }

    fn put(&mut self, opcode: u8) -> Result<(), Flaw> {
        let slot = match opcode {
            op::BINPUT => self.byte()?.into(),
            op::LONG_BINPUT => u32::from_le_bytes(self.array()?).into(),
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn get(&mut self, opcode: u8) -> Result<(), Flaw> {
        let slot = match opcode {
            op::BINGET => self.byte()?.into(),
            _ => u32::from_le_bytes(self.array()?).into(),
        };
        let node = *self
            .memo
            .get(&slot)
            .ok_or_else(|| Flaw::new(format!("memo {slot} is empty")))?;
        self.stack.push(node);
        Ok(())
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), Flaw> {
        let items = match opcode {
            op::TUPLE => self.pop_to_mark()?,
            op::EMPTY_TUPLE => Vec::new(),
            _ => {
                let mut items = (op::TUPLE1..=opcode)
                    .map(|_| self.pop())
                    .collect::<Result<Vec<_>, _>>()?;
                items.reverse();
                items
            }
        };
        self.push(Node::Tuple(items))
    }

    fn append(&mut self, opcode: u8) -> Result<(), Flaw> {
        let items = match opcode {
            op::APPEND => vec![self.pop()?],
            _ => self.pop_to_mark()?,
        };
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::List(list) => list.extend(items),
            _ => return Err(Flaw::new("an item is appended to what is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, opcode: u8) -> Result<(), Flaw> {
        let items = match opcode {
            op::SETITEM => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_to_mark()?,
        };
        let top = self.top()?;
        match &mut self.nodes[top] {
            Node::Dict(dict) if items.len() % 2 == 0 => {
                dict.entries
                    .extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                Ok(())
            }
            _ => Err(Flaw::new("a key or value is set in what is no dict")),
        }
    }

    fn global(&mut self, opcode: u8) -> Result<(), Flaw> {
        let (module, name) = if opcode == op::GLOBAL {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            (self.expect_text(module)?, self.expect_text(name)?)
        };
        self.push(Node::Callable(callable::find(module, name)?))
    }

    fn push(&mut self, node: Node<'p>) -> Result<(), Flaw> {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Ok(())
    }

    fn top(&self) -> Result<NodeId, Flaw> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).and_then(<[_]>::last);
        above.copied().ok_or_else(|| Flaw::new("the pickle's stack is empty"))
    }

    fn pop(&mut self) -> Result<NodeId, Flaw> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// POP takes a mark off if that is what lies on top.
    fn pop_or_unmark(&mut self) -> Result<(), Flaw> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<NodeId>, Flaw> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| Flaw::new("the pickle's mark is missing"))?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, length: u64) -> Result<&'p [u8], Flaw> {
        let rest = &self.pickle[self.position..];
        let bytes = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let bytes = bytes.ok_or_else(|| Flaw::new(format!("{length} bytes wanted, {} left", rest.len())))?;
        self.position += bytes.len();
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, Flaw> {
        Ok(self.array::<1>()?[0])
    }

    /// Bytes whose count stands before them, in 1, 4 or 8 bytes.
    fn sized(&mut self, opcode: u8) -> Result<&'p [u8], Flaw> {
        let length = match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINBYTES | op::SHORT_BINSTRING | op::LONG1 => self.byte()?.into(),
            op::BINUNICODE8 | op::BINBYTES8 => u64::from_le_bytes(self.array()?),
            _ => u32::from_le_bytes(self.array()?).into(),
        };
        self.take(length)
    }

    fn text(&mut self, opcode: u8) -> Result<&'p str, Flaw> {
        utf8(self.sized(opcode)?)
    }

    /// A line of GLOBAL, without its end.
    fn line(&mut self) -> Result<&'p str, Flaw> {
        let rest = &self.pickle[self.position..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or_else(|| Flaw::new("a name without end"))? as u64)?;
        self.position += 1;
        utf8(line)
    }

    /// A two's complement number of any length.
    fn long(&mut self, opcode: u8) -> Result<i128, Flaw> {
        let bytes = self.sized(opcode)?;
        if bytes.len() > size_of::<i128>() {
            return Err(Flaw::new(format!("an int of {} bytes; 16 can be read", bytes.len())));
        }
        let negative = bytes.last().is_some_and(|&high| high >= 0x80);
        let mut whole = [if negative { 0xff } else { 0 }; size_of::<i128>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        Ok(i128::from_le_bytes(whole))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, Flaw> {
    std::str::from_utf8(bytes).map_err(|_| Flaw::new("a string that is not UTF-8"))
}
