//! What a person reads about files and runs.

mod inspect;
mod plan;
mod text;

pub use inspect::{inspect, InspectError};
pub use plan::describe_check;
pub use text::print;
