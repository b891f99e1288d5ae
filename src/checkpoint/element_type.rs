//! The element types of tensors by the names of PyTorch's storages.

use tch::Kind;

const STORAGES: [(&str, Kind); 12] = [
    ("FloatStorage", Kind::Float),
    ("DoubleStorage", Kind::Double),
    ("HalfStorage", Kind::Half),
    ("BFloat16Storage", Kind::BFloat16),
    ("LongStorage", Kind::Int64),
    ("IntStorage", Kind::Int),
    ("ShortStorage", Kind::Int16),
    ("CharStorage", Kind::Int8),
    ("ByteStorage", Kind::Uint8),
    ("BoolStorage", Kind::Bool),
    ("ComplexFloatStorage", Kind::ComplexFloat),
    ("ComplexDoubleStorage", Kind::ComplexDouble),
];

/// The element type of `torch.NAME`, if that is a storage.
pub fn kind_of_storage(name: &str) -> Option<Kind> {
    STORAGES
        .iter()
        .find(|(storage, _)| *storage == name)
        .map(|(_, kind)| *kind)
}

/// The name under `torch` of the storage that holds elements of this type; `None` for types PyTorch has none for.
pub fn storage_of_kind(kind: Kind) -> Option<&'static str> {
    STORAGES.iter().find(|(_, k)| *k == kind).map(|(storage, _)| *storage)
}
