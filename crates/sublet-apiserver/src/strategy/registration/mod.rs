//! Admission webhooks and admission policies. What expressions mean is checked where they are compiled.

mod policies;
mod rules;
mod webhooks;

pub(super) use policies::{ADMISSION_POLICY, MUTATING_POLICY, MUTATING_POLICY_BINDING, VALIDATING_POLICY_BINDING};
pub(super) use webhooks::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
