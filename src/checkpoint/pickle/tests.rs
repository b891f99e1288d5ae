//! Pickles that are hostile or damaged, byte by byte; that good ones are read as PyTorch reads them is for
//! tests/checkpoint.rs to show.

use super::*;
use std::time::{Duration, Instant};
use tch::Device;

/// One storage, `0`, of ten floats.
struct TenFloats;

impl StorageSource for TenFloats {
    fn storage(&mut self, key: &str, kind: Kind, elements: usize) -> Result<Tensor, Flaw> {
        match (key, kind, elements) {
            ("0", Kind::Float, 10) => Ok(Tensor::arange(10, (Kind::Float, Device::Cpu))),
            _ => Err(Flaw::new("no such storage")),
        }
    }
}

/// Decodes the concatenated parts between PROTO and STOP.
fn decode_parts(parts: &[&[u8]]) -> Result<Object, String> {
    let pickle = [b"\x80\x02".as_slice(), &parts.concat(), b"."].concat();
    decode(&pickle, &mut TenFloats).map_err(|flaw| format!("{flaw:?}"))
}

fn assert_refused(parts: &[&[u8]], reason: &str) {
    let start = Instant::now();
    let error = decode_parts(parts)
        .err()
        .unwrap_or_else(|| panic!("not refused: {reason}"));
    assert!(error.contains(reason), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
}

fn text(text: &str) -> Vec<u8> {
    [
        &[opcode::BINUNICODE],
        &(text.len() as u32).to_le_bytes()[..],
        text.as_bytes(),
    ]
    .concat()
}

fn int_tuple(items: &[i64]) -> Vec<u8> {
    let mut bytes = vec![opcode::MARK];
    for item in items {
        bytes.extend([opcode::LONG1, 8]);
        bytes.extend(item.to_le_bytes());
    }
    bytes.push(opcode::TUPLE);
    bytes
}

/// `_rebuild_tensor_v2` of the ten floats.
fn tensor(offset: i64, size: &[i64], stride: &[i64]) -> Vec<u8> {
    let storage = [
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nFloatStorage\n".to_vec(),
    ];
    let id = [text("0"), text("cpu"), b"K\x0atQ".to_vec()];
    let offset = [&[opcode::LONG1, 8], &offset.to_le_bytes()[..]].concat();
    let rest = [offset, int_tuple(size), int_tuple(stride), b"\x89}tR".to_vec()];
    [storage.concat(), id.concat(), rest.concat()].concat()
}

#[test]
fn only_data_can_be_named() {
    for name in [
        "os\nsystem",
        "builtins\neval",
        "posix\nsystem",
        "torch\nload",
        "torch._utils\n_rebuild_sparse_tensor",
    ] {
        let global = format!("c{name}\n");
        assert_refused(
            &[global.as_bytes(), b"(X\x02\x00\x00\x00lstR"],
            &name.replace('\n', "."),
        );
        let (module, name) = name.split_once('\n').unwrap();
        assert_refused(
            &[&text(module), &text(name), &[opcode::STACK_GLOBAL]],
            &format!("{module}.{name}"),
        );
    }
    // INST, OBJ, NEWOBJ, EXT1, and protocol 0's text forms.
    for opcode in [b'i', b'o', 0x81, 0x82, b'I', b'S', b'P', 0xff] {
        assert_refused(&[&[opcode, b'\n', b'\n']], &format!("opcode 0x{opcode:02x}"));
    }
    assert_refused(&[b"ccollections\nOrderedDict\n"], "no data");
    assert_refused(&[b"ctorch\nFloatStorage\n)R"], "wrong kind");
    assert_refused(&[b"K\x01)R"], "no function");
    assert_refused(&[b"](K\x01K\x02eX\x01\x00\x00\x00ab"], "attributes");
}

#[test]
fn sizes_are_believed_only_as_far_as_there_are_bytes() {
    for opcode in [opcode::BINUNICODE, opcode::BINBYTES, opcode::BINSTRING, opcode::LONG4] {
        assert_refused(&[&[opcode, 0xff, 0xff, 0xff, 0x7f]], "bytes wanted");
    }
    for opcode in [opcode::BINUNICODE8, opcode::BINBYTES8] {
        assert_refused(&[&[opcode], &[0xff; 8]], "bytes wanted");
    }
    assert_refused(&[&[opcode::LONG1, 17], &[1; 17]], "an int of 17 bytes");
    assert_refused(&[&[opcode::SHORT_BINUNICODE, 1, 0xff]], "not UTF-8");
    assert_refused(&[b"cno end"], "without end");
}

#[test]
fn the_stack_never_underflows() {
    for parts in [
        &b""[..],
        b"0",
        b"2",
        b"q\x00",
        b"a",
        b"]a",
        b"s",
        b"}K\x01s",
        b"t",
        b"u",
        b"e",
        b"1",
        b"R",
        b"b",
        b"Q",
        b"\x87",
    ] {
        assert!(decode_parts(&[parts]).is_err(), "{parts:?}");
    }
    // What lies below a mark cannot be reached across it.
    assert_refused(&[b"](a"], "stack is empty");
    assert_refused(&[b"}(K\x01u"], "no dict");
    assert_refused(&[b"h\x07"], "memo 7 is empty");
    assert!(decode(b"\x80\x02", &mut TenFloats).is_err());
    assert!(decode(b"\x80\x06N.", &mut TenFloats).is_err());
}

#[test]
fn depth_and_growth_have_limits() {
    let deep = [vec![opcode::EMPTY_LIST; 500_000], vec![opcode::APPEND; 499_999]].concat();
    assert_refused(&[&deep], "nested deeper");
    // Lists that contain themselves, once and twice (2^100 paths).
    assert_refused(&[b"]q\x00h\x00a"], "contains itself");
    assert_refused(&[b"]q\x00(h\x00h\x00e"], "contains itself");
    // Each list holds the one before ten times.
    let mut laughs = b"]q\x00".to_vec();
    for level in 0..60 {
        laughs.extend([opcode::EMPTY_LIST, opcode::BINPUT, level + 1, opcode::MARK]);
        laughs.extend([opcode::BINGET, level].repeat(10));
        laughs.push(opcode::APPENDS);
    }
    assert_refused(&[&laughs], "repeats itself");
    // A long string, referred to again and again.
    let long = text(&"x".repeat(1_000_000));
    let references = [opcode::BINGET, 0].repeat(1_000_000);
    assert_refused(&[&long, b"q\x00(", &references, b"t"], "repeats itself");
    // The same, copied by each of many calls.
    let call = [b"h\x01h\x00h\x02\x86R0".as_slice()].concat().repeat(1_000_000);
    let encode = [
        long,
        b"q\x00c_codecs\nencode\nq\x01".to_vec(),
        text("latin1"),
        b"q\x02".to_vec(),
    ]
    .concat();
    assert_refused(&[&encode, &call, b"N"], "repeats itself");
}

#[test]
fn tensors_lie_within_their_storage() {
    let Object::Tensor(whole) = decode_parts(&[&tensor(0, &[2, 5], &[5, 1])]).unwrap() else {
        panic!()
    };
    assert_eq!(whole, Tensor::arange(10, (Kind::Float, Device::Cpu)).view([2, 5]));
    assert!(decode_parts(&[&tensor(9, &[1], &[1])]).is_ok());
    assert!(decode_parts(&[&tensor(10, &[0], &[1])]).is_ok());
    let outside: [(i64, &[i64], &[i64]); 12] = [
        (0, &[11], &[1]),
        (1, &[10], &[1]),
        (10, &[], &[]),
        (-1, &[2], &[1]),
        (11, &[0], &[1]),
        (0, &[2, 5], &[6, 1]),
        (9, &[2], &[-1]),
        (0, &[-1], &[1]),
        (0, &[2], &[1, 1]),
        // Repeated elements could ask for any amount of memory.
        (0, &[1 << 40], &[0]),
        (0, &[0, i64::MAX, i64::MAX], &[1, 1, 1]),
        (0, &[i64::MAX, i64::MAX], &[i64::MAX, i64::MAX]),
    ];
    for (offset, size, stride) in outside {
        assert_refused(&[&tensor(offset, size, stride)], "does not lie within its storage");
    }
    assert_refused(&[&tensor(0, &[1; 65], &[1; 65])], "65 dimensions");
}

#[test]
fn damaged_pickles_are_read_or_refused() {
    let sample = Object::dict([
        ("tensor", Object::from(Tensor::arange(10, (Kind::Float, Device::Cpu)))),
        ("list", Object::list([1i64, 300, 70_000, -1, i64::MIN])),
        ("bytes", Object::Bytes(vec![0, 255])),
        (
            "tuple",
            Object::Tuple(vec![0.5.into(), "text".into(), true.into(), Object::None]),
        ),
        ("dict", Object::dict([("a", Object::dict([("b", 1i64)]))])),
    ]);
    let pickle = encode(&sample).unwrap().pickle;
    assert!(decode(&pickle, &mut TenFloats).is_ok());
    for length in 0..pickle.len() {
        assert!(decode(&pickle[..length], &mut TenFloats).is_err(), "cut at {length}");
    }
    let mut readable = 0;
    for position in 0..pickle.len() {
        for byte in 0..=255 {
            let mut damaged = pickle.clone();
            damaged[position] = byte;
            readable += usize::from(decode(&damaged, &mut TenFloats).is_ok());
        }
    }
    assert!(readable > pickle.len() && readable < 200 * pickle.len(), "{readable}");
}

#[test]
fn objects_that_no_checkpoint_can_hold_are_not_written() {
    let mut deep = Object::None;
    for _ in 0..=MAX_DEPTH {
        deep = Object::list([deep]);
    }
    assert!(encode(&deep).is_err());
    // A type that PyTorch has no storage class for.
    let eight_bits = Tensor::zeros([2], (Kind::Float8e4m3fn, Device::Cpu));
    let flaw = encode(&Object::dict([("a", eight_bits)])).err().unwrap();
    assert_eq!(
        flaw,
        Flaw::at("a", "is a tensor of Float8e4m3fn, which a checkpoint cannot hold")
    );
}
