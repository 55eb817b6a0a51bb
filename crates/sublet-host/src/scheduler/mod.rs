//! The scheduler: decides which node each pod goes to and binds it there.
//!
//! Decisions are made one at a time against a cache that holds assumed pods as well, so a burst is
//! never overcommitted; bindings go out side by side. `decide` and all below it are free of IO.

mod bind;
mod cluster;
mod decide;
mod filter;
mod interpod;
mod pod;
mod preempt;
mod queue;
mod resources;
mod run;
mod score;
mod spread;
mod volumes;
mod world;

pub(crate) use bind::{SELECTED_NODE, claim_reference};
pub(crate) use cluster::NodeInfo;
pub(crate) use filter::fit;
pub(crate) use pod::PodInfo;
pub(crate) use run::Scheduler;

#[cfg(test)]
mod tests;
