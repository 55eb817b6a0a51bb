//! What every loop of Sublet is made of: a JSON client, informers, work queues and reconcilers.
//!
//! Entry types: [`Client`] (any API server, over the network or in process), [`Manager`] (informers
//! shared by controllers, one fair work queue each), [`Reconciler`] (the step of a controller).
//!
//! Invariants: an API server is reached through `kube::Client` alone; every task has an owner and a
//! cancel token; every queue, cache and retry has a bound.

pub mod client;
pub mod clock;
pub mod events;
mod held;
pub mod informer;
pub mod leader;
pub mod manager;
pub mod queue;
pub mod resources;

pub use client::{Client, ClientError, DeleteOptions, List, ListOptions, Patch, PatchOptions, WatchEvent, chain};
pub use clock::Clock;
pub use events::{EventKind, EventRecorder};
pub use informer::{Change, Informer, Scope};
pub use manager::{Controller, Ctx, Manager, Outcome, Reconciler};
pub use queue::WorkQueue;

/// The key of a work item: namespace and name.
pub type Key = sublet_machinery::NamespacedName;
