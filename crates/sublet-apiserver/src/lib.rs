//! A Kubernetes-compatible API server: objects as JSON with a schema, built-in and custom kinds alike.
//!
//! Entry types: [`registry::Resource`] (a row per resource), [`registry::Registry`] (the rows in force).
//!
//! Invariants: built-in and custom kinds are the same [`registry::Resource`] value in one snapshot;
//! every write passes the same steps in the same order; nothing here reads flags or the environment.

pub mod admission;
pub mod allocator;
pub mod audit;
pub mod auth;
pub mod cel;
pub mod crd;
pub mod discovery;
pub mod facts;
mod flow;
pub mod hooks;
pub mod http;
pub mod openapi;
pub mod outgoing;
mod packed;
pub mod protobuf;
pub mod reader;
pub mod registry;
pub mod rest;
pub mod server;
pub mod store;
pub mod strategy;
pub mod table;
