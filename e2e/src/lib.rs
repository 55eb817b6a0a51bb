//! The story of the product, through kubeconfigs only: the same steps run on the embedded host, on a
//! real Kubernetes, and wherever a kubeconfig leads.
//!
//! Entry points: [`Story::run`] (all chapters), [`Stage`] (what a chapter needs from its surroundings).

pub mod cluster;
pub mod kubectl;
mod objects;
mod story;
mod wait;

pub use cluster::Cluster;
pub use objects::STORY_LABEL;
pub use story::{Chapter, Report, Stage, Story, chapters};
pub use wait::eventually;
