//! A tenant's own servers extend its API server: webhooks, policies, converters, other API servers.

mod aggregation;
mod conversion;
mod mutations;
mod policies;
mod support;
mod webhooks;
