//! Everything that eats bytes of strangers, as a table of targets.
//!
//! A target takes any bytes and returns; that it panics, overflows or hangs is a finding. The same targets are run for
//! moments by a test, and for as long as one likes by `cargo run --release -p sublet-fuzz`.

mod edge;
mod growing;
mod mutate;
mod request;
mod targets;

pub use growing::nested_aliases;
pub use mutate::Mutator;
pub use targets::{TARGETS, Target, target};
