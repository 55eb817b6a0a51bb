//! A tenant's own servers extend its API server: webhooks, policies, converters, other API servers.

mod aggregation;
mod audit;
#[path = "../common/mod.rs"]
mod common;
mod conversion;
mod flow;
mod mutations;
mod oidc;
mod policies;
mod support;
mod webhooks;
