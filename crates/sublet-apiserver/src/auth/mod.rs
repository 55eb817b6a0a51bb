//! Who asks (authentication), whether they may (authorization), and what tells clients about both.
//!
//! Entry types: [`authn::Authenticator`], [`tokens::ServiceAccountTokens`], [`authz::Authorization`],
//! [`reviews::Reviews`], [`bootstrap::objects`], [`tls`].
//!
//! Everything here is synchronous and reads the cluster through [`crate::reader::Reader`]; the time is an
//! argument.

pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod jwt;
pub mod reviews;
mod selectors;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
pub mod tokens;

/// The user of requests without credentials, and the groups that stand for "anybody".
pub const ANONYMOUS: &str = "system:anonymous";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Members may do everything; no rule is asked.
pub const MASTERS: &str = "system:masters";

/// Nodes: the group of their users, what the users' names begin with, and where their leases are.
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_PREFIX: &str = "system:node:";
pub(crate) const NODE_LEASES: &str = "kube-node-lease";

pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// `system:serviceaccount:<namespace>:<name>`
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups of every service account of the namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// Namespace and name, when the user name is a service account's.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let valid = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
            && part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && part.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
    };
    (valid(namespace) && !namespace.contains('.') && valid(name)).then_some((namespace, name))
}
