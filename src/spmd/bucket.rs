//! Which parameter's gradient lies where: flat buckets, filled in the order in which the backward pass finishes.

use super::error::{Result, SpmdError};
use super::number::Element;
use crate::torch_ext::cuda::put;
use std::ops::Range;
use tch::{no_grad, Device, Kind, Tensor};

/// Gradients begin at multiples of this many elements: 64 bytes in single precision, a cache line and what vector code
/// likes.
const ALIGNMENT: i64 = 16;

/// How many numbers can ride along with the gradients.
pub const SCALAR_SLOTS: usize = 8;

/// How many numbers each rank can tell all others along with the gradients.
pub const RANK_SLOTS: usize = 4;

/// What stands at the head of the first bucket: numbers that are summed over ranks, and places for each rank's own. Where
/// all other ranks leave zeros in a rank's places, the sum is what that rank said: a gathering without a collective of its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub ranks: usize,
}

impl Head {
    /// Elements it takes up.
    pub const fn space(self) -> i64 {
        round_up((SCALAR_SLOTS + RANK_SLOTS * self.ranks) as i64)
    }

    /// `[SCALAR_SLOTS]`.
    pub fn scalars(self, first_bucket: &Tensor) -> Tensor {
        first_bucket.narrow(0, 0, SCALAR_SLOTS as i64)
    }

    /// `[ranks, RANK_SLOTS]`.
    pub fn of_ranks(self, first_bucket: &Tensor) -> Tensor {
        let (start, slots) = (SCALAR_SLOTS as i64, (RANK_SLOTS * self.ranks) as i64);
        first_bucket
            .narrow(0, start, slots)
            .view([self.ranks as i64, RANK_SLOTS as i64])
    }
}

/// Writes numbers into the first places of a flat tensor of gradients. In host memory that is no operation of libtorch.
pub(super) fn write_numbers(to: &mut Tensor, numbers: &[f64]) -> Result<()> {
    let on_host = to.device() == Device::Cpu && to.is_contiguous() && numbers.len() <= to.numel();
    let data = to.data_ptr();
    // SAFETY: the tensor's own memory, with room for all numbers of its kind, borrowed mutably.
    unsafe {
        match (on_host, to.f_kind()?) {
            (true, Kind::Float) => (0..numbers.len()).for_each(|i| data.cast::<f32>().add(i).write(numbers[i] as f32)),
            (true, Kind::Double) => data.cast::<f64>().copy_from(numbers.as_ptr(), numbers.len()),
            (_, kind) => {
                let mut places = to.f_narrow(0, 0, numbers.len() as i64)?;
                let numbers = Tensor::from_slice(numbers).f_to_kind(kind)?;
                no_grad(|| {
                    places
                        .f_copy_(&put(&numbers, places.device())?)
                        .map_err(SpmdError::from)
                })?;
            }
        }
    }
    Ok(())
}

/// Where one parameter's gradient lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub bucket: usize,
    pub range: Range<i64>,
}

/// How many elements each bucket has, and the place of each parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub elements: Vec<i64>,
    pub places: Vec<Place>,
}

/// Puts gradients of these sizes (elements, in registration order) into buckets, last first: the backward pass finishes
/// them in about that order. A bucket is closed when the next gradient would make it larger than its limit, and has at
/// least one; the first begins with the head.
pub(super) fn lay_out(head: Head, sizes: &[i64], first_limit: i64, limit: i64) -> Layout {
    let mut elements = vec![head.space()];
    let mut places = vec![Place { bucket: 0, range: 0..0 }; sizes.len()];
    let mut filled = false;
    for (parameter, &size) in sizes.iter().enumerate().rev() {
        let limit = if elements.len() == 1 { first_limit } else { limit };
        if filled && elements[elements.len() - 1] + size > limit {
            elements.push(0);
        }
        let bucket = elements.len() - 1;
        let start = elements[bucket];
        places[parameter] = Place {
            bucket,
            range: start..start + size,
        };
        elements[bucket] = round_up(start + size);
        filled = true;
    }
    Layout { elements, places }
}

const fn round_up(elements: i64) -> i64 {
    (elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

/// The kind and device that all parameters share.
pub(super) fn common_options(parameters: &[Tensor]) -> Result<(Kind, Device)> {
    let usage = |message: String| Err(SpmdError::Usage(message));
    let Some(first) = parameters.first() else {
        return usage("there is no parameter to train".into());
    };
    let options = (first.f_kind()?, first.device());
    if Element::of_kind(options.0).is_none() {
        return usage(format!("gradients of kind {:?} cannot be reduced", options.0));
    }
    for (index, parameter) in parameters.iter().enumerate() {
        let found = (parameter.f_kind()?, parameter.device());
        if found != options {
            return usage(format!(
                "parameter {index} is {found:?}, the first one {options:?}; all must be alike"
            ));
        }
        if !parameter.requires_grad() {
            return usage(format!(
                "parameter {index} does not require grad; frozen ones are left out"
            ));
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { ranks: 2 };

    #[test]
    fn last_registered_comes_first_and_buckets_close_at_their_limit() {
        let layout = lay_out(HEAD, &[10, 100, 64, 20], 48, 170);
        // 16 for the head and 20 in the first, padded to 16s; 64 and 100 in the second; 10 is too much there.
        assert_eq!(layout.elements, [48, 176, 16]);
        let place = |bucket, range| Place { bucket, range };
        assert_eq!(
            layout.places,
            [place(2, 0..10), place(1, 64..164), place(1, 0..64), place(0, 16..36)]
        );
    }

    #[test]
    fn a_gradient_larger_than_the_limit_has_a_bucket_of_its_own() {
        let layout = lay_out(HEAD, &[5, 1000, 5], 48, 32);
        assert_eq!(layout.elements, [32, 1008, 16]);
    }

    #[test]
    fn the_head_has_room_for_every_rank() {
        let head = Head { ranks: 5 };
        assert_eq!((HEAD.space(), head.space()), (16, 32));
        let bucket = Tensor::arange(head.space(), (Kind::Float, Device::Cpu));
        assert_eq!(head.of_ranks(&bucket).double_value(&[4, 3]), 8.0 + 19.0);
    }

    #[test]
    fn the_first_bucket_takes_a_parameter_whatever_its_limit() {
        assert_eq!(lay_out(HEAD, &[1000], 1, 1).elements, [1024]);
    }
}
