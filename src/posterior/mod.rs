//! The posterior models; `loss(batch)` is their face.
