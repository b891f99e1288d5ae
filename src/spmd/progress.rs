//! How far a backward pass has come, bucket by bucket, and the norm of what it brought.

use super::bucket::Layout;
use super::transport::HandOver;
use crate::torch_ext::square_norm;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::Mutex;
use tch::{no_grad, Tensor};

/// Adds up the squared norm of a rank's own gradient, bucket by bucket, before the ranks' sum takes its place.
pub(super) struct LocalNorm {
    /// The gradients of each bucket.
    gradients: Mutex<Vec<Tensor>>,
    square: Mutex<f64>,
    /// Those of buckets on a GPU, read at the end: a hook must not wait.
    unread: Mutex<Vec<Tensor>>,
}

impl LocalNorm {
    /// `gradients`: those of each bucket.
    pub fn new(gradients: &[Tensor]) -> LocalNorm {
        LocalNorm {
            gradients: Mutex::new(gradients.iter().map(Tensor::shallow_clone).collect()),
            square: Mutex::new(0.0),
            unread: Mutex::default(),
        }
    }

    /// Takes in a bucket whose gradients are complete. A poisoned lock belongs to a rank whose job is ending.
    pub fn add(&self, bucket: usize) {
        let (Ok(gradients), Ok(mut square), Ok(mut unread)) =
            (self.gradients.lock(), self.square.lock(), self.unread.lock())
        else {
            return;
        };
        let flat = &gradients[bucket];
        if flat.device().is_cuda() {
            unread.push(no_grad(|| flat.dot(flat)));
        } else {
            // What is not floating-point would have been refused before.
            *square += square_norm(std::slice::from_ref(flat), 1.0).map_or(f64::NAN, |norm| norm.square);
        }
    }

    pub fn take(&self) -> f64 {
        let (Ok(mut square), Ok(mut unread)) = (self.square.lock(), self.unread.lock()) else {
            return f64::NAN;
        };
        let on_gpu: f64 = unread.drain(..).map(|square| square.double_value(&[])).sum();
        std::mem::take(&mut *square) + on_gpu
    }
}

/// How far the backward pass has come; shared with the hooks.
pub(super) struct Progress {
    /// Whether this pass is the one whose gradients are reduced.
    pub reducing: AtomicBool,
    /// Gradients that each bucket still lacks.
    pub missing: Vec<AtomicI64>,
    /// Parameters in each bucket.
    pub parameters: Vec<i64>,
    /// A gradient changed after its bucket was handed over.
    pub late: AtomicBool,
}

impl Progress {
    pub fn new(layout: &Layout) -> Progress {
        let mut parameters = vec![0; layout.elements.len()];
        for place in &layout.places {
            parameters[place.bucket] += 1;
        }
        let missing = parameters.iter().map(|_| AtomicI64::new(0)).collect();
        Progress {
            reducing: AtomicBool::new(false),
            missing,
            parameters,
            late: AtomicBool::new(false),
        }
    }

    /// The hook of a parameter in `bucket`.
    pub fn gradient_is_complete(&self, bucket: usize, hand_over: &HandOver) {
        if !self.reducing.load(Ordering::Acquire) {
            return;
        }
        match self.missing[bucket].fetch_sub(1, Ordering::AcqRel) {
            1 => hand_over(bucket),
            2.. => {}
            _ => self.late.store(true, Ordering::Release),
        }
    }
}
